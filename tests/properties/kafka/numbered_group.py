"""The production coordinator of Kafka groups as a table of numbered states.

``now`` is always 0: deadlines are relative, and `one_unit_later` moves them. The times of a member whose
request waits are dropped, since its session begins again with the answer.
"""

from dataclasses import dataclass, replace
from types import ModuleType

from loghub_service.kafka.coordinator import step as coordinator
from loghub_service.kafka.coordinator.facts import restore
from loghub_service.kafka.coordinator.group import (
    Group,
    GroupMember,
    KafkaGroupLimits,
    next_deadline,
)
from loghub_service.kafka.coordinator.requests import (
    Answer,
    Event,
    OffsetCommit,
    Outcome,
    PartitionsAnswer,
    PauseDetected,
    TimePassed,
)
from loghub_service.kafka.coordinator.states import KafkaGroupState, KafkaTrigger
from tests.loghub_service.kafka.coordinator.invariants import (
    as_facts,
    check_state,
    check_step,
    survivors,
    waiting,
)
from tests.properties.numbered_states import NumberedStates

SESSION, REBALANCE, DELAY = 2, 3, 1  # units of time; a unit is a second of the coordinator
LIMITS = KafkaGroupLimits(
    min_session_timeout_ms=1000,
    initial_rebalance_delay_ms=DELAY * 1000,
    offsets_retention_ms=0,
    max_members=4,
)
Answers = tuple[tuple[int, Answer], ...]


@dataclass(frozen=True, slots=True)
class Next:
    state: int
    answers: Answers


class NumberedKafkaGroup(NumberedStates[Group]):
    """``rules`` is `loghub_service.kafka.coordinator.step`, or a changed copy of it."""

    def __init__(self, rules: ModuleType = coordinator) -> None:
        super().__init__()
        self._rules = rules
        self.dead = self.number_of(Group(group_id="g"))

    def waiting(self, number: int) -> tuple[int, ...]:
        """The requests that wait."""
        return self.once(number, "waiting", lambda group: tuple(waiting(group)))

    def step(self, number: int, event: Event, request: int = 0) -> Next:
        return self.once(number, (event, request), lambda group: self._take(group, event, request))

    def one_unit_later(self, number: int) -> int:
        return self.once(number, "later", lambda group: self.number_of(_later(group, 1.0)))

    def is_tick_due(self, number: int) -> bool:
        deadline = next_deadline(self[number])
        return deadline is not None and deadline <= 0

    def tick(self, number: int) -> Next:
        return self.step(number, TimePassed())

    def pause(self, number: int) -> Next:
        """The service does not run for one unit."""
        return self.step(self.one_unit_later(number), PauseDetected(pause_s=1.0))

    def restart(self, number: int) -> int:
        """The service restarts from what is persisted."""
        return self.once(number, "restart", self._restarted)

    def _restarted(self, group: Group) -> int:
        new = restore("g", as_facts(survivors(group)), now=0.0)
        trigger = {
            KafkaGroupState.EMPTY: KafkaTrigger.RESTORED_EMPTY,
            KafkaGroupState.PREPARING_REBALANCE: KafkaTrigger.RESTORED_REBALANCING,
            KafkaGroupState.STABLE: KafkaTrigger.RESTORED_STABLE,
        }.get(new.state)
        if trigger is not None:
            self.coverage.rows[KafkaGroupState.DEAD, trigger, new.state] += 1
        check_state(new, LIMITS)
        assert survivors(new) == survivors(group), "the facts restore another group"
        assert new.generation == (group.generation if survivors(group)[0] else 0)
        return self.number_of(new)

    def _take(self, old: Group, event: Event, request: int) -> Next:
        done: Outcome = self._rules.step(old, event, now=0.0, request=request, limits=LIMITS)
        check_step(old, done, request=request)
        check_state(done.group, LIMITS)
        _check_offsets(old, event, done)
        self.coverage.events[type(event).__name__] += 1
        self.coverage.rows.update((t.old, t.trigger, t.new) for t in done.transitions)
        for _, answer in done.answers:
            self.coverage.refusals[answer.error] += 1
            if isinstance(answer, PartitionsAnswer):
                self.coverage.refusals.update(error for _, error in answer.partitions)
        return Next(self.number_of(done.group), done.answers)

    def canonical(self, group: Group) -> tuple[object, Group]:
        members = tuple(replace(m, expires_s=m.session_end_s or 0.0) for m in group.members.values())
        key = (
            (group.state, group.generation, group.protocol_type, group.protocol, group.leader),
            members,
            tuple(group.pending.items()),
            tuple(group.offsets.items()),
            (group.rebalance_end_s, group.initial_end_s, group.joined_in_delay),
            (group.unsynced, group.sync_end_s, group.empty_since_unix_ms),
        )
        return key, replace(group, members={m.member_id: m for m in members})


def _check_offsets(old: Group, event: Event, done: Outcome) -> None:
    """Only a commit of the present generation, or of nobody while nobody is a member, changes an offset."""
    new = done.group
    if new.state is KafkaGroupState.DEAD or new.offsets == old.offsets:
        return
    if isinstance(event, OffsetCommit):
        is_member = event.member_id in old.members and event.generation == old.generation
        is_outside = event.generation < 0 and not old.members
        assert is_member or is_outside, "a commit of another generation changed an offset"
        assert old.state is not KafkaGroupState.COMPLETING_REBALANCE
    else:
        assert old.state is KafkaGroupState.EMPTY, f"{type(event).__name__} changed an offset"


def _later(group: Group, by: float) -> Group:
    def moved(time: float | None) -> float | None:
        return None if time is None else time - by

    def older(member: GroupMember) -> GroupMember:
        return member if member.session_end_s is None else replace(member, expires_s=member.expires_s - by)

    return replace(
        group,
        members={member_id: older(member) for member_id, member in group.members.items()},
        pending={member_id: end - by for member_id, end in group.pending.items()},
        rebalance_end_s=moved(group.rebalance_end_s),
        initial_end_s=moved(group.initial_end_s),
        sync_end_s=moved(group.sync_end_s),
    )
