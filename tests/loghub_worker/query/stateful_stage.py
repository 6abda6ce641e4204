"""Workers with a stateful pipeline in the test's process, on a real Spark and a real service. A test can end
them where it wants. Their sink is a folder."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from loghub.client.http import HttpLogHub
from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import WorkerConfig
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer.batch_plan import Range
from loghub_worker.query.transform import PythonTransform
from loghub_worker.sink.sinks import make_sink
from loghub_worker.state.checkpoint_folder import pending_batch
from loghub_worker.state.ledger import StateIdentity, StateLedger
from tests.loghub_worker.query.worker_threads import WorkerThreads
from tests.loghub_worker.stateful_pipelines import first_of_each_id
from tests.loghub_worker.support import GUARD_S, LOGSTORE, delivered, source_of, worker_config
from tests.support import ServiceProcess, wait_until

IDENTITY = StateIdentity(pipeline="first of each id", reset="")
LOWER, UPPER = "1" * 32, "9" * 32  # hash keys of shard 0 and shard 1


def put(client: HttpLogHub, ids: Iterable[str], key: str = LOWER) -> None:
    logs = tuple(Log(time=1_767_225_600, contents=(("id", one),)) for one in ids)
    client.put_logs(LOGSTORE, encode(LogGroup(logs=logs)), hash_key=key)


class Moments:
    """Holds the runner where a test wants to end it, as a kill would."""

    def __init__(self) -> None:
        self.wanted = ""
        self.reached = threading.Event()
        self._ended = threading.Event()

    def at(self, moment: str) -> None:
        if moment == self.wanted:
            self.reached.set()
            assert self._ended.wait(GUARD_S)
            raise RuntimeError("the process would have ended here")

    def end(self) -> None:
        self._ended.set()


class HeldSink:
    """A sink that reports its moments."""

    def __init__(self, sink: Any, moments: Moments) -> None:
        self._sink = sink
        self._moments = moments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def write(self, result: DataFrame, batch: str) -> int:
        rows: int = self._sink.write(result, batch)
        self._moments.at("written")
        return rows

    def publish(self, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]) -> None:
        self._moments.at("computed")
        self._sink.publish(batch, ranges, may_commit)
        self._moments.at("published")


class HeldLedger(StateLedger):
    """A ledger that reports its moment."""

    moments = Moments()

    def delivered(self, batch: int, ranges: Iterable[Range]) -> None:
        super().delivered(batch, ranges)
        self.moments.at("recorded")


class Stage:
    """Workers in this process, with one folder as their sink."""

    def __init__(self, spark: SparkSession, service: ServiceProcess, folder: Path, **settings: Any) -> None:
        self._spark = spark
        self._service = service
        self.folder = folder
        self.function: Callable[[DataFrame], DataFrame] = first_of_each_id
        self.config: WorkerConfig = worker_config(
            service.endpoint, ParquetSink(path=str(folder / "sink")), stateful=True, **settings
        )
        self.moments = Moments()

    def start(self, name: str = "w-0") -> WorkerThreads:
        """A new process of this worker, as it were."""
        self.moments = Moments()
        folder = self.folder / name
        ledger = HeldLedger(folder / "stateful", IDENTITY)
        ledger.moments = self.moments
        sink = make_sink(
            self.config,
            consumer=name,
            source=source_of(self._service),
            scratch=folder,
        )
        threads = WorkerThreads(
            self._spark,
            self.config,
            HeldSink(sink, self.moments),
            self._service.credentials_dir,
            folder,
            name=name,
            transform=PythonTransform("once:run", self.function, None),
            ledger=ledger,
        )
        self.ledger = ledger
        threads.start()
        return threads

    def kill(self, threads: WorkerThreads) -> None:
        """End the worker where it is."""
        wait_until(self.moments.reached.is_set, self.moments.wanted, guard_s=GUARD_S)
        threads.query_runner._stop.set()
        self.moments.end()
        threads.stop()

    def wait_for(self, ids: Counter[str]) -> None:
        sink = self.folder / "sink"
        wait_until(lambda: delivered(sink).total() >= ids.total(), f"{ids.total()} rows", guard_s=GUARD_S)
        assert delivered(sink) == ids

    def wait_until_ended(self) -> None:
        """Wait until Spark has no batch that has not ended."""
        wait_until(lambda: pending_batch(self.ledger.checkpoint) is None, "the batch to end", guard_s=GUARD_S)
