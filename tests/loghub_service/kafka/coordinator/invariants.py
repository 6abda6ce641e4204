"""What holds for every Kafka group, and for every step of its coordinator."""

from loghub_service.kafka.coordinator.facts import (
    Fact,
    GroupForgotten,
    KafkaGroupSaved,
    MemberForgotten,
    MemberSaved,
    OffsetForgotten,
    OffsetSaved,
    durable,
)
from loghub_service.kafka.coordinator.group import (
    CommittedOffset,
    Group,
    KafkaGroupLimits,
    MemberInfo,
    TopicPartition,
)
from loghub_service.kafka.coordinator.rebalance import common_protocols
from loghub_service.kafka.coordinator.requests import Outcome
from loghub_service.kafka.coordinator.states import KafkaGroupState, transition

Survivors = tuple[KafkaGroupSaved | None, dict[str, MemberInfo], dict[TopicPartition, CommittedOffset]]


def waiting(group: Group) -> list[int]:
    """The numbers of the requests that wait."""
    members = group.members.values()
    return [r for m in members for r in (m.join_request, m.sync_request) if r is not None]


def survivors(group: Group) -> Survivors:
    """What must be the same after a restart."""
    if durable(group) is None:
        return None, {}, {}
    members = {m.member_id: m.info for m in group.members.values() if not m.is_new}
    return durable(group), members, dict(group.offsets)


def with_facts(before: Survivors, facts: tuple[Fact, ...]) -> Survivors:
    """What is persisted after these facts."""
    saved, members, offsets = before[0], dict(before[1]), dict(before[2])
    for fact in facts:
        match fact:
            case KafkaGroupSaved():
                saved = fact
            case GroupForgotten():
                saved, members, offsets = None, {}, {}
            case MemberSaved(info=info):
                members[info.member_id] = info
            case MemberForgotten(member_id=member_id):
                del members[member_id]
            case OffsetSaved(partition=partition, committed=committed):
                offsets[partition] = committed
            case OffsetForgotten(partition=partition):
                del offsets[partition]
    return saved, members, offsets


def as_facts(persisted: Survivors) -> list[Fact]:
    saved, members, offsets = persisted
    facts: list[Fact] = [] if saved is None else [saved]
    facts += [MemberSaved(info=info) for info in members.values()]
    facts += [OffsetSaved(partition=p, committed=committed) for p, committed in offsets.items()]
    return facts


def check_state(group: Group, limits: KafkaGroupLimits) -> None:
    members = list(group.members.values())
    assert [m.member_id for m in members] == list(group.members)
    assert not set(group.members) & set(group.pending), "a member's id is pending as well"
    instances = [m.info.group_instance_id for m in members if m.is_static]
    assert len(instances) == len(set(instances)), "two members have one instance id"
    assert len(waiting(group)) == len(set(waiting(group))), "two waiting requests have one number"
    assert len(members) + len(group.pending) <= limits.max_members
    assert len(group.offsets) <= limits.max_offsets
    assert not members or common_protocols(members), "the members have no protocol in common"
    assert group.leader is None or group.leader in group.members
    assert group.unsynced <= set(group.members)
    assert group.initial_end_s is None or group.rebalance_end_s is not None
    _CHECKS[group.state](group)


def _dead(group: Group) -> None:
    assert group == Group(group_id=group.group_id), "something of a group that does not exist is left"


def _empty(group: Group) -> None:
    assert not group.members
    assert (group.protocol, group.leader) == (None, None)
    assert (group.rebalance_end_s, group.sync_end_s) == (None, None)


def _preparing(group: Group) -> None:
    assert group.members
    assert group.rebalance_end_s is not None, "nothing ends the joining"
    assert (group.sync_end_s, group.unsynced) == (None, frozenset())
    assert all(m.sync_request is None for m in group.members.values())


def _completing(group: Group) -> None:
    _has_generation(group)
    assert group.leader in group.unsynced
    assert group.sync_end_s is not None, "nothing ends the waiting for the leader"
    assert all(not m.info.assignment for m in group.members.values())


def _stable(group: Group) -> None:
    _has_generation(group)
    assert all(m.sync_request is None for m in group.members.values())
    assert bool(group.unsynced) == (group.sync_end_s is not None)


def _has_generation(group: Group) -> None:
    assert group.generation > 0
    assert group.leader in group.members
    assert group.protocol in common_protocols(group.members.values())
    assert group.rebalance_end_s is None
    assert all(m.join_request is None and not m.is_new for m in group.members.values())


_CHECKS = {
    KafkaGroupState.DEAD: _dead,
    KafkaGroupState.EMPTY: _empty,
    KafkaGroupState.PREPARING_REBALANCE: _preparing,
    KafkaGroupState.COMPLETING_REBALANCE: _completing,
    KafkaGroupState.STABLE: _stable,
}


def check_step(old: Group, outcome: Outcome, *, request: int) -> None:
    """``request`` is that of the event, 0 if it was none."""
    new = outcome.group
    asked = [*waiting(old), *([request] if request else [])]
    answered = [number for number, _ in outcome.answers]
    assert sorted([*answered, *waiting(new)]) == sorted(asked), "a request is lost, or answered twice"
    state = old.state
    for change in outcome.transitions:
        assert change.old is state
        state = transition(state, change.trigger)
        assert change.new is state
    assert state is new.state
    if KafkaGroupState.DEAD not in (old.state, new.state):
        assert old.generation <= new.generation <= old.generation + 1, "the generation fell, or skipped one"
    assert with_facts(survivors(old), outcome.facts) == survivors(new), "a change is missing from the facts"
