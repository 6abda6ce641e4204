"""``python -m loghub_worker try SAMPLE REPORT``: runs a pipeline over given logs, without effects.

The logs are in a file (`loghub.contract.dry_run`), and so is the report. Neither a log service nor the target
of the sink is contacted: there is no consumer group, no checkpoint, no dead letter, and no row leaves the
state directory. What the user's own code does, such as a request of a processor, is done.
"""

from pathlib import Path

import msgspec

from loghub.contract.dry_run import LogSample
from loghub.contract.processor import ProcessorPipeline
from loghub_worker.settings import WorkerSettings


def try_sample(settings: WorkerSettings, sample: Path, report: Path) -> None:
    """Run the pipeline over the logs of one file and write what it did to another one. Raises `FatalError`
    with the reason for which a worker would end, or would wait."""
    given = msgspec.msgpack.decode(sample.read_bytes(), type=LogSample)
    if isinstance(settings.config.pipeline, ProcessorPipeline):  # which runs without Spark
        from loghub_worker.processor_dry_run import run_processor as run
    else:
        from loghub_worker.spark_dry_run import run_on_spark as run
    report.write_bytes(msgspec.json.encode(run(settings, given)))
