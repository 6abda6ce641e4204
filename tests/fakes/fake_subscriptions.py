"""Subscriptions of the client port in memory, on the real core: what the service does around it is
here in a few lines, without durability."""

from dataclasses import dataclass, field, replace
from typing import Any

from loghub.client.port import Position
from loghub.clock import Clock
from loghub.domain.log_position import group_end, index_of, ordinal_of, position_of
from loghub.domain.subscription import SubscriptionState
from loghub.wire import cursor as wire_cursor
from loghub.wire.compression import Packed
from loghub.wire.errors import Code, ExtensionMissing, LogHubError
from loghub.wire.loggroup import decode, wrap
from loghub.wire.subscriptions import (
    DeliveredGroup,
    Exchange,
    Exchanged,
    Run,
    SubscriptionSpec,
    SubscriptionSummary,
)
from loghub_service.subscription.events import (
    Ack,
    Allow,
    ChangeSettings,
    ClockRead,
    DispatchOutcome,
    Event,
    GroupsLoaded,
    Join,
    LeaveSubscription,
    LoadedEntry,
    LoadGroups,
    Redeliver,
    SeekTo,
    ShardStart,
    SubscribedShards,
)
from loghub_service.subscription.slots import slot_of
from loghub_service.subscription.state import Subscription, SubscriptionSettings
from loghub_service.subscription.step import create, step
from tests.fakes.fake_store import Logstore, ShardData

LOOK_S = 0.2  # how often a waiting call looks for logs


@dataclass(eq=False)
class Member:
    """A session. What was delivered and was not received yet is in ``queue``, by shard and position."""

    number: int
    consumer: str
    nonce: str
    lease_s: float
    heard_s: float
    queue: list[tuple[int, int, int]] = field(default_factory=list)
    last: tuple[int, Exchanged] | None = None  # the last receive and its answer
    settlement: int = 0


