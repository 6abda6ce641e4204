"""One task per consumer group, which repeats its reconcile round: observe, plan, apply, report.

At most `ROUNDS_AT_ONCE` rounds run at a time. A failed round is retried with back-off up to
`LONGEST_BACKOFF_S`. A round that changed something is followed soon by another one, which observes the
effect. While a group is idle, a watch event or the resync starts a round.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from loghub.clock import Clock
from loghub.wire.errors import LogHubException
from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup, parse_resource
from loghub_operator.api.adoption import GroupOrigin
from loghub_operator.api.conditions import UnseenReason
from loghub_operator.api.status import Status
from loghub_operator.apply.executor import Executor
from loghub_operator.clients.kube import CONSUMER_GROUP, FORBIDDEN, Kube, KubeError
from loghub_operator.controller.liveness import Doing, TaskHealth
from loghub_operator.controller.requeue import SOON_S, jitter, requeue_after_s
from loghub_operator.metrics.reporter import MetricsReporter
from loghub_operator.model.actions import Action, ActionRefused, EmitEvent
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import ObservedState, ServiceErrorReason, Unavailable
from loghub_operator.model.plan import Plan
from loghub_operator.observe.observer import Observer
from loghub_operator.plan.invalid_resource import plan_unread, without_spec
from loghub_operator.plan.round import finish, plan_round
from loghub_operator.plan.status.builder import unseen_status
from loghub_operator.plan.status.last_failure import error_message
from loghub_operator.plan.status.write_policy import worth_writing

log = structlog.get_logger()

ROUNDS_AT_ONCE = 16
UNPROMPTED_AT_ONCE = 4  # of these: rounds that no event caused
UNANSWERED_AT_ONCE = 2  # of these: rounds of groups whose log service does not answer, which may last long
UNANSWERED_AFTER = 3  # observations in a row without an answer; a single one may be chance
LONGEST_BACKOFF_S = 30.0
FORBIDDEN_AFTER = (
    5  # failures before Forbidden is reported: an API server that just started rejects what it later allows
)


@dataclass(frozen=True, slots=True)
class Key:
    """Which object."""

    namespace: str
    name: str


@dataclass(slots=True)
class _GroupTask:
    """One group's task and its memory; a restart of the operator forgets all of it."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    causes: set[str] = field(
        default_factory=set
    )  # resource versions whose events arrived since; "": another cause
    own_version: str = ""  # resource version after the last write of the status
    task: "asyncio.Task[None] | None" = None
    written_monotonic_s: float = float("-inf")
    failures: int = 0
    memory: Memory | None = None
    unchanged: int = 0  # rounds in a row without an action or a new status
    unanswered: int = 0  # observations in a row without an answer of the log service
    doing: Doing = Doing.QUEUED
    since_s: float = 0.0


