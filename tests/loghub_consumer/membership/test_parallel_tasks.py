"""Tasks of different keys run side by side, those of one key one after the other."""

import threading
from collections.abc import Callable, Iterator

import pytest

from loghub_consumer.membership.shard_manager import ParallelTasks
from tests.support import wait_until

LIMIT = 3


class Held:
    """Tasks that wait until they are let go, and what has begun so far."""

    def __init__(self) -> None:
        self.tasks = ParallelTasks(LIMIT)
        self.begun: list[str] = []
        self._gates: dict[str, threading.Event] = {}

    def start(self, key: str, name: str = "") -> bool:
        name = name or key
        gate = self._gates[name] = threading.Event()
        return self.tasks.start(key, lambda: self._wait(name, gate))

    def _wait(self, name: str, gate: threading.Event) -> None:
        self.begun.append(name)
        gate.wait(60)

    def let_go(self, *names: str) -> None:
        for name in names or tuple(self._gates):
            self._gates[name].set()


@pytest.fixture
def held() -> Iterator[Held]:
    one = Held()
    yield one
    one.let_go()
    one.tasks.stop(60)


def eventually(condition: Callable[[], bool]) -> None:
    wait_until(condition, "the tasks")


def test_no_more_tasks_than_the_limit_are_under_way(held: Held) -> None:
    assert all(held.start(key) for key in "abcde")
    eventually(lambda: sorted(held.begun) == ["a", "b", "c"])
    held.let_go("b")
    eventually(lambda: held.begun[3:] == ["d"])


def test_one_that_hangs_holds_up_none_of_the_others(held: Held) -> None:
    held.start("a")
    for key in "bcdef":
        held.start(key)
        held.let_go(key)
    eventually(lambda: sorted(held.begun) == list("abcdef"))
    assert not held.start("a", "again")


def test_a_key_is_refused_until_its_task_has_ended(held: Held) -> None:
    held.start("a")
    assert not held.start("a", "again")
    held.let_go("a")
    eventually(lambda: held.start("a", "again"))
    eventually(lambda: held.begun == ["a", "again"])


def test_who_wants_a_key_alone_waits_for_its_task_and_keeps_others_out(held: Held) -> None:
    held.start("a")
    inside, leave = threading.Event(), threading.Event()

    def be_alone() -> None:
        with held.tasks.alone("a"):
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=be_alone)
    thread.start()
    eventually(lambda: held.begun == ["a"])
    assert not inside.is_set()
    held.let_go("a")
    assert inside.wait(60)
    assert not held.start("a", "again")
    leave.set()
    thread.join()
    assert held.start("a", "again")


def test_after_the_stop_nothing_begins_and_what_waits_is_dropped(held: Held) -> None:
    for key in "abcd":
        held.start(key)
    eventually(lambda: len(held.begun) == LIMIT)
    held.tasks.stop(0.0)
    held.let_go()
    held.tasks.stop(60)
    assert (sorted(held.begun), held.start("e")) == (["a", "b", "c"], False)


def test_who_waits_for_keys_goes_on_when_their_tasks_have_ended(held: Held) -> None:
    for key in "ab":
        held.start(key)
    ended = threading.Event()

    def wait() -> None:
        held.tasks.wait_for({"a", "none"})
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: len(held.begun) == 2)
    assert not ended.is_set()
    held.let_go("a")
    assert ended.wait(60)
    thread.join()
