"""Each change of a group's state names its cause, which the service logs."""

from collections.abc import Callable

import pytest

from loghub_service.kafka.coordinator.group import KafkaGroupLimits, KafkaTransition, MemberProtocol
from loghub_service.kafka.coordinator.requests import Cleanup
from loghub_service.kafka.coordinator.states import KafkaGroupState, KafkaTrigger
from tests.loghub_service.kafka.coordinator.driver import REBALANCE_MS, SESSION_MS, Driver

OTHER = (MemberProtocol("range", b"other"), MemberProtocol("sticky", b""))
STICKY = (MemberProtocol("sticky", b""),)


def stable(**fields: object) -> Driver:
    group = Driver()
    group.stable("a", "b", **fields)
    return group


def completing(**fields: object) -> Driver:
    group = Driver()
    group.rejoin("a", "b", **fields)
    return group


def alone(limits: KafkaGroupLimits | None = None, **fields: object) -> Driver:
    group = Driver(limits)
    group.start_join("a", **fields)
    return group


def _first_join() -> Driver:
    return alone()


def _initial_delay() -> Driver:
    group = alone(KafkaGroupLimits(initial_rebalance_delay_ms=1000))
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


CASES: dict[str, tuple[Callable[[], Driver], list[KafkaTrigger]]] = {
    "first join": (_first_join, [KafkaTrigger.CREATED, KafkaTrigger.MEMBER_JOINED, KafkaTrigger.ALL_JOINED]),
    "initial delay": (_initial_delay, [KafkaTrigger.INITIAL_DELAY_OVER]),
    "leader assigns": (_leader_assigns, [KafkaTrigger.LEADER_ASSIGNED]),
    "rebalance timeout": (_rebalance_timeout, [KafkaTrigger.REBALANCE_TIMED_OUT]),
    "join while stable": (lambda: _then(stable(), lambda g: g.start_join("c")), [KafkaTrigger.MEMBER_JOINED]),
    "join while completing": (
        lambda: _then(completing(), lambda g: g.start_join("c")),
        [KafkaTrigger.MEMBER_JOINED],
    ),
    "metadata while stable": (
        lambda: _then(stable(), lambda g: g.start_join("", member_id="b", protocols=OTHER)),
        [KafkaTrigger.METADATA_CHANGED],
    ),
    "metadata of the leader": (
        lambda: _then(stable(), lambda g: g.start_join("", member_id="a", protocols=OTHER)),
        [KafkaTrigger.METADATA_CHANGED],
    ),
    "metadata while completing": (
        lambda: _then(completing(), lambda g: g.start_join("", member_id="b", protocols=OTHER)),
        [KafkaTrigger.METADATA_CHANGED],
    ),
    "leader rejoins": (
        lambda: _then(stable(), lambda g: g.start_join("", member_id="a")),
        [KafkaTrigger.LEADER_REJOINED],
    ),
    "leave while stable": (
        lambda: _then(stable(), lambda g: g.leave(("b", None))),
        [KafkaTrigger.MEMBER_LEFT],
    ),
    "leave while completing": (
        lambda: _then(completing(), lambda g: g.leave(("b", None))),
        [KafkaTrigger.MEMBER_LEFT],
    ),
    "all leave": (
        lambda: _then(stable(), lambda g: g.leave(("b", None), ("a", None))),
        [KafkaTrigger.MEMBER_LEFT, KafkaTrigger.NOBODY_LEFT],
    ),
    "silence while stable": (
        lambda: _silence(stable()),
        [KafkaTrigger.SESSION_TIMED_OUT, KafkaTrigger.NOBODY_LEFT],
    ),
    "silence while completing": (
        lambda: _silence(completing()),
        [KafkaTrigger.SESSION_TIMED_OUT, KafkaTrigger.NOBODY_LEFT],
    ),
    "no sync while stable": (lambda: _no_sync(assigned=True), [KafkaTrigger.SYNC_TIMED_OUT]),
    "static member while stable": (
        lambda: _static(alone_assigned()),
        [KafkaTrigger.STATIC_MEMBER_REPLACED, KafkaTrigger.ALL_JOINED],
    ),
    "static member while completing": (
        lambda: _static(alone(protocols=OTHER, group_instance_id="i")),
        [KafkaTrigger.STATIC_MEMBER_REPLACED, KafkaTrigger.ALL_JOINED],
    ),
    "deletion": (lambda: _then(committed(), lambda g: g.delete()), [KafkaTrigger.DELETED]),
    "expiry": (lambda: _then(committed(), _expire), [KafkaTrigger.NOTHING_TO_KEEP]),
    "commit": (lambda: committed(), [KafkaTrigger.CREATED]),
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
def test_the_last_change_names_its_cause(story: Callable[[], Driver], triggers: list[KafkaTrigger]) -> None:
    changes = story().changes
    assert [change.trigger for change in changes[-len(triggers) :]] == triggers


def test_a_change_names_the_group_and_how_many_members_its_generation_has() -> None:
    changed = completing().changes[-1]
    assert changed == KafkaTransition(
        group_id="g",
        old=KafkaGroupState.PREPARING_REBALANCE,
        new=KafkaGroupState.COMPLETING_REBALANCE,
        trigger=KafkaTrigger.ALL_JOINED,
        generation=2,
        members=2,
    )
