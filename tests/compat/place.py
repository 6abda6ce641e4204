"""A service, a logstore and consumers for one test, and what the service says of them."""

import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loghub.client.http import HttpLogHub
from loghub.wire.loggroup import Log, LogGroup, encode
from tests.compat.consumers import Consumers, ServiceOnPort80, consumers_of
from tests.compat.sdk import GROUP, LOGSTORE, PROJECT
from tests.support import wait_until

GUARD_S = 120.0


class Place:
    """A service, its logstore, and the consumers of a test."""

    def __init__(self, service: ServiceOnPort80, consumers: Consumers) -> None:
        self.service = service
        self.consumers = consumers
        self.client = HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)
        self.client.create_project()
        self._next = 0

    def create(self, *, shards: int) -> None:
        self.client.create_logstore(LOGSTORE, shards=shards)

    def write(self, count: int, *, logs: int = 10) -> set[str]:
        """``count`` log groups to random keys; returns their lines, each of which is unique."""
        written: set[str] = set()
        for _ in range(count):
            lines = [f"line {self._next + number}" for number in range(logs)]
            self._next += logs
            group = LogGroup(logs=tuple(Log(time=1_700_000_000, contents=(("line", one),)) for one in lines))
            self.client.put_logs(LOGSTORE, encode(group), hash_key=secrets.token_hex(16))
            written.update(lines)
        return written

    def held(self, group: str = GROUP) -> dict[str, int]:
        """How many shards each consumer that the group knows holds and reports."""
        if group not in {each.name for each in self.client.list_groups(LOGSTORE)}:
            return {}  # the first consumer creates it
        status = self.client.group_status(LOGSTORE, group)
        return {
            one.name: len(one.owned)
            for one in status.consumers
            if set(one.owned) == set(one.held) or not one.owned
        }

    def names(self) -> set[str]:
        """The consumers that the group knows."""
        return {one.name for one in self.client.group_status(LOGSTORE, GROUP).consumers}

    def wait_held(self, *counts: int, names: str = "", group: str = GROUP) -> None:
        """Until the group has consumers, of these names if any, that hold so many shards each."""

        def is_so() -> bool:
            held = self.held(group)
            return sorted(held.values()) == sorted(counts) and (not names or set(held) == set(names))

        wait_until(is_so, f"shards held {counts}", guard_s=GUARD_S)

    def states(self, group: str = GROUP) -> dict[int, str]:
        return {one.shard: one.state for one in self.client.group_status(LOGSTORE, group).shards}

    def repeated(self) -> int:
        """How many lines were consumed more than once, each time counted."""
        return sum(count - 1 for count in Counter(self.consumers.lines).values())

    def wait_for_a_heartbeat(self, name: str) -> None:
        """Until the service has answered another heartbeat of this consumer."""

        def age_s() -> float:
            status = self.client.group_status(LOGSTORE, GROUP)
            return next(one.last_heartbeat_age_s for one in status.consumers if one.name == name)

        ages = [age_s()]

        def is_younger() -> bool:
            ages.append(age_s())
            return ages[-1] < ages[-2]

        wait_until(is_younger, f"a heartbeat of {name}", guard_s=GUARD_S)


@contextmanager
def a_place(folder: Path) -> Iterator[Place]:
    """On a loopback address of its own, since Java needs port 80."""
    numbers = (secrets.randbelow(250) + 2 for _ in range(3))
    service = ServiceOnPort80(folder / "service", address=".".join(map(str, (127, *numbers))))
    service.folder.mkdir()
    service.start()
    try:
        with consumers_of(service, folder) as consumers:
            yield Place(service, consumers)
    finally:
        if service.running:
            service.kill9()