class Reconciler:
    """Reconciles every group that was seen and still exists."""

    def __init__(
        self,
        *,
        kube: Kube,
        observer: Observer,
        executor: Executor,
        clock: Clock,
        resync_s: float,
        listener: MetricsReporter | None = None,
    ) -> None:
        self._kube = kube
        self._observer = observer
        self._executor = executor
        self._clock = clock
        self._resync_s = resync_s
        self._listener = listener or MetricsReporter()
        self._lives: dict[Key, _GroupTask] = {}
        self._slots = asyncio.Semaphore(ROUNDS_AT_ONCE)
        self._unasked = asyncio.Semaphore(UNPROMPTED_AT_ONCE)
        self._in_trouble = asyncio.Semaphore(UNANSWERED_AT_ONCE)
        self.round_ended_s = clock.monotonic_s()

    def enqueue(self, key: Key, *, version: str = "") -> None:
        """Reconcile this group now, because something about it changed. The first call starts its task.

        ``version`` is the resource version if the object itself changed; the event of our own last write is
        ignored.
        """
        life = self._lives.setdefault(key, _GroupTask())
        if version and version == life.own_version:
            return
        life.causes.add(version)
        life.wake.set()
        if life.task is None:
            life.task = asyncio.create_task(self._live(key, life), name=f"{key.namespace}/{key.name}")

    def enqueue_known(self, key: Key) -> None:
        """The same for a change of a child: a group that no longer exists is not started again."""
        if key in self._lives:
            self.enqueue(key)

    def pulses(self) -> tuple[TaskHealth, ...]:
        """What each group's task is doing."""
        return tuple(
            TaskHealth(group=f"{key.namespace}/{key.name}", doing=life.doing, since_s=life.since_s)
            for key, life in self._lives.items()
        )

    async def close(self) -> None:
        """Cancel all tasks; the next start continues what they were doing."""
        tasks = [life.task for life in self._lives.values() if life.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _live(self, key: Key, life: _GroupTask) -> None:
        wait_s: float | None = 0.0
        while True:
            life.doing, life.since_s = Doing.QUEUED, self._clock.monotonic_s()
            async with self._slot(life, soon=wait_s is None or wait_s <= SOON_S):
                life.wake.clear()
                life.causes.clear()
                life.doing, life.since_s = Doing.RUNNING, self._clock.monotonic_s()
                result, wait_s = await self._guarded_reconcile(key, life)
            self.round_ended_s = self._clock.monotonic_s()
            self._listener.reconciled(result, self.round_ended_s - life.since_s)
            life.doing, life.since_s = Doing.RESTING, self.round_ended_s + (wait_s or SOON_S)
            if wait_s is None and not life.wake.is_set():
                del self._lives[key]
                return
            await _woken(life.wake, SOON_S if wait_s is None else wait_s)

    @asynccontextmanager
    async def _slot(self, life: _GroupTask, *, soon: bool) -> AsyncIterator[None]:
        """A place for a round. Changed groups go before groups that are only due for a resync, and groups
        whose log service does not answer wait only for each other."""
        asked = soon or life.wake.is_set()
        places = self._in_trouble if life.unanswered >= UNANSWERED_AFTER else self._unasked
        unasked = not asked and await _acquired(places, unless=life.wake)
        try:
            async with self._slots:
                yield
        finally:
            if unasked:
                places.release()

    async def _guarded_reconcile(self, key: Key, life: _GroupTask) -> tuple[str, float | None]:
        """How it went, and seconds until the next round; None: the object is gone."""
        try:
            wait_s = await self._reconcile(key, life)
        except (KubeError, LogHubException, ActionRefused) as error:
            life.failures += 1
            log.warning("reconcile failed", namespace=key.namespace, name=key.name, error=str(error))
            return "error", min(LONGEST_BACKOFF_S, SOON_S * 2.0 ** min(life.failures, 10))
        except Exception:
            # A fault of ours in one group must not end its task for good, nor the others.
            life.failures += 1
            log.exception("reconcile panicked", namespace=key.namespace, name=key.name)
            return "panic", LONGEST_BACKOFF_S
        life.failures = 0
        return "success", wait_s

    async def _reconcile(self, key: Key, life: _GroupTask) -> float | None:
        document = await self._kube.get(CONSUMER_GROUP, key.namespace, key.name)
        if document is None:
            self._listener.gone(key.namespace, key.name)
            return None
        try:
            resource = parse_resource(document)
        except InvalidResourceError as error:
            log.error("object not understood", namespace=key.namespace, name=key.name, error=str(error))
            await self._unread(without_spec(document), error, life)
            return LONGEST_BACKOFF_S
        observed = await self._observe(resource, life)
        this = plan_round(resource, observed, life.memory, self._clock.unix_s())
        planned, failure = this.plan, None
        try:
            await self._carry_out(resource, planned.actions, observed.group_origin)
        except (KubeError, LogHubException, ActionRefused) as raised:
            failure = raised
        outcome = finish(this, failure, self._clock.unix_s())
        life.memory, status = outcome.memory, outcome.status
        self._publish(key, planned, status)
        reported = await self._report(resource, status, life)
        if outcome.error is not None:
            raise outcome.error
        life.unchanged = 0 if planned.actions or reported else life.unchanged + 1
        pause = requeue_after_s(planned.actions, status, unchanged=life.unchanged, resync_s=self._resync_s)
        return jitter(pause, f"{key.namespace}/{key.name}")

    async def _observe(self, resource: LogHubConsumerGroup, life: _GroupTask) -> ObservedState:
        try:
            observed = await self._observer.observe(resource)
        except KubeError as error:
            if error.status == FORBIDDEN and life.failures >= FORBIDDEN_AFTER:
                await self._unseen(resource, error, life)
            raise
        life.unanswered = life.unanswered + 1 if _is_away(observed) else 0
        return observed

    def _publish(self, key: Key, planned: Plan, status: Status) -> None:
        if planned.metrics is None:
            self._listener.gone(key.namespace, key.name)
        else:
            self._listener.found(planned.metrics, status.conditions)

    async def _unread(
        self, resource: LogHubConsumerGroup, error: InvalidResourceError, life: _GroupTask
    ) -> None:
        """Write the status first: it records that the event was emitted."""
        planned = plan_unread(resource, error, self._clock.unix_s())
        await self._report(resource, planned.status, life)
        await self._carry_out(resource, planned.actions, None)

    async def _unseen(self, resource: LogHubConsumerGroup, error: KubeError, life: _GroupTask) -> None:
        """Without this, the status from before the permission was removed would stay forever."""
        why, generation, now = UnseenReason.FORBIDDEN, resource.metadata.generation, self._clock.unix_s()
        status = unseen_status(resource.status, why, error_message(error), generation=generation, now=now)
        await self._report(resource, status, life)

    async def _carry_out(
        self, resource: LogHubConsumerGroup, actions: Sequence[Action], origin: GroupOrigin | None
    ) -> None:
        for action in actions:
            try:
                await self._executor.carry_out(resource, action, group_origin=origin)
            except KubeError as error:
                if not isinstance(action, EmitEvent):
                    raise
                # An event is a courtesy; a terminating namespace accepts none.
                log.warning("event not taken", name=resource.metadata.name, error=str(error))
                continue
            log.info(
                "done",
                namespace=resource.metadata.namespace,
                name=resource.metadata.name,
                action=type(action).__name__,
            )

    async def _report(self, resource: LogHubConsumerGroup, status: Status, life: _GroupTask) -> bool:
        """Write the status if it says something new; whether it did."""
        since_s = self._clock.monotonic_s() - life.written_monotonic_s
        if not worth_writing(resource.status, status, since_last_s=since_s):
            return False
        try:
            _wrote(life, await self._executor.write_status(resource, status))
        except KubeError as error:
            if error.status not in (404, 409):  # just released, or recreated
                raise
        life.written_monotonic_s = self._clock.monotonic_s()
        return True


def _wrote(life: _GroupTask, version: str) -> None:
    """The event of our own write is ignored, whether it arrives after the answer or arrived before it."""
    life.own_version = version
    if version and version in life.causes:
        life.causes.remove(version)
        if not life.causes:
            life.wake.clear()


def _is_away(observed: ObservedState) -> bool:
    service = observed.service
    return isinstance(service, Unavailable) and service.reason is ServiceErrorReason.ENDPOINT_UNREACHABLE


async def _acquired(semaphore: asyncio.Semaphore, *, unless: asyncio.Event) -> bool:
    """Wait for a place or for the event; whether the place was acquired."""
    place, event = asyncio.ensure_future(semaphore.acquire()), asyncio.ensure_future(unless.wait())
    try:
        await asyncio.wait((place, event), return_when=asyncio.FIRST_COMPLETED)
    finally:
        event.cancel()
        if not place.done():
            place.cancel()
    return place.done() and not place.cancelled()


async def _woken(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
