"""Processes of processors: a pool, consumers that call them."""

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from loghub.clock import SystemClock
from loghub.contract.worker import OnFailure
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer import Consumer
from loghub_consumer.failure.policy import FailingRange
from loghub_consumer.processes.child_process import ProcessPool, ProcessSettings
from loghub_consumer.processes.messages import Load
from loghub_consumer.processes.remote_processor import (
    ProcessorCounts,
    RemoteListener,
    RemoteParts,
    RemoteProcessor,
    has_hung,
)
from loghub_consumer.running_batches import RunningBatches
from loghub_consumer.settings import WorkerOptions
from tests.loghub_consumer.support import Site
from tests.loghub_worker.processing.processors import OUTPUT
from tests.support import PYTHON_PATH

MODULE = "tests.loghub_worker.processing.processors"


class Rig:
    """Processors in processes, and what they have written since its own start."""

    def __init__(
        self, folder: Path, pool: ProcessPool, *, timeout_s: float, output: Path | None = None
    ) -> None:
        self._folder = folder
        self.pool = pool
        self._output = output or folder / "processed"
        self._earlier = len(self._written())
        self.counts = ProcessorCounts()
        self._consumer: Consumer | None = None
        self._parts = RemoteParts(
            pool=pool, counts=self.counts, clock=SystemClock(), timeout_s=timeout_s, has_hung=self._has_hung
        )

    def _has_hung(self, shard: int) -> bool:
        return self._consumer is not None and has_hung(self._consumer.failure_report(), shard)

    def consumer(self, site: Site, policy: str = "Retry", **changes: Any) -> Consumer:
        """One that calls these processors, with the policy after one attempt."""
        factory = partial(RemoteProcessor, self._parts)
        options = WorkerOptions(
            timeout_s=30,
            retry_timeout_s=30,
            state_dir=self._folder / "state",
            batch_timeout_s=0.05,  # only the pauses depend on it
            restart_s=0.05,
            retry_factory=factory,
            running=RunningBatches(self._folder / "state"),
        )
        limits = {name: changes.pop(name) for name in ("max_consecutive", "max_attempts") if name in changes}
        dead_letter = changes.pop("dead_letter", None)
        on_failure = OnFailure(policy=policy, dead_letter=dead_letter, **({"max_attempts": 1} | limits))  # type: ignore[arg-type]
        settings = site.settings(on_failure=on_failure, checkpoint_interval_s=0.0, **changes)
        self._consumer = Consumer(settings, factory, RemoteListener(self.pool), worker=options)
        return self._consumer

    def skipped(self) -> dict[int, int]:
        """Shard -> log groups."""
        assert self._consumer is not None
        return {one.shard: one.log_groups for one in self._consumer.failure_report().skips}

    def failing(self) -> list[FailingRange]:
        assert self._consumer is not None
        return list(self._consumer.failure_report().failing)

    def lines(self) -> list[list[str]]:
        """The words of each line that the processors wrote: process, imports, event, shard and more."""
        return [line.split() for line in self._written()[self._earlier :]]

    def _written(self) -> list[str]:
        return self._output.read_text().splitlines() if self._output.exists() else []

    def ids(self, shard: int = 0) -> list[str]:
        return [line[4] for line in self.lines() if line[2:4] == ["log", str(shard)]]


@contextmanager
def rig(
    folder: Path,
    factory: str = "Recorder",
    *,
    processes: int = 1,
    timeout_s: float = 60.0,
    load_timeout_s: float = 120.0,
    by_log: bool = False,
    listener: str | None = None,
) -> Iterator[Rig]:
    environment = dict(os.environ) | {OUTPUT: str(folder / "processed"), "PYTHONPATH": PYTHON_PATH}
    settings = ProcessSettings(
        load=Load(f"{MODULE}:{factory}", None, by_log, listener and f"{MODULE}:{listener}"),
        load_timeout_s=load_timeout_s,
        load_setting="pipeline.processor.loadTimeoutSeconds",
        environment=environment,
        send_timeout_s=timeout_s,
        random=random.random,
    )
    pool = ProcessPool(processes, settings)
    try:
        yield Rig(folder, pool, timeout_s=timeout_s)
    finally:
        pool.close()


class KeptProcesses:
    """One process of each kind, for the tests that it outlives: its start is most of what they cost."""

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        self._folder = folder
        self._ends = ends
        self._kept: dict[tuple[str, bool], tuple[ProcessPool, Path]] = {}

    def rig(self, folder: Path, factory: str = "Recorder", *, by_log: bool = False) -> Rig:
        """As the other `rig`, with what a test puts into `folder`."""
        kind = (factory, by_log)
        if kind not in self._kept:
            place = self._folder / f"{factory}-{by_log}"
            place.mkdir()
            first = self._ends.enter_context(rig(place, factory, by_log=by_log))
            self._kept[kind] = first.pool, place / "processed"
        pool, output = self._kept[kind]
        return Rig(folder, pool, timeout_s=60.0, output=output)


def put(site: Site, *ids: str, shard: int = 0) -> None:
    """Write log groups of one log each."""
    key = next(one.begin_key for one in site.client.list_shards(site.logstore) if one.shard == shard)
    for name in ids:
        group = LogGroup(logs=(Log(time=1_700_000_000, contents=(("id", name),)),))
        site.client.put_logs(site.logstore, encode(group), hash_key=key)
