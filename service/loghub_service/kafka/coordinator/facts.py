"""The parts of a group that survive a restart of the service, as facts, and the group that they restore.

A fact replaces an earlier one of the same subject. `changes` derives the facts of a step from the states
before and after it, so nothing durable can be forgotten by a rule. `restore` makes a group from the latest
facts; state that it cannot know begins again (docs/kafka-groups.md 4):

- Waiting requests and member ids that have not joined yet are gone: their clients ask again.
- A member that no generation includes yet is not durable. It joins again.
- Every session starts again, since how long a member was silent is not known.
- A group in CompletingRebalance comes back in PreparingRebalance with the generation that it had, which is
  therefore never used for another assignment.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, compress, repeat
from operator import is_, not_

from loghub_service.kafka.coordinator.group import (
    CommittedOffset,
    Group,
    GroupMember,
    MemberInfo,
    TopicPartition,
)
from loghub_service.kafka.coordinator.states import KafkaGroupState, KafkaTrigger, transition


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupSaved:
    """The group itself. ``state`` is one of Empty, PreparingRebalance and Stable."""

    state: KafkaGroupState
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    empty_since_unix_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForgotten:
    """The group is gone, with its members and offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSaved:
    info: MemberInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberForgotten:
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSaved:
    partition: TopicPartition
    committed: CommittedOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForgotten:
    partition: TopicPartition


Offsets = Mapping[TopicPartition, CommittedOffset]
Fact = KafkaGroupSaved | GroupForgotten | MemberSaved | MemberForgotten | OffsetSaved | OffsetForgotten


def durable(group: Group) -> KafkaGroupSaved | None:
    """The group's own fact; None if it has no generation and no offsets, because then nothing would be
    missed, as for a group that does not exist."""
    if group.generation == 0 and not group.offsets:
        return None
    members = [m.member_id for m in group.members.values() if not m.is_new]
    state = KafkaGroupState.EMPTY
    if members:
        is_stable = group.state is KafkaGroupState.STABLE
        state = KafkaGroupState.STABLE if is_stable else KafkaGroupState.PREPARING_REBALANCE
    return KafkaGroupSaved(
        state=state,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol if members else None,
        leader=group.leader if group.leader in members else None,
        empty_since_unix_ms=group.empty_since_unix_ms,
    )


def changes(old: Group, new: Group, changed_members: Collection[str]) -> tuple[Fact, ...]:
    """The difference that must be durable; sessions and waiting requests are not part of it.

    ``changed_members`` are the ids of members that came, went, or have another `MemberInfo`.
    """
    if not changed_members and old.offsets is new.offsets and _head(old) == _head(new):
        return ()  # a heartbeat
    before, after = durable(old), durable(new)
    if after is None:
        return () if before is None else (GroupForgotten(),)
    facts: list[Fact] = [] if before == after else [after]
    for member_id in changed_members:
        old_info, new_info = _durable_info(old, member_id), _durable_info(new, member_id)
        if old_info != new_info:
            facts.append(
                MemberForgotten(member_id=member_id) if new_info is None else MemberSaved(info=new_info)
            )
    if old.offsets is not new.offsets:
        facts += _changed_offsets(old.offsets, new.offsets)
    return tuple(facts)


def _changed_offsets(old: Offsets, new: Offsets) -> list[Fact]:
    """The changed offsets. A commit moves few of many offsets and adds some at the end: they are found
    without hashing a key."""
    if all(map(is_, old, new)) and len(old) <= len(new):
        same = chain(map(is_, old.values(), new.values()), repeat(False))
        changed = compress(new.items(), map(not_, same))
        return [OffsetSaved(partition=p, committed=committed) for p, committed in changed]
    return [
        *(OffsetForgotten(partition=p) for p in old if p not in new),
        *(
            OffsetSaved(partition=p, committed=committed)
            for p, committed in new.items()
            if old.get(p) is not committed
        ),
    ]


def _head(group: Group) -> tuple[object, ...]:
    names = (group.protocol_type, group.protocol, group.leader)
    return (group.state, group.generation, group.empty_since_unix_ms, names)


def _durable_info(group: Group, member_id: str) -> MemberInfo | None:
    member = group.members.get(member_id)
    return None if member is None or member.is_new else member.info


def restore(group_id: str, facts: Iterable[Fact], *, now: float) -> Group:
    """The group after a restart. ``facts`` are all facts of its life in order, or the newest fact of each
    subject with the group's own fact first."""
    saved: KafkaGroupSaved | None = None
    members: dict[str, MemberInfo] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
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
    if saved is None:
        return Group(group_id=group_id)
    group = Group(
        group_id=group_id,
        state=transition(KafkaGroupState.DEAD, _RESTORED[saved.state]),
        generation=saved.generation,
        protocol_type=saved.protocol_type,
        protocol=saved.protocol,
        leader=saved.leader,
        members={
            info.member_id: GroupMember(info=info, expires_s=now + info.session_timeout_ms / 1000)
            for info in members.values()
        },
        offsets=offsets,
        empty_since_unix_ms=saved.empty_since_unix_ms,
    )
    if group.state is KafkaGroupState.PREPARING_REBALANCE:
        max_ms = max(info.rebalance_timeout_ms for info in members.values())
        group = replace(group, rebalance_end_s=now + max_ms / 1000)
    return group


_RESTORED = {
    KafkaGroupState.EMPTY: KafkaTrigger.RESTORED_EMPTY,
    KafkaGroupState.PREPARING_REBALANCE: KafkaTrigger.RESTORED_REBALANCING,
    KafkaGroupState.STABLE: KafkaTrigger.RESTORED_STABLE,
}
