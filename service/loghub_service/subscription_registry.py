"""The subscriptions of a running service: their state, and what of it is being persisted.

An event is effective in memory at once. Acknowledgments are collected for `COLLECT_S`, or until there are
`COLLECT_RUNS` or a client waits for a receipt. They become one delta of each cursor then, and all deltas that
wait are one transaction of the service. A cursor whose deltas have grown beyond its size is saved as a whole
instead. A receipt waits for `RegisteredSubscription.durable`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from loghub.domain.subscription import SubscriptionState
from loghub_service.durable_steps import NewestCommits
from loghub_service.facts import (
    CursorAdvanced,
    CursorSaved,
    ServiceFact,
    SubscriptionDeleted,
    SubscriptionSaved,
)
from loghub_service.storage.subscription_rows import StoredSubscription
from loghub_service.subscription.acked import Run
from loghub_service.subscription.cursor_format import pack_cursor, pack_delta
from loghub_service.subscription.events import DispatchOutcome, Event, SeekTo, ShardStart
from loghub_service.subscription.state import (
    Subscription,
    SubscriptionLimits,
    SubscriptionSettings,
    saved,
)
from loghub_service.subscription.step import create, step

COLLECT_S = 0.1  # after a kill without receipts, at most the acknowledgments of this time come again
COLLECT_RUNS = 1_000  # a delta of a few tens of kilobytes, so that one commit stays short
# A snapshot costs its size, and reading the deltas at a start costs theirs.
MAX_DELTAS = 64
MAX_DELTA_FACTOR = 4
MIN_SNAPSHOT_BYTES = 256  # a small cursor is not saved again for each few acknowledgments

_log = structlog.get_logger("loghub_service.subscription_registry")


class TooManySubscriptions(Exception):  # noqa: N818 - says what is wrong
    """The message says which limit is reached."""


@dataclass(slots=True)
class _Unsaved:
    """What is not submitted yet of a cursor is ``runs``. Its last snapshot has ``snapshot_bytes``, and was
    followed by this many ``deltas``."""

    snapshot_bytes: int
    runs: list[Run] = field(default_factory=list)
    deltas: int = 0
    delta_bytes: int = 0

    @property
    def is_overgrown(self) -> bool:
        size = max(self.snapshot_bytes, MIN_SNAPSHOT_BYTES)
        return self.deltas >= MAX_DELTAS or self.delta_bytes > MAX_DELTA_FACTOR * size


class RegisteredSubscription:
    """One subscription; another one of the same name, after it was deleted, is another object."""

    def __init__(
        self,
        registry: "SubscriptionRegistry",
        logstore: int,
        name: str,
        state: Subscription,
        generation: str,
    ) -> None:
        self.logstore = logstore
        self.name = name
        self.state = state
        self.generation = generation  # another text since each seek
        self.is_deleted = False
        self.redelivered_logs = 0  # since the start, that their consumers wanted again
        self.unsaved: dict[int, _Unsaved] = {}
        self._registry = registry

    def apply(self, event: Event, *, now: float) -> DispatchOutcome:
        """Apply one event, at a time in monotonic seconds."""
        return self._registry.apply(self, event, now=now)

    async def durable(self) -> None:
        """Return once everything that was applied is persisted; raises what its commit raised."""
        await self._registry.durable(self)


class SubscriptionRegistry:
    """All subscriptions of all logstores, by logstore id and name. Used on the event loop only."""

    def __init__(
        self,
        *,
        submit: "Callable[..., asyncio.Future[object]]",
        named: Callable[[int], Mapping[str, str]],
        limits: SubscriptionLimits,
        max_subscriptions: int,
        new_generation: Callable[[], str],
    ) -> None:
        """``submit`` persists facts in one transaction. ``named`` has the names of a logstore and its
        project, for the log. ``new_generation`` makes a text that was never made before."""
        self.limits = limits
        self._submit = submit
        self._named = named
        self._max_subscriptions = max_subscriptions
        self._new_generation = new_generation
        self._commits: NewestCommits[RegisteredSubscription] = NewestCommits()
        self._subscriptions: dict[int, dict[str, RegisteredSubscription]] = {}
        self._unsaved: set[RegisteredSubscription] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._subscriptions.values()))

    def of(self, logstore: int) -> Mapping[str, RegisteredSubscription]:
        """The subscriptions of a logstore by name."""
        return self._subscriptions.get(logstore, {})

    def shards_by_state(self) -> Counter[SubscriptionState]:
        """How many shards of subscriptions are in each state, with all states."""
        states = Counter(dict.fromkeys(SubscriptionState, 0))
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions.values():
                states.update(c.state for c in subscription.state.shards.values() if c.state is not None)
        return states

    # -- life

    def create(
        self,
        logstore: int,
        name: str,
        settings: SubscriptionSettings,
        shards: Mapping[int, ShardStart],
    ) -> RegisteredSubscription:
        """A subscription that begins at the marks of these shards. Its name is not one of `of`. Raises
        TooManySubscriptions."""
        of_logstore = self._subscriptions.get(logstore, {})
        if len(of_logstore) >= self.limits.max_subscriptions:
            raise TooManySubscriptions(
                f"a logstore has at most {self.limits.max_subscriptions} subscriptions: delete one"
            )
        if len(self) >= self._max_subscriptions:
            raise TooManySubscriptions(
                f"the service has at most {self._max_subscriptions} subscriptions (--max-subscriptions)"
            )
        generation = self._new_generation() if settings.is_durable else ""
        subscription = RegisteredSubscription(self, logstore, name, create(settings, shards), generation)
        self._subscriptions.setdefault(logstore, {})[name] = subscription
        if settings.is_durable:
            facts = [self._settings_of(subscription)]
            facts += [self._whole(subscription, shard) for shard in shards]
            self._commits.add(subscription, self._submit(*facts))
        return subscription

    def restore(self, stored: StoredSubscription) -> None:
        """A subscription as it was saved. The shards are known as far as their cursors say: their ends follow
        with the first `SubscribedShards`."""
        settings = SubscriptionSettings(type=stored.type, in_order=stored.in_order, key=stored.key)
        ends = {
            shard: max((stop for _, stop in cursor.ranges), default=cursor.mark)
            for shard, cursor in stored.cursors.items()
        }
        starts = {shard: ShardStart(end=max(end, stored.cursors[shard].high)) for shard, end in ends.items()}
        state = create(settings, starts, stored.cursors)
        subscription = RegisteredSubscription(self, stored.logstore, stored.name, state, stored.generation)
        for shard, cursor in stored.cursors.items():
            subscription.unsaved[shard] = _Unsaved(snapshot_bytes=len(pack_cursor(cursor)))
        self._subscriptions.setdefault(stored.logstore, {})[stored.name] = subscription

    def delete(self, logstore: int, name: str) -> None:
        """Delete a subscription that exists; `durable` of it includes the deletion."""
        subscription = self._subscriptions[logstore].pop(name)
        self._forget(subscription)
        if subscription.state.settings.is_durable:
            fact = SubscriptionDeleted(logstore=logstore, name=name)
            self._commits.add(subscription, self._submit(fact))

    def forget(self, logstore: int, name: str) -> None:
        """Delete a subscription, which may be gone already, with its logstore."""
        if name in self.of(logstore):
            self.delete(logstore, name)

    def forget_logstore(self, logstore: int) -> None:
        """Remove a logstore's subscriptions from memory. Call it before persisting the logstore's deletion,
        which also deletes the subscriptions' rows."""
        for subscription in self._subscriptions.pop(logstore, {}).values():
            self._forget(subscription)

    def _forget(self, subscription: RegisteredSubscription) -> None:
        subscription.is_deleted = True
        self._unsaved.discard(subscription)

    def close(self) -> None:
        """Submit what is collected; call it before what persists it is closed."""
        if self._timer is not None:
            self._timer.cancel()
        self._save_collected()

    # -- steps

    def apply(self, subscription: RegisteredSubscription, event: Event, *, now: float) -> DispatchOutcome:
        """Apply one event, and collect what must become durable."""
        outcome = step(subscription.state, event, now=now, limits=self.limits)
        if subscription.state.settings.is_durable and not subscription.is_deleted:
            if isinstance(event, SeekTo):  # in one transaction with the mark
                subscription.generation = self._new_generation()
            has_new_row = outcome.are_settings_changed or isinstance(event, SeekTo)
            self._collect(subscription, outcome, has_new_row=has_new_row)
        for delivery in outcome.deliveries:
            subscription.redelivered_logs += sum(
                stop - first for first, stop, times in delivery.runs if times
            )
        for change in outcome.transitions:
            _log.info(
                "subscription state changed",
                **self._named(subscription.logstore),
                subscription=subscription.name,
                shard=change.shard,
                old=change.old.value if change.old else None,
                new=change.new.value,
                trigger=change.trigger.value,
            )
        return outcome

    async def durable(self, subscription: RegisteredSubscription) -> None:
        """Return once everything in the subscription is persisted; raises what its commit raised."""
        self._save(subscription)
        await self._commits.durable(subscription)

    def _collect(
        self, subscription: RegisteredSubscription, outcome: DispatchOutcome, *, has_new_row: bool
    ) -> None:
        facts: list[ServiceFact] = []
        if has_new_row:
            facts.append(self._settings_of(subscription))
        facts += [self._whole(subscription, shard) for shard in outcome.replaced]
        if facts:
            self._commits.add(subscription, self._submit(*facts))
        for shard, runs in outcome.acked.items():
            if shard in outcome.replaced or not runs:
                continue
            unsaved = subscription.unsaved[shard].runs
            unsaved += runs
            self._unsaved.add(subscription)
            if len(unsaved) >= COLLECT_RUNS:
                self._save(subscription)
        if self._unsaved and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COLLECT_S, self._save_collected)

    def _save_collected(self) -> None:
        self._timer = None
        for subscription in tuple(self._unsaved):
            self._save(subscription)

    def _save(self, subscription: RegisteredSubscription) -> None:
        """Submit the collected acknowledgments of a subscription."""
        if subscription not in self._unsaved:
            return
        self._unsaved.remove(subscription)
        facts = [
            self._whole(subscription, shard)
            if unsaved.is_overgrown
            else self._delta(subscription, shard, unsaved)
            for shard, unsaved in subscription.unsaved.items()
            if unsaved.runs and shard in subscription.state.shards
        ]
        if facts:
            self._commits.add(subscription, self._submit(*facts))

    # -- facts

    def _settings_of(self, subscription: RegisteredSubscription) -> ServiceFact:
        settings = subscription.state.settings
        return SubscriptionSaved(
            logstore=subscription.logstore,
            name=subscription.name,
            type=settings.type,
            in_order=settings.in_order,
            key=settings.key,
            generation=subscription.generation,
        )

    def _whole(self, subscription: RegisteredSubscription, shard: int) -> ServiceFact:
        packed = pack_cursor(saved(subscription.state.shards[shard]))
        subscription.unsaved[shard] = _Unsaved(snapshot_bytes=len(packed))
        return CursorSaved(logstore=subscription.logstore, name=subscription.name, shard=shard, packed=packed)

    def _delta(self, subscription: RegisteredSubscription, shard: int, unsaved: _Unsaved) -> ServiceFact:
        packed = pack_delta(unsaved.runs, subscription.state.shards[shard].backlog)
        unsaved.runs = []
        unsaved.deltas += 1
        unsaved.delta_bytes += len(packed)
        return CursorAdvanced(
            logstore=subscription.logstore, name=subscription.name, shard=shard, packed=packed
        )
