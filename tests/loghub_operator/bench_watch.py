"""A watcher of the bench: when it saw which value, and the latencies from that."""

import asyncio
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.cluster import build
from tests.loghub_operator.support.apiserver import Apiserver

GUARD_S = 300.0


@dataclass(slots=True)
class Watch:
    """What a watcher saw last of each object, and when it saw something new."""

    values: dict[str, tuple[str, float]] = field(default_factory=dict)

    def line(self, text: str) -> None:
        name, _, value = text.partition(" ")
        if self.values.get(name, ("", 0.0))[0] != value:
            self.values[name] = (value, time.monotonic())

    def when(self, name: str, value: str) -> float | None:
        known, at = self.values.get(name, ("", 0.0))
        return at if known == value else None


@contextmanager
def watching(server: Apiserver, kind: str, value: str) -> Iterator[Watch]:
    """``kubectl get --watch`` with one line an event: name, then this jsonpath."""
    watch = Watch()
    template = f'jsonpath={{.metadata.name}} {value}{{"\\n"}}'
    message = ["get", kind, "-A", "--watch", "-o", template]
    command = [str(build.folder() / "kubectl"), "--kubeconfig", str(server.kubeconfig), *message]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=lambda: [watch.line(line.strip()) for line in process.stdout or ()])
        reader.start()
        try:
            yield watch
        finally:
            process.terminate()
            reader.join()


async def latencies(watch: Watch, requested: dict[str, float], value: str | dict[str, str]) -> list[float]:
    """Seconds from each request until the watcher saw its value; those never seen count as infinite."""
    deadline, result = time.monotonic() + GUARD_S, {}
    while len(result) < len(requested) and time.monotonic() < deadline:
        for name, since in requested.items():
            at = watch.when(name, value if isinstance(value, str) else value[name])
            if at is not None:
                result.setdefault(name, at - since)
        await asyncio.sleep(0.2)
    return [result.get(name, float("inf")) for name in requested]
