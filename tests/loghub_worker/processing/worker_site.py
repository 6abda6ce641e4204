"""Real workers with processors, on a service of their own."""

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loghub.client.http import HttpLogHub
from loghub.contract.processor import ProcessorPipeline
from loghub.contract.sinks import NoSink
from loghub.contract.worker import WorkerConfig
from tests.loghub_worker.processing.processors import OUTPUT
from tests.loghub_worker.processing.support import MODULE
from tests.loghub_worker.support import (
    GROUP,
    LOGSTORE,
    Producer,
    WorkerProcess,
    Workers,
    all_saved,
    prepare,
    processes_of,
    worker_config,
    worker_processes,
)
from tests.support import ServiceProcess, running_service, wait_until

SHARDS = 4


@dataclass(frozen=True, slots=True)
class Site:
    """A service with a logstore, and workers whose processors all write into one file."""

    folder: Path
    service: ServiceProcess
    client: HttpLogHub
    workers: Workers
    producer: Producer
    metrics_address: str

    def config(self, factory: str = f"{MODULE}:Recorder", **changes: Any) -> WorkerConfig:
        known = ProcessorPipeline.__struct_fields__
        pipeline = {name: changes.pop(name) for name in tuple(changes) if name in known}
        return worker_config(
            self.service.endpoint,
            NoSink(),
            pipeline=ProcessorPipeline(factory=factory, **pipeline),
            **changes,
        )

    def start(self, name: str = "w-0", **changes: Any) -> WorkerProcess:
        return self.workers.start(name, self.config(**changes))

    def lines(self) -> list[list[str]]:
        path = self.folder / "processed"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def processed(self) -> Counter[str]:
        return Counter(line[4] for line in self.lines() if line[2] == "log")

    def held(self) -> dict[int, str]:
        """Shard -> holder, as the service has it."""
        shards = self.client.group_status(LOGSTORE, GROUP).shards
        return {one.shard: one.holder for one in shards if one.holder}

    def wait_processed(self) -> None:
        wait_until(lambda: all_saved(self.client), "every shard to be saved at its end")


@contextmanager
def site(folder: Path, *, metrics: bool = False, shards: int = SHARDS) -> Iterator[Site]:
    """With `metrics`, the only worker serves them at an address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    variables = {OUTPUT: str(folder / "processed")}
    if metrics:
        variables["LOGHUB_METRICS_ADDRESS"] = address
    with running_service(folder / "service") as service:
        client = prepare(service, shards=shards)
        with worker_processes(folder, service, variables) as workers:
            yield Site(folder, service, client, workers, Producer(client), address)
        client.close()


def one_child(worker: WorkerProcess) -> int:
    """A process in which its processors run."""

    def running() -> list[int]:
        status = worker.status
        reported = [] if status is None else [one.pid for one in status.processes]
        return [pid for pid in processes_of(worker) if pid in reported]

    wait_until(lambda: running() != [], "a process of processors")
    return running()[0]


def reason(worker: WorkerProcess) -> str:
    status = worker.status
    return "" if status is None else status.reason
