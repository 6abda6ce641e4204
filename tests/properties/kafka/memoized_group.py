"""The production coordinator of Kafka groups as a table of numbered states, for searches over many systems.

Each state of the group gets a number and each step is taken, and checked, once; afterwards it is a lookup.
``now`` is always 0: deadlines are relative, and `one_unit_later` moves them. The times of a member whose
request waits are dropped, since its session begins again with the answer.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import ModuleType

from loghub_service.kafka.coordinator import step as coordinator
from loghub_service.kafka.coordinator.facts import restore
from loghub_service.kafka.coordinator.group import (
    Group,
    GroupErrorCode,
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

SESSION, REBALANCE, DELAY = 2, 3, 1  # units of time; a unit is a second of the coordinator
LIMITS = KafkaGroupLimits(
    min_session_timeout_ms=1000,
    initial_rebalance_delay_ms=DELAY * 1000,
    offsets_retention_ms=0,
    max_members=4,
)
Answers = tuple[tuple[int, Answer], ...]
Row = tuple[KafkaGroupState, KafkaTrigger, KafkaGroupState]


@dataclass
class Coverage:
    """How many different steps applied each kind of event, used each row of the table, and answered with each
    error."""

    events: Counter[str] = field(default_factory=Counter)
    rows: Counter[Row] = field(default_factory=Counter)
    errors: Counter[GroupErrorCode] = field(default_factory=Counter)

    def add(self, other: "Coverage") -> None:
        self.events += other.events
        self.rows += other.rows
        self.errors += other.errors


@dataclass(frozen=True, slots=True)
class Next:
    state: int
    answers: Answers


class MemoizedGroup:
    """Numbered states of one group. ``rules`` is `loghub_service.kafka.coordinator.step`, or a changed copy
    of it."""

    def __init__(self, rules: ModuleType = coordinator) -> None:
        self.coverage = Coverage()
        self._rules = rules
        self._states: list[Group] = []
        self._waiting: list[tuple[int, ...]] = []
        self._numbers: dict[object, int] = {}
        self._next: dict[object, Next] = {}
        self.dead = self._number(Group(group_id="g"))

    def __getitem__(self, number: int) -> Group:
        return self._states[number]

    def __len__(self) -> int:
        return len(self._states)

    def waiting(self, number: int) -> tuple[int, ...]:
        """The requests that wait."""
        return self._waiting[number]

    def step(self, number: int, key: object, event: Callable[[], Event], request: int = 0) -> Next:
        """``key`` stands for the event, which is made only for a step that was not taken before."""
        found = self._next.get((number, key, request))
        if found is None:
            found = self._next[number, key, request] = self._take(number, event(), request)
        return found

    def one_unit_later(self, number: int) -> int:
        return self._derived(number, "later", lambda group: _later(group, 1.0))

    def is_tick_due(self, number: int) -> bool:
        deadline = next_deadline(self._states[number])
        return deadline is not None and deadline <= 0

    def tick(self, number: int) -> Next:
        return self.step(number, "tick", TimePassed)

    def pause(self, number: int) -> Next:
        """The service does not run for one unit."""
        return self.step(self.one_unit_later(number), "pause", lambda: PauseDetected(pause_s=1.0))

    def restart(self, number: int) -> int:
        """The service restarts from what is persisted."""

        def restarted(group: Group) -> Group:
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
            return new

        return self._derived(number, "restart", restarted)

    def _derived(self, number: int, how: str, change: Callable[[Group], Group]) -> int:
        found = self._next.get((number, how))
        if found is None:
            found = self._next[number, how] = Next(self._number(change(self._states[number])), ())
        return found.state

    def _take(self, number: int, event: Event, request: int) -> Next:
        old = self._states[number]
        done: Outcome = self._rules.step(old, event, now=0.0, request=request, limits=LIMITS)
        check_step(old, done, request=request)
        check_state(done.group, LIMITS)
        _check_offsets(old, event, done)
        self.coverage.events[type(event).__name__] += 1
        self.coverage.rows.update((t.old, t.trigger, t.new) for t in done.transitions)
        for _, answer in done.answers:
            self.coverage.errors[answer.error] += 1
            if isinstance(answer, PartitionsAnswer):
                self.coverage.errors.update(error for _, error in answer.partitions)
        return Next(self._number(done.group), done.answers)

    def _number(self, group: Group) -> int:
        members = tuple(replace(m, expires_s=m.session_end_s or 0.0) for m in group.members.values())
        key = (
            (group.state, group.generation, group.protocol_type, group.protocol, group.leader),
            members,
            tuple(group.pending.items()),
            tuple(group.offsets.items()),
            (group.rebalance_end_s, group.initial_end_s, group.joined_in_delay),
            (group.unsynced, group.sync_end_s, group.empty_since_unix_ms),
        )
        number = self._numbers.setdefault(key, len(self._states))
        if number == len(self._states):
            self._states.append(replace(group, members={m.member_id: m for m in members}))
            self._waiting.append(tuple(waiting(group)))
        return number


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
