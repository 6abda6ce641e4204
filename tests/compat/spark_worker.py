"""Our worker on Spark as a member of a group of the vendor's consumers.

It is a real ``python -m loghub_worker`` that writes the numbers of its logs to a Parquet folder.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import SqlPipeline
from tests.loghub_worker.support import GUARD_S, WorkerProcess, Workers, delivered, worker_config
from tests.support import ServiceProcess

# A busy machine may not give a JVM that starts its turn within the timeout of the other tests.
SPARK_TIMEOUT_S = 15
SPARK_GUARD_S = GUARD_S
_NAME = "S"
_SQL = "SELECT substring_index(contents['n'], ' ', 1) AS id FROM logs"


class SparkWorker:
    """One worker, which can be killed and started again under its name."""

    def __init__(self, service: ServiceProcess, workers: Workers, sink: Path) -> None:
        self._workers = workers
        self._sink = sink
        self._config = worker_config(
            service.endpoint,
            ParquetSink(path=str(sink)),
            pipeline=SqlPipeline(text=_SQL),
            heartbeat_interval_s=1,
            timeout_s=SPARK_TIMEOUT_S,
        )
        self._process: WorkerProcess | None = None

    def start(self) -> None:
        self._process = self._workers.start(_NAME, self._config)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill_all()

    def delivered(self) -> Counter[int]:
        """The numbers in the sink, and how often each is there."""
        return Counter({int(text): count for text, count in delivered(self._sink).items()})


@contextmanager
def a_spark_worker(service: ServiceProcess, folder: Path) -> Iterator[SparkWorker]:
    workers = Workers(folder / "workers", service.credentials_dir)
    try:
        yield SparkWorker(service, workers, folder / "sink")
    finally:
        workers.close()
