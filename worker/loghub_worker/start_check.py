"""``python -m loghub_worker check``: whether a worker could work with these settings.

It does what the start of a worker does before the first heartbeat: it imports the user's code, lets Spark
analyse the query on no logs, and asks the sink whether it takes the columns. It is no member of the group and
reads no log. `loghub up` runs it before it stops a worker for changed settings.

``check offline`` contacts neither the log service nor the target of the sink, and writes nothing outside the
state directory (`loghub_worker.sink.dry_sink`): `loghub check` runs it, for pipelines whose targets are
elsewhere.
"""

from pathlib import Path

from loghub.contract.processor import ProcessorPipeline
from loghub_consumer.processes.child import ProcessShards, load_factory, load_listener
from loghub_consumer.processor import Listener, ProcessorFactory, ShardControl
from loghub_consumer.user_code import place_code
from loghub_worker.settings import WorkerSettings


def check_settings(settings: WorkerSettings, *, offline: bool = False) -> None:
    """Raises `FatalError` with the reason for which a worker would end, or would wait."""
    if isinstance(settings.config.pipeline, ProcessorPipeline):
        load_processor(settings.config.pipeline, user_code(settings), ProcessShards())
    else:
        from loghub_worker.spark_pipeline import load_pipeline  # a processor runs without Spark

        load_pipeline(settings, user_code(settings), offline=offline)


def user_code(settings: WorkerSettings) -> Path | None:
    """The folder with the user's code. Raises `FatalError`."""
    return place_code(settings.config.pipeline, settings.state_dir / "code")


def load_processor(
    pipeline: ProcessorPipeline, code: Path | None, shards: ShardControl
) -> tuple[ProcessorFactory, Listener | None]:
    """The user's processor, and the listener of these shards. Raises `FatalError`."""
    by_log, times_out = pipeline.acknowledge == "log", pipeline.ack_timeout_s is not None
    factory = load_factory(pipeline.factory, code, by_log=by_log, times_out=times_out)
    listener = None if pipeline.listener is None else load_listener(pipeline.listener, code, shards)
    return factory, listener
