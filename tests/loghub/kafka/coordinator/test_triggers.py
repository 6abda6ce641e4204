"""Each change of a group's state names its cause, which the service logs."""

from collections.abc import Callable

import pytest

from loghub.kafka.coordinator.events import Cleanup
from loghub.kafka.coordinator.group import Limits, Protocol, Transition
from loghub.kafka.coordinator.states import GroupState, Trigger
from tests.loghub.kafka.coordinator.driver import REBALANCE_MS, SESSION_MS, Driver

OTHER = (Protocol("range", b"other"), Protocol("sticky", b""))
STICKY = (Protocol("sticky", b""),)


def stable(**fields: object) -> Driver:
    group = Driver()
    group.stable("a", "b", **fields)
    return group


def completing(**fields: object) -> Driver:
    group = Driver()
    group.rejoin("a", "b", **fields)
    return group


def alone(limits: Limits | None = None, **fields: object) -> Driver:
    group = Driver(limits)
    group.start_join("a", **fields)
    return group


def _first_join() -> Driver:
    return alone()


def _initial_delay() -> Driver:
    group = alone(Limits(initial_rebalance_delay_ms=1000))
    group.wait(1)
    return group


def _leader_assigns() -> Driver:
    group = alone()
    group.assign()
    return group


def _rebalance_timeout() -> Driver:
    group = stable()
    group.start_join("c")
    for _ in range(12):
        group.wait(REBALANCE_MS / 12_000 - 0.01)
        group.heartbeat("a", generation=2)
    group.wait(1)
    return group


def _silence(group: Driver) -> Driver:
    group.wait(SESSION_MS / 1000)
    return group


def _no_sync(*, assigned: bool) -> Driver:
    group = completing()
    if assigned:
        group.assign()
    for _ in range(13):
        group.wait(4.99)
        group.heartbeat("b")
        group.heartbeat("a")
    return group


def _then(group: Driver, act: Callable[[Driver], object]) -> Driver:
    act(group)
    return group


def _static(group: Driver) -> Driver:
    group.start_join("a2", protocols=STICKY, group_instance_id="i")
    return group


CASES: dict[str, tuple[Callable[[], Driver], list[Trigger]]] = {
    "first join": (_first_join, [Trigger.CREATED, Trigger.MEMBER_JOINED, Trigger.ALL_JOINED]),
    "initial delay": (_initial_delay, [Trigger.INITIAL_DELAY_OVER]),
    "leader assigns": (_leader_assigns, [Trigger.LEADER_ASSIGNED]),
    "rebalance timeout": (_rebalance_timeout, [Trigger.REBALANCE_TIMED_OUT]),
    "join while stable": (lambda: _then(stable(), lambda g: g.start_join("c")), [Trigger.MEMBER_JOINED]),
    "join while completing": (
        lambda: _then(completing(), lambda g: g.start_join("c")),
        [Trigger.MEMBER_JOINED],
    ),
    "metadata while stable": (
        lambda: _then(stable(), lambda g: g.start_join("", member_id="b", protocols=OTHER)),
        [Trigger.METADATA_CHANGED],
    ),
    "metadata of the leader": (
        lambda: _then(stable(), lambda g: g.start_join("", member_id="a", protocols=OTHER)),
        [Trigger.METADATA_CHANGED],
    ),
    "metadata while completing": (
        lambda: _then(completing(), lambda g: g.start_join("", member_id="b", protocols=OTHER)),
        [Trigger.METADATA_CHANGED],
    ),
    "leader rejoins": (
        lambda: _then(stable(), lambda g: g.start_join("", member_id="a")),
        [Trigger.LEADER_REJOINED],
    ),
    "leave while stable": (lambda: _then(stable(), lambda g: g.leave(("b", None))), [Trigger.MEMBER_LEFT]),
    "leave while completing": (
        lambda: _then(completing(), lambda g: g.leave(("b", None))),
        [Trigger.MEMBER_LEFT],
    ),
    "all leave": (
        lambda: _then(stable(), lambda g: g.leave(("b", None), ("a", None))),
        [Trigger.MEMBER_LEFT, Trigger.NOBODY_LEFT],
    ),
    "silence while stable": (
        lambda: _silence(stable()),
        [Trigger.SESSION_TIMED_OUT, Trigger.NOBODY_LEFT],
    ),
    "silence while completing": (
        lambda: _silence(completing()),
        [Trigger.SESSION_TIMED_OUT, Trigger.NOBODY_LEFT],
    ),
    "no sync while stable": (lambda: _no_sync(assigned=True), [Trigger.SYNC_TIMED_OUT]),
    "static member while stable": (
        lambda: _static(alone_assigned()),
        [Trigger.STATIC_MEMBER_REPLACED, Trigger.ALL_JOINED],
    ),
    "static member while completing": (
        lambda: _static(alone(protocols=OTHER, group_instance_id="i")),
        [Trigger.STATIC_MEMBER_REPLACED, Trigger.ALL_JOINED],
    ),
    "deletion": (lambda: _then(committed(), lambda g: g.delete()), [Trigger.DELETED]),
    "expiry": (lambda: _then(committed(), _expire), [Trigger.NOTHING_TO_KEEP]),
    "commit": (lambda: committed(), [Trigger.CREATED]),
}


def alone_assigned() -> Driver:
    group = alone(protocols=OTHER, group_instance_id="i")
    group.assign()
    return group


def committed() -> Driver:
    group = Driver()
    group.commit(5)
    return group


def _expire(group: Driver) -> None:
    group.apply(Cleanup(unix_ms=1))
    group.apply(Cleanup(unix_ms=1 << 40))


@pytest.mark.parametrize(("story", "triggers"), CASES.values(), ids=CASES)
def test_the_last_change_names_its_cause(story: Callable[[], Driver], triggers: list[Trigger]) -> None:
    changes = story().changes
    assert [change.trigger for change in changes[-len(triggers) :]] == triggers


def test_a_change_names_the_group_and_how_many_members_its_generation_has() -> None:
    changed = completing().changes[-1]
    assert changed == Transition(
        group_id="g",
        old=GroupState.PREPARING_REBALANCE,
        new=GroupState.COMPLETING_REBALANCE,
        trigger=Trigger.ALL_JOINED,
        generation=2,
        members=2,
    )
