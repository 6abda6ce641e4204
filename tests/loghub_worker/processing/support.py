"""Processes of processors without a log service: a pool, batches, and a tracker that remembers."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loghub.clock import SystemClock
from loghub.wire.compression import Compression, Packed, compress
from loghub.wire.loggroup import Log, LogGroup, encode, wrap
from loghub_worker.consumer.batch import BodySlice, LogBatch, PulledBody
from loghub_worker.consumer.user_code import RemoteError
from loghub_worker.failure.dead_letter import DeadLetters
from loghub_worker.failure.skip_limits import FailureSettings, Policy
from loghub_worker.log_service import encode_cursor
from loghub_worker.processing.child_process import ProcessSettings
from loghub_worker.processing.messages import Load
from loghub_worker.processing.process_pool import ProcessPool
from loghub_worker.processing.remote_processor import (
    ProcessorCounts,
    RemoteProcessor,
    ShardFailures,
)
from tests.loghub_worker.processing.processors import OUTPUT
from tests.support import ROOT, wait_until

MODULE = "tests.loghub_worker.processing.processors"


class MemoryTracker:
    """A tracker whose checkpoint is only here."""

    def __init__(self, shard: int, position: int = 0) -> None:
        self.shard = shard
        self._noted = encode_cursor(position)
        self.saves: list[tuple[str | None, bool]] = []

    def save(self, *, persist: bool = True, cursor: str | None = None) -> None:
        self.saves.append((cursor, persist))
        self._noted = cursor or self._noted

    def get(self) -> str:
        return self._noted


def batch(*groups: str, shard: int = 0, first: int = 0) -> LogBatch:
    """Log groups of one log each, with these ids."""
    body = wrap(
        [encode(LogGroup(logs=(Log(time=1_700_000_000, contents=(("id", name),)),))) for name in groups]
    )
    packed = Packed(compress(body, Compression.LZ4), len(body), Compression.LZ4)
    pulled = PulledBody(packed, shard=shard, first=first, count=len(groups))
    return LogBatch(shard, (BodySlice(pulled, 0, len(groups)),))


class Rig:
    """Processors in processes, and what they wrote."""

    def __init__(self, folder: Path, pool: ProcessPool, *, timeout_s: float) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self.pool = pool
        self.clock = SystemClock()
        self.counts = ProcessorCounts()
        self.failures: dict[int, ShardFailures] = {}
        self.policy = FailureSettings(
            policy=Policy.RETRY,
            max_attempts=1,
            max_consecutive=10,
            max_per_hour=100,
            batch_timeout_s=0.05,  # only the pauses depend on it
            restart_s=0.05,
        )
        self.dead_letters: DeadLetters | None = None

    def processor(self) -> RemoteProcessor:
        return RemoteProcessor(
            self.pool, self._failures_of, self.counts, self.clock, timeout_s=self._timeout_s
        )

    def _failures_of(self, shard: int) -> ShardFailures:
        if shard not in self.failures:
            self.failures[shard] = ShardFailures(
                self.policy,
                clock=self.clock,
                journal=self._folder / f"journal-{shard}",
                dead_letters=self.dead_letters,
                random=lambda: 0.0,
            )
        return self.failures[shard]

    def lines(self) -> list[list[str]]:
        """The words of each line that the processors wrote: process, imports, event, shard and more."""
        path = self._folder / "processed"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def ids(self, shard: int = 0) -> list[str]:
        return [line[4] for line in self.lines() if line[2:4] == ["log", str(shard)]]


@contextmanager
def rig(
    folder: Path, factory: str = "Recorder", *, processes: int = 1, timeout_s: float = 60.0
) -> Iterator[Rig]:
    environment = dict(os.environ) | {OUTPUT: str(folder / "processed"), "PYTHONPATH": _python_path()}
    settings = ProcessSettings(
        load=Load(f"{MODULE}:{factory}", None),
        environment=environment,
        send_timeout_s=timeout_s,
        random=random.random,
    )
    pool = ProcessPool(processes, settings)
    try:
        yield Rig(folder, pool, timeout_s=timeout_s)
    finally:
        pool.close()


def _python_path() -> str:
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def until_done(call: Callable[[], object], errors: list[str]) -> None:
    """Call, as the consumer does, until it raises no more; what it raised is in `errors`."""

    def is_done() -> bool:
        try:
            call()
        except RemoteError as error:
            errors.append(str(error))
            return False
        return True

    wait_until(is_done, "the processor to take the batch")
