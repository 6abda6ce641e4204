"""``python -m loghub_worker try``: whether a worker could work with these settings.

It does what the start of a worker does before the first heartbeat: it imports the user's code, lets Spark
analyse the query on no logs, and asks the sink whether it takes the columns. It is no member of the group and
reads no log. `loghub up` runs it before it stops a worker for changed settings.
"""

from pathlib import Path

import msgspec

from loghub.contract.processor import ProcessorPipeline
from loghub.contract.worker import LOCAL_MASTER, WorkerReason
from loghub_consumer.errors import FatalError
from loghub_consumer.processes.child import ProcessShards, load_factory, load_listener
from loghub_consumer.user_code import place_code
from loghub_worker.settings import WorkerSettings

ARGUMENT = "try"


def try_settings(settings: WorkerSettings) -> None:
    """Raises `FatalError` with the reason for which a worker would end, or would wait."""
    code = place_code(settings.config.pipeline, settings.state_dir / "code")
    if isinstance(settings.config.pipeline, ProcessorPipeline):
        _try_processor(settings.config.pipeline, code)
    else:
        _try_on_spark(settings, code)


def _try_processor(pipeline: ProcessorPipeline, code: Path | None) -> None:
    by_log, times_out = pipeline.acknowledge == "log", pipeline.ack_timeout_s is not None
    load_factory(pipeline.factory, code, by_log=by_log, times_out=times_out)
    if pipeline.listener is not None:
        load_listener(pipeline.listener, code, ProcessShards())


def _try_on_spark(settings: WorkerSettings, code: Path | None) -> None:
    """On one core of this machine, also if the worker's Spark is a cluster: an analysis needs no executor."""
    from loghub_consumer.exchange_files import ExchangeFiles
    from loghub_worker.query.settings import QuerySettings
    from loghub_worker.query.spark_session import invalid, start_spark
    from loghub_worker.query.stateful_plan import refuse_settings
    from loghub_worker.query.transform import make_transform
    from loghub_worker.sink.batch_sink import InvalidSinkError
    from loghub_worker.sink.sink_start import CredentialFiles
    from loghub_worker.sink.sinks import make_sink
    from loghub_worker.spark_errors import SPARK_ERRORS
    from loghub_worker.worker import checked_rows

    config = msgspec.structs.replace(settings.config, spark_master=LOCAL_MASTER, executors=None, cores=1)
    if config.stateful:
        refuse_settings(config)
    folders = {name: settings.state_dir / name for name in ("exchange", "spark", "query")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    spark = start_spark(config, folders["spark"], class_archive=settings.class_archive, code=code)
    query = QuerySettings(
        config=config,
        consumer=settings.consumer,
        address=settings.address,
        exchange=ExchangeFiles(folders["exchange"]),
        scratch=folders["query"],
        journal=settings.state_dir / "attempts.json",
        dead_letters=None,
        ledger=None,
    )
    rows = checked_rows(make_transform(config.pipeline, code), spark, query)
    try:
        sink = make_sink(
            config,
            consumer=settings.consumer,
            source=settings.address,
            sink_credentials=CredentialFiles(settings.sink_credentials_dir),
            scratch=folders["exchange"],
        )
        sink.check(rows)
    except InvalidSinkError as error:
        raise FatalError(WorkerReason.INVALID_SINK, str(error)) from error
    except OSError as error:
        raise FatalError(WorkerReason.SINK_UNAVAILABLE, str(error)) from error
    except (*SPARK_ERRORS, ValueError) as error:
        raise invalid(error) from error
