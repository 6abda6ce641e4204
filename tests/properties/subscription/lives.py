"""Random lives of a subscription over a log that grows, longer than a search can follow.

A search takes a subscription apart after each step. Here the same one goes on, with what its heaps have
gathered, until the service restarts. The log has groups of several logs, groups that were lost, groups that
are cut into entries, and groups with a time; it splits, and its shards expire. Loads bring any number of
groups, and may be answered when they are too late. Requests may be wrong in each way that is refused or
rejected. What must hold for each step, says `tests.loghub_service.subscription.invariants`; in the end, all
logs are taken and acknowledged.
"""

import random
from types import SimpleNamespace

from loghub.domain.log_position import group_end, ordinal_of, position_of
from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub_service.subscription.events import (
    Ack,
    AckUpTo,
    Allow,
    Appended,
    ChangeSettings,
    ClockRead,
    DispatchOutcome,
    Event,
    Expired,
    Flow,
    GroupsLoaded,
    Join,
    LeaveSubscription,
    LoadedEntry,
    LoadGroups,
    PassOn,
    Redeliver,
    SeekTo,
    ShardStart,
    SubscribedShards,
)
from loghub_service.subscription.slots import SLOTS, SlotRange
from loghub_service.subscription.state import Subscription, SubscriptionLimits, saved
from tests.loghub_service.subscription.invariants import (
    DELIVERING,
    StoredLogs,
    check_state,
    check_step,
    known,
)
from tests.properties.numbered_states import Coverage
from tests.properties.subscription.system import DELAY_S, count

HIGH = SLOTS - 1
MAX_SHARDS, MAX_GROUPS = 4, 16  # of a life
LAST_EVENTS = 40  # in the message of a failure
Slots = tuple[SlotRange, ...] | None
CHOSEN: tuple[Slots, ...] = (((0, 0),), ((9, 9),), ((1, 9), (HIGH, HIGH)), ((0, HIGH),))
BAD: tuple[Slots, ...] = ((), ((3, 2),), ((1, 2), (2, 3)), None)
LIMITS = (
    SubscriptionLimits(
        max_consumers=3,
        max_permits=4,
        max_ranges=2,
        max_unacked=4,
        max_unacked_of_consumer=3,
        look_ahead=2,
        max_loaded=3,
    ),
    SubscriptionLimits(max_permits=9, max_ranges=3, max_unacked=12, look_ahead=5, max_loaded=6),
)