class Subscribed:
    """One subscription of a logstore in memory. Not thread-safe."""

    def __init__(self, store: Logstore, spec: SubscriptionSpec, clock: Clock) -> None:
        self.store = store
        self.spec = spec
        self._clock = clock
        self._count = 0
        self.members: dict[str, Member] = {}
        settings = SubscriptionSettings(type=spec.type, in_order=spec.in_order, key=spec.key)
        self.core: Subscription = create(settings, self._starts(spec.start))

    def _starts(self, start: Position = "begin") -> dict[int, ShardStart]:
        shards = self.store.shard_map.shards
        return {
            number: ShardStart(
                parents=tuple(one for one in shards[number].parents if one in shards),
                mark=position_of(len(data.groups)) if start == "end" else 0,
                end=position_of(len(data.groups)),
                is_closed=shards[number].read_only,
            )
            for number, data in self.store.data.items()
        }

    def apply(self, event: Event) -> DispatchOutcome:
        """Apply the event, and the loads that follow."""
        outcome = step(self.core, event, now=self._clock.monotonic_s())
        self._note(outcome)
        loads = list(outcome.loads)
        while loads:
            done = step(self.core, self._loaded(loads.pop()), now=self._clock.monotonic_s())
            self._note(done)
            loads += done.loads
        return outcome

    def _note(self, outcome: DispatchOutcome) -> None:
        by_number = {member.number: member for member in self.members.values()}
        for change in outcome.active:
            if not change.is_active and change.consumer in by_number:
                member = by_number[change.consumer]
                member.queue = [one for one in member.queue if one[0] != change.shard]
        for delivery in outcome.deliveries:
            if delivery.consumer in by_number:
                by_number[delivery.consumer].queue += [
                    (delivery.shard, position, count)
                    for first, stop, count in delivery.runs
                    for position in range(first, stop)
                ]
        closed = set(outcome.closed)
        self.members = {name: one for name, one in self.members.items() if one.number not in closed}

    def _loaded(self, load: LoadGroups) -> GroupsLoaded:
        data, entries, logs = self.store.data[load.shard], [], 0
        ordinal, index = ordinal_of(load.first), index_of(load.first)
        while ordinal < len(data.groups) and logs < load.max_logs:
            count = data.logs[ordinal]
            slots = self._slots(data.groups[ordinal])[index:] if load.with_slots else None
            entries.append(LoadedEntry(position_of(ordinal, index), count - index, True, slots))
            logs, ordinal, index = logs + count - index, ordinal + 1, 0
        return GroupsLoaded(
            shard=load.shard, load=load.number, entries=entries, next=position_of(ordinal, index)
        )

    def _slots(self, group: bytes) -> list[int]:
        names = self.spec.key or ("key",)
        return [
            slot_of(b"\0".join(bytes(dict(log.contents).get(name, b"")) for name in names))  # type: ignore[arg-type]
            for log in decode(group).logs
        ]

    def change(self, spec: SubscriptionSpec) -> bool:
        """Give it these settings, if it does not have them; whether it has them now."""
        old = self.spec
        if (old.type, old.in_order, old.key) == (spec.type, spec.in_order, spec.key):
            return True
        change = ChangeSettings(type=spec.type, in_order=spec.in_order, key=spec.key)
        if self.apply(change).refusal is not None:
            return False
        self.spec = replace(old, type=spec.type, in_order=spec.in_order, key=spec.key)
        return True

    def follow(self) -> None:
        """What has happened to the logstore and the time."""
        now = self._clock.monotonic_s()
        for name, member in list(self.members.items()):
            if now >= member.heard_s + member.lease_s:
                self.end(name)
        self.apply(SubscribedShards(shards=self._starts()))
        self.apply(ClockRead(unix_s=self._clock.unix_s()))

    def join(self, exchange: Exchange) -> str:
        for name, member in self.members.items():
            if member.consumer == exchange.consumer and member.nonce == exchange.nonce:
                return name
        if any(member.consumer == exchange.consumer for member in self.members.values()):
            raise LogHubError.of(Code.SUBSCRIPTION_BUSY, f"{exchange.consumer} is connected")
        self._count += 1
        now, name = self._clock.monotonic_s(), f"s-{self._count}"
        self.members[name] = Member(self._count, exchange.consumer, exchange.nonce, exchange.lease_s, now)
        event = Join(
            consumer=self._count,
            name=exchange.consumer,
            type=exchange.type,
            shards=None,
            priority=exchange.priority,
            slots=exchange.slots,
        )
        refusal = self.apply(event).refusal
        if refusal is not None:
            del self.members[name]
            raise LogHubError.of(Code.SUBSCRIPTION_BUSY, f"{exchange.consumer}: {refusal}")
        return name

    def end(self, name: str) -> None:
        self.apply(LeaveSubscription(consumer=self.members.pop(name).number))

    def active(self, member: Member) -> tuple[int, ...]:
        attached = self.core.consumers[member.number]
        shards = [number for number, one in self.core.shards.items() if member.number in one.members]
        if self.core.settings.type.is_ordered:
            shards = [n for n in shards if self._active_of(n) is attached]
        return tuple(sorted(shards))

    def _active_of(self, shard: int) -> object:
        return getattr(self.core.shards[shard].queue, "active", None)

    def settle(self, exchange: Exchange, member: Member | None) -> int:
        rejected = 0
        for shard, runs in exchange.acks.items():
            outcome = self.apply(Ack(shard=shard, runs=[one for run in runs for one in _groups(run)]))
            rejected += outcome.rejected
        if member is not None and exchange.settlement is not None:
            if exchange.settlement <= member.settlement:
                return rejected  # repeated
            member.settlement = exchange.settlement
        for nack in () if member is None else exchange.nacks:
            runs = [one for run in nack.runs for one in _groups(run)]
            self.apply(Redeliver(consumer=member.number, shard=nack.shard, runs=runs, delay_s=nack.delay_s))
        for shard, runs in {} if member is None else exchange.release.items():
            parts = [one for run in runs for one in _groups(run)]
            self.apply(Redeliver(consumer=member.number, shard=shard, runs=parts, is_counted=False))
        return rejected

    def take(self, member: Member, exchange: Exchange) -> tuple[DeliveredGroup, ...]:
        """What fits of the queue; the rest stays for the next receive."""
        by_group: dict[tuple[int, int], list[tuple[int, int]]] = {}
        taken, size = 0, 0
        for shard, position, count in member.queue:
            at = (shard, ordinal_of(position))
            body = self.store.data[shard].groups[at[1]]
            if at not in by_group and by_group and size + len(body) > exchange.max_bytes:
                break
            size += 0 if at in by_group else len(body)
            by_group.setdefault(at, []).append((index_of(position), count))
            taken += 1
        del member.queue[:taken]
        return tuple(self._group(shard, ordinal, sorted(logs)) for (shard, ordinal), logs in by_group.items())

    def _group(self, shard: int, ordinal: int, logs: list[tuple[int, int]]) -> DeliveredGroup:
        data: ShardData = self.store.data[shard]
        counts = tuple(count for _, count in logs)
        return DeliveredGroup(
            shard=shard,
            cursor=wire_cursor.encode(data.first_cursor + ordinal),
            ordinal=ordinal,
            body=Packed.plain(wrap((data.groups[ordinal],))),
            indexes=None if len(logs) == data.logs[ordinal] else tuple(index for index, _ in logs),
            redeliveries=counts if any(counts) else (),
            received_us=data.received_us[ordinal],
        )


def _groups(run: Run) -> list[Run]:
    """Runs of one log group each."""
    first, stop = run
    parts = []
    while first < stop:
        end = min(stop, group_end(first))
        parts.append((first, end))
        first = end
    return parts


