"""A pause of the whole service: a frozen machine, a suspended container, a throttled CPU.

Java, Go and Python consumers go on with their shards while the service does not answer, and give them up only
later than the service would. If the service expelled them after a pause, two consumers would work on a shard.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.loghub_service.rawclient import RawClient
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = pytest.mark.long

TIMEOUT_S = 2
PAUSE_S = 3.0  # longer than the timeout


class Consumer:
    """Sends heartbeats from a thread, and works on what the answers list."""

    def __init__(self, service: ServiceProcess, name: str) -> None:
        self.name = name
        self.held: list[int] = []
        self.answers = 0
        self._service = service
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with RawClient(self._service) as client:
            while not self._stop.is_set():
                self.held = client.heartbeat(self.name, self.held)
                self.answers += 1
                self._stop.wait(0.1)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(180)


@contextmanager
def consumers(service: ServiceProcess, *names: str) -> Iterator[tuple[Consumer, ...]]:
    made = tuple(Consumer(service, name) for name in names)
    try:
        yield made
    finally:
        for one in made:
            one.stop()


def test_consumers_whose_heartbeats_waited_in_the_sockets_keep_their_shards(tmp_path: Path) -> None:
    with running_service(tmp_path) as service, RawClient(service) as client:
        client.create(shards=4)
        client.create_group("g", timeout=TIMEOUT_S)
        with consumers(service, "a", "b") as (a, b):
            wait_until(lambda: (len(a.held), len(b.held)) == (2, 2), "two shards each")
            before = (a.held, b.held)
            os.kill(service.pid, signal.SIGSTOP)
            paused_s = time.monotonic()
            answers = (a.answers, b.answers)
            wait_until(lambda: time.monotonic() > paused_s + PAUSE_S, "a pause longer than the timeout")
            os.kill(service.pid, signal.SIGCONT)
            wait_until(lambda: a.answers > answers[0] + 3 and b.answers > answers[1] + 3, "heartbeats")
            assert (a.held, b.held) == before
        service.terminate()
        log = service.log.read_text()
    assert "the service was paused" in log
    assert "holder_timed_out" not in log


def test_a_consumer_that_died_before_the_pause_still_loses_its_shards(tmp_path: Path) -> None:
    with running_service(tmp_path) as service, RawClient(service) as client:
        client.create(shards=2)
        client.create_group("g", timeout=TIMEOUT_S)
        with consumers(service, "a", "b") as (a, b):
            wait_until(lambda: (len(a.held), len(b.held)) == (1, 1), "one shard each")
            b.stop()
            os.kill(service.pid, signal.SIGSTOP)
            paused_s = time.monotonic()
            wait_until(lambda: time.monotonic() > paused_s + PAUSE_S, "a pause longer than the timeout")
            os.kill(service.pid, signal.SIGCONT)
            wait_until(lambda: len(a.held) == 2, "the shards of the dead consumer")