class Life:
    """One subscription that begins with this type, by these rules. All choices are those of the seed."""

    def __init__(self, seed: int, kind: SubscriptionType, rules: SimpleNamespace, coverage: Coverage) -> None:
        self.seed = seed
        self._dice = random.Random(f"{kind} {seed}")
        self._kind = kind
        self._rules = rules
        self._coverage = coverage
        self._limits = LIMITS[seed // 4 % 2]
        self._chooses = seed % 4 >= 2  # consumers of Key_Shared choose their slots
        self._now = 0.0
        self._ahead_s = 0.0  # the wall clock
        self._latest_s = 0.0  # that the wall clock has shown
        self._numbers = 0
        self._groups: dict[int, list[tuple[int, ...]]] = {0: []}
        self._times: dict[tuple[int, int], float] = {}  # of groups, by shard and ordinal
        self._shards = {0: ShardStart()}
        self._loads: list[LoadGroups] = []
        self._delivered: list[tuple[int, int]] = []  # shard and position, since the last start
        self._story: list[object] = []
        settings = rules.SubscriptionSettings(type=kind, in_order=seed % 5 > 0)
        self._subscription: Subscription = rules.create(settings, self._shards)

    def run(self, steps: int) -> None:
        """Take so many steps, and then everything that is left."""
        chances = {
            self._append: 9,
            self._answer: 14,
            self._ack: 9,
            self._flow: 8,
            self._allow: 6,
            self._join: 6,
            self._redeliver: 6,
            self._leave: 2,
            self._ack_up_to: 3,
            self._time_passes: 2,
            self._change_settings: self.seed % 4 == 1,
            self._split: self.seed % 3 == 0,
            self._drop_shard: 1,
            self._seek_or_expire: 1,
            self._restart: 1,
        }
        acts, weights = list(chances), list(chances.values())
        try:
            for act in self._dice.choices(acts, weights, k=steps):
                act()
            self._take_everything()
        except AssertionError as error:
            events = "; ".join(map(str, self._story[-LAST_EVENTS:]))
            raise AssertionError(f"{error}\n{self._kind} {self.seed}, after: {events}") from error

    def _step(self, event: Event) -> DispatchOutcome:
        self._story.append(event)
        subscription, before = self._subscription, known(self._subscription)
        self._latest_s = max(self._latest_s, self._now + self._ahead_s)
        outcome: DispatchOutcome = self._rules.step(subscription, event, now=self._now, limits=self._limits)
        stored = {shard: StoredLogs(tuple(groups)) for shard, groups in self._groups.items()}
        check_step(before, event, outcome, subscription, stored)
        check_state(subscription, stored, self._limits)
        self._check_deadline(event)
        self._check_still_out()
        count(self._coverage, event, outcome)
        self._loads += outcome.loads
        is_ordered = subscription.settings.type.is_ordered
        for delivery in outcome.deliveries:
            for first, stop, _ in delivery.runs:
                self._delivered += ((delivery.shard, position) for position in range(first, stop))
                due_s = self._times.get((delivery.shard, ordinal_of(first)), 0.0)
                assert is_ordered or due_s <= self._latest_s, "a log is delivered before its time"
        return outcome

    def _check_deadline(self, event: Event) -> None:
        times = [
            until_s - ahead_s
            for cursor in self._subscription.shards.values()
            if cursor.state in DELIVERING and not self._subscription.settings.type.is_ordered
            for timed, ahead_s in (
                (cursor.queue.delayed, 0.0),  # type: ignore[attr-defined]
                (cursor.queue.scheduled, self._ahead_s),  # type: ignore[attr-defined]
            )
            for until_s, _ in timed.until.values()
        ]
        assert self._rules.next_deadline(self._subscription) == min(times, default=None)
        assert not isinstance(event, ClockRead) or all(time_s > self._now for time_s in times)

    def _check_still_out(self) -> None:
        """Of the newest deliveries of one shard, what each consumer has."""
        if not self._delivered:
            return
        shard = self._delivered[-1][0]
        cursor = self._subscription.shards.get(shard)
        runs = [(p, p + 1, 0) for of, p in self._delivered[-6:] if of == shard]
        for number, consumer in cursor.members.items() if cursor is not None else ():
            assert cursor is not None
            still = cursor.queue.still_out(consumer, runs)
            found = {p for first, stop, _ in still for p in range(first, stop)}
            if self._subscription.settings.type.is_ordered:
                is_active = cursor.queue.active is consumer  # type: ignore[attr-defined]
                expected = {p for p, _, _ in runs if is_active and p < cursor.read and p not in cursor.acked}
            else:
                pending = cursor.queue.members[number].pending  # type: ignore[attr-defined]
                expected = {p for p, _, _ in runs if p in pending}
            assert found == expected

    # -- the log

    def _append(self) -> None:
        shard = self._dice.choice([number for number, start in self._shards.items() if not start.is_closed])
        groups = self._groups[shard]
        if len(groups) < MAX_GROUPS:
            if self._dice.random() < 0.2:
                self._times[shard, len(groups)] = self._now + self._ahead_s + DELAY_S
            # A group without logs is lost.
            groups.append(tuple(self._dice.choices((0, 9, HIGH), k=self._dice.randrange(4))))
            self._reach(shard, is_closed=False)

    def _reach(self, shard: int, *, is_closed: bool) -> None:
        end, parents = position_of(len(self._groups[shard])), self._shards[shard].parents
        self._shards[shard] = ShardStart(parents=parents, end=end, is_closed=is_closed)
        self._step(Appended(shard=shard, end=end, is_closed=is_closed))

    def _split(self) -> None:
        new = max(self._groups) + 1
        if new + 2 > MAX_SHARDS:
            return
        parent = self._dice.choice(list(self._shards))
        self._reach(parent, is_closed=True)
        for child in (new, new + 1):
            self._groups[child] = []
            self._shards[child] = ShardStart(parents=(parent,))
        self._step(SubscribedShards(shards=self._shards))

    def _drop_shard(self) -> None:
        """The first shard expires, once it is closed."""
        first = min(self._shards)
        if self._shards[first].is_closed and len(self._shards) > 1:
            del self._shards[first]
            self._step(SubscribedShards(shards=self._shards))

    def _answer(self) -> None:
        """One of the loads, perhaps one that is not wanted any more."""
        if not self._loads:
            return
        load = self._loads.pop(self._dice.randrange(len(self._loads)))
        if load.shard not in self._shards:
            self._step(GroupsLoaded(shard=load.shard, load=load.number, entries=(), next=load.first))
            return
        first, groups = ordinal_of(load.first), self._groups[load.shard]
        stop = min(len(groups), first + self._dice.randrange(1, 4))
        entries = [entry for ordinal in range(first, stop) for entry in self._entries(load, ordinal)]
        self._step(GroupsLoaded(shard=load.shard, load=load.number, entries=entries, next=position_of(stop)))

    def _entries(self, load: LoadGroups, ordinal: int) -> list[LoadedEntry]:
        slots = self._groups[load.shard][ordinal]
        until_s = self._times.get((load.shard, ordinal), 0.0)
        size = len(slots) or 1 if ordinal % 2 else 1
        return [
            LoadedEntry(
                position_of(ordinal, at),
                len(slots[at : at + size]),
                is_last=at + size >= len(slots),
                slots=slots[at : at + size] if load.with_slots else None,
                due_unix_s=until_s,
            )
            for at in range(0, len(slots), size)
        ]

    # -- consumers

    def _consumer(self) -> int:
        """One that is there, or one that is not."""
        there = list(self._subscription.consumers)
        return self._dice.choice(there) if there and self._dice.random() < 0.95 else 0

    def _shard(self) -> int:
        """One that exists, or one that does not."""
        return self._dice.choice(list(self._shards)) if self._dice.random() < 0.95 else 99

    def _position(self, shard: int) -> int:
        """That of a log, or one near the ends of the groups."""
        ordinal = self._dice.randrange(len(self._groups.get(shard, ())) + 1)
        return position_of(ordinal, self._dice.randrange(4))

    def _join(self) -> None:
        self._numbers += 1
        chance = self._dice.random()
        kind = self._subscription.settings.type if chance < 0.9 else self._dice.choice(list(SubscriptionType))
        shards: tuple[int, ...] | None = tuple(shard for shard in self._shards if self._dice.random() < 0.8)
        shards = None if chance < 0.3 else shards if chance < 0.97 else (99,)
        self._step(
            Join(
                consumer=self._numbers,
                name=self._dice.choice("ab"),
                type=kind,
                shards=shards,
                priority=self._dice.choice((0, 0, 1)),
                slots=self._slots() if self._chooses else None,
                takes_any_size=self._dice.random() < 0.5,
            )
        )

    def _slots(self) -> Slots:
        """Of one in ten, they are not legal, or missing."""
        return self._dice.choice(CHOSEN if self._dice.random() < 0.9 else BAD)

    def _leave(self) -> None:
        self._step(LeaveSubscription(consumer=self._consumer()))

    def _flow(self) -> None:
        self._step(Flow(consumer=self._consumer(), permits=self._dice.randrange(-1, 6)))

    def _allow(self) -> None:
        only = frozenset(shard for shard in self._shards if self._dice.random() < 0.7)
        only_some = only if self._dice.random() < 0.3 else None
        self._step(Allow(consumer=self._consumer(), permits=self._dice.randrange(6), only=only_some))

    def _ack(self) -> None:
        """Mostly of what was delivered."""
        shard, runs = self._shard(), list[tuple[int, int]]()
        delivered = [position for of, position in self._delivered if of == shard]
        if self.seed % 4 == 1:
            delivered = delivered[1::2]  # many ranges with a hole before each
        for _ in range(self._dice.randrange(1, 4)):
            is_out = bool(delivered) and self._dice.random() < 0.8
            first = self._dice.choice(delivered) if is_out else self._position(shard)
            stop = first + 1 if self._dice.random() < 0.7 else first + 2
            runs.append((first, stop if self._dice.random() < 0.9 else group_end(first)))
        if self._dice.random() < 0.05:
            runs.append(self._dice.choice(((3, 3), (-1, 1), (0, group_end(0) + 1))))
        self._step(Ack(shard=shard, runs=runs))

    def _ack_up_to(self) -> None:
        shard = self._shard()
        self._step(AckUpTo(shard=shard, stop=self._position(shard)))

    def _runs(self, shard: int) -> list[tuple[int, int]]:
        """Of what was delivered last, or any."""
        runs = list[tuple[int, int]]()
        delivered = [position for of, position in self._delivered[-6:] if of == shard]
        for _ in range(self._dice.randrange(1, 4)):
            is_out = bool(delivered) and self._dice.random() < 0.5
            first = self._dice.choice(delivered) if is_out else self._position(shard)
            runs.append((first, self._dice.choice((first + 1, first + 2, group_end(first)))))
        return runs

    def _redeliver(self) -> None:
        """Or the logs are too large."""
        shard = self._shard()
        runs = self._runs(shard)
        if self._dice.random() < 0.2:
            self._step(PassOn(consumer=self._consumer(), shard=shard, runs=runs))
            return
        self._step(
            Redeliver(
                consumer=self._consumer(),
                shard=shard,
                runs=runs if self._dice.random() < 0.7 else None,
                delay_s=self._dice.choice((0.0, DELAY_S, 3 * DELAY_S)),
                is_counted=self._dice.random() < 0.7,
            )
        )

    # -- what else happens

    def _time_passes(self) -> None:
        """Perhaps the wall clock is set, too."""
        self._now += DELAY_S
        if self._dice.random() < 0.3:
            self._ahead_s = self._dice.choice((-2 * DELAY_S, 0.0, DELAY_S, 3 * DELAY_S))
        self._read_clock()

    def _read_clock(self) -> None:
        self._step(ClockRead(unix_s=self._now + self._ahead_s))

    def _seek_or_expire(self) -> None:
        shard = self._shard()
        kind = self._dice.choice((SeekTo, Expired))
        self._step(kind(shard=shard, position=self._position(shard)))

    def _change_settings(self) -> None:
        kind, in_order = self._dice.choice(list(SubscriptionType)), self._dice.random() < 0.7
        if self._dice.random() < 0.3:  # else it is refused, unless nobody is there
            for consumer in tuple(self._subscription.consumers):
                self._step(LeaveSubscription(consumer=consumer))
        self._step(ChangeSettings(type=kind, in_order=in_order, key=self._dice.choice(((), ("field",)))))

    def _restart(self) -> None:
        """With what is durable, and without consumers."""
        self._story.append("the service restarts")
        old = self._subscription
        durable = {shard: saved(cursor) for shard, cursor in old.shards.items()}
        self._subscription = self._rules.create(old.settings, self._shards, durable)
        self._loads.clear()
        self._delivered.clear()
        self._read_clock()

    # -- the end

    def _take_everything(self) -> None:
        """One consumer is left, which takes and acknowledges all that comes."""
        for shard in self._shards:
            self._reach(shard, is_closed=True)
        for consumer in tuple(self._subscription.consumers):
            self._step(LeaveSubscription(consumer=consumer))
        kind, shards = self._subscription.settings.type, tuple(self._shards)
        self._step(Join(consumer=-1, name="", type=kind, shards=shards))
        for _ in range(4 * MAX_SHARDS * MAX_GROUPS):
            if all(
                cursor.state is SubscriptionState.FINISHED for cursor in self._subscription.shards.values()
            ):
                break
            self._now += DELAY_S
            self._read_clock()
            self._step(Flow(consumer=-1, permits=9))
            while self._loads:
                self._answer()
            for shard, position in self._delivered:
                self._step(Ack(shard=shard, runs=[(position, position + 1)]))
            self._delivered.clear()
        for cursor in self._subscription.shards.values():
            assert cursor.is_finished, f"shard {cursor.shard} is left in {cursor.state}"
            assert cursor.acked.ranges == ()