class MemorySubscriptions:
    """A part of `tests.fakes.fake_log_service.MemoryLogHub`."""

    _server: Any
    _store: Any
    project: str

    def has_subscriptions(self) -> bool:
        return bool(self._server.subscriptions is not None)

    def _all(self, logstore: str) -> dict[str, Subscribed]:
        if self._server.subscriptions is None:
            raise ExtensionMissing("this fake has no subscriptions")
        self._store(logstore)
        found: dict[str, Subscribed] = self._server.subscriptions.setdefault((self.project, logstore), {})
        return found

    def _one(self, logstore: str, name: str) -> Subscribed:
        found = self._all(logstore).get(name)
        if found is None:
            raise LogHubError.of(Code.SUBSCRIPTION_NOT_EXIST, f"{logstore} has no subscription {name}")
        return found

    def list_subscriptions(self, logstore: str) -> tuple[SubscriptionSummary, ...]:
        return tuple(
            SubscriptionSummary(name=name, type=one.spec.type, in_order=one.spec.in_order, key=one.spec.key)
            for name, one in sorted(self._all(logstore).items())
        )

    def create_subscription(self, logstore: str, name: str, spec: SubscriptionSpec) -> None:
        found = self._all(logstore)
        if name not in found:
            found[name] = Subscribed(self._store(logstore), spec, self._server.clock)
        elif spec.must_be_new:
            raise LogHubError.of(
                Code.SUBSCRIPTION_ALREADY_EXIST, f"{logstore} has the subscription {name} already"
            )
        elif not found[name].change(spec):
            raise LogHubError.of(
                Code.SUBSCRIPTION_BUSY,
                f"subscription {name} has consumers: its settings change while it has none",
            )

    def delete_subscription(self, logstore: str, name: str) -> None:
        self._one(logstore, name)
        del self._all(logstore)[name]

    def subscription_status(self, logstore: str, name: str) -> Any:
        raise NotImplementedError

    def seek_subscription(self, logstore: str, name: str, position: Any) -> None:
        with self._server.lock:
            one = self._one(logstore, name)
            for shard, cursor in position.items():
                ordinal = wire_cursor.decode(cursor) - one.store.data[shard].first_cursor
                one.apply(SeekTo(shard=shard, position=position_of(ordinal)))

    def skip_subscription(self, logstore: str, name: str, *, shard: int, logs: int | None) -> int:
        raise NotImplementedError

    def exchange(self, logstore: str, name: str, exchange: Exchange) -> Exchanged:
        give_up_s = self._server.clock.monotonic_s() + exchange.wait_s
        is_first = True
        while True:
            with self._server.lock:
                found = self._exchange(logstore, name, exchange, is_first=is_first)
                is_over = self._server.clock.monotonic_s() >= give_up_s
            if found is not None and (is_over or found.groups or exchange.number is None):
                return found
            is_first = False
            self._server.sleep(LOOK_S)

    def _exchange(self, logstore: str, name: str, exchange: Exchange, *, is_first: bool) -> Exchanged | None:
        one = self._one(logstore, name)
        one.follow()
        session = exchange.session or one.join(exchange)
        member = one.members.get(session)
        is_ordered = one.spec.type.is_ordered
        rejected = 0
        if is_first and (member is not None or not is_ordered):
            rejected = one.settle(exchange, member)
        if member is None:
            raise LogHubError.of(Code.SUBSCRIPTION_FENCED, f"the session {session} has ended")
        member.heard_s = self._server.clock.monotonic_s()
        groups: tuple[DeliveredGroup, ...] = ()
        if exchange.number is not None:
            if member.last is not None and member.last[0] == exchange.number:
                return member.last[1]
            self._fill(one, member, exchange)
            groups = one.take(member, exchange)
        shards = {
            number: cursor.state or SubscriptionState.NO_CONSUMER
            for number, cursor in one.core.shards.items()
        }
        answer = Exchanged(
            session=session,
            lease_s=member.lease_s,
            groups=groups,
            shards=shards,
            active=one.active(member),
            backlog={number: cursor.backlog[1] for number, cursor in one.core.shards.items()},
            rejected=rejected,
        )
        if exchange.leave:
            one.end(session)
        if exchange.number is not None and (groups or exchange.wait_s == 0):
            member.last = (exchange.number, answer)
        return answer

    def _fill(self, one: Subscribed, member: Member, exchange: Exchange) -> None:
        only = None if exchange.shards is None else frozenset(exchange.shards)
        permits = max(0, exchange.max_logs - len(member.queue))
        one.apply(Allow(consumer=member.number, permits=permits, only=only))
        one.apply(Allow(consumer=member.number, permits=0))
