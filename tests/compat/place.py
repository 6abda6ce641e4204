"""A service, a logstore and consumers for one test, and what the service says of them."""

import threading
from collections.abc import Callable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path

from loghub.client.http import HttpLogHub
from loghub.client.port import GroupInfo
from loghub.wire.loggroup import Log, LogGroup, encode
from tests.compat import mixed_logs
from tests.compat.consumers import Consumers, ServiceOnPort80, consumers_of, loopback_address
from tests.compat.sdk import GROUP, LOGSTORE, PROJECT
from tests.support import wait_until

GUARD_S = 120.0
ASK_EVERY_S = 0.1  # an answer of the service costs more CPU time than a heartbeat
SMALL_GROUP = 20  # logs in each group of a producer that writes meanwhile
MORE_GROUPS = 20  # at keys that are spread evenly, so that each eighth of the keys gets some


class Place:
    """A service, its logstore, and the consumers of a test, which together get ``volume`` logs."""

    def __init__(self, service: ServiceOnPort80, consumers: Consumers, *, volume: int) -> None:
        self.volume = volume
        self.written = 0
        self._logs_in_a_group = 1
        self._kinds = cycle(range(mixed_logs.KINDS))
        self._groups = count()
        self.service = service
        self.consumers = consumers
        self.client = HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)
        self.client.create_project()

    def create(self, *, shards: int, groups: int) -> None:
        """The logstore of a test that writes at least so many log groups, by which its volume is divided."""
        self.client.create_logstore(LOGSTORE, shards=shards)
        self._logs_in_a_group = -(-self.volume // groups)

    def write(self, groups: int, *, logs: int = 0) -> set[int]:
        """Write log groups of every kind to keys that are spread evenly (`_spread_key`); returns their logs,
        each of which is a number of its own. ``logs`` of each group; 0 is its part of the volume."""
        first = self.written
        for _ in range(groups):
            numbers = range(self.written, self.written + (logs or self._logs_in_a_group))
            self.consumers.texts.update(mixed_logs.texts(numbers, next(self._kinds)))
            lines = map(self.consumers.text, numbers)
            group = LogGroup(logs=tuple(Log(time=1_700_000_000, contents=(("n", n),)) for n in lines))
            self.client.put_logs(LOGSTORE, encode(group), hash_key=_spread_key(next(self._groups)))
            self.written = numbers.stop
        return set(range(first, self.written))

    @contextmanager
    def writing(self) -> Iterator[Callable[[], None]]:
        """A producer writes small log groups, one after the other, until the block ends. The value is a
        function that waits until it has written some more."""
        end = threading.Event()

        def produce() -> None:
            while not end.is_set():
                self.write(1, logs=SMALL_GROUP)

        def wait() -> None:
            goal = self.written + MORE_GROUPS * SMALL_GROUP
            wait_until(lambda: self.written >= goal or producer.done(), "the producer", guard_s=GUARD_S)

        with ThreadPoolExecutor(1) as pool:
            producer = pool.submit(produce)
            try:
                yield wait
            finally:
                end.set()
            producer.result()

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

    def wait_held(self, *counts: int, names: str = "", group: str = GROUP, guard_s: float = GUARD_S) -> None:
        """Until the group has consumers, of these names if any, that hold so many shards each."""

        def is_so() -> bool:
            held = self.held(group)
            return sorted(held.values()) == sorted(counts) and (not names or set(held) == set(names))

        wait_until(is_so, f"shards held {counts}", guard_s=guard_s, every_s=ASK_EVERY_S)

    def states(self, group: str = GROUP) -> dict[int, str]:
        return {one.shard: one.state for one in self.client.group_status(LOGSTORE, group).shards}

    def holders(self) -> dict[int, str]:
        """Who holds each shard that has a holder."""
        status = self.client.group_status(LOGSTORE, GROUP)
        return {one.shard: one.holder for one in status.shards if one.holder}

    def change_group(self, *, timeout_s: int, order: bool) -> None:
        self.client.update_group(LOGSTORE, GroupInfo(name=GROUP, timeout_s=timeout_s, order=order))

    def silent_s(self, name: str) -> float:
        """How long ago the last heartbeat of this consumer was."""
        status = self.client.group_status(LOGSTORE, GROUP)
        ages = {one.name: one.last_heartbeat_age_s for one in status.consumers}
        assert name in ages, f"the group has lost {name}"
        return ages[name]

    def repeated(self) -> int:
        """How often a log was consumed again."""
        seen = self.consumers.seen
        return seen.total() - len(seen)

    def wait_consumed_once(self, written: Set[int]) -> None:
        """Until each log was consumed and the checkpoints say so; fails if one was consumed again."""
        self.consumers.wait_for(written)

        def lags() -> set[int | None]:
            return {one.lag_logs for one in self.client.group_status(LOGSTORE, GROUP).shards}

        wait_until(
            lambda: lags() == {0}, "the checkpoints to reach the ends", guard_s=GUARD_S, every_s=ASK_EVERY_S
        )
        assert self.repeated() == 0

    def wait_for_a_heartbeat(self, name: str) -> None:
        """Until the service has answered another heartbeat of this consumer."""
        ages = [self.silent_s(name)]

        def is_younger() -> bool:
            ages.append(self.silent_s(name))
            return ages[-1] < ages[-2]

        wait_until(is_younger, f"a heartbeat of {name}", guard_s=GUARD_S, every_s=ASK_EVERY_S)


def _spread_key(number: int) -> str:
    """The hash key of a log group: by the golden ratio, so that numbers in a row are far from each other. Of
    random keys, ten in a row would miss a quarter of the keys in 6 of 100 runs."""
    return f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC834 % (1 << 128):032x}"


@contextmanager
def a_place(folder: Path, *, volume: int) -> Iterator[Place]:
    """On a loopback address of its own, since Java needs port 80. A test that writes less than its volume
    fails."""
    service = ServiceOnPort80(folder / "service", address=loopback_address())
    service.folder.mkdir()
    service.start()
    try:
        with consumers_of(service, folder) as consumers:
            place = Place(service, consumers, volume=volume)
            yield place
            consumers.check_texts()
            assert place.written >= volume, "the test writes less than its volume"
    finally:
        if service.running:
            service.kill9()
