"""Reconciles one group: observe, compare, plan, apply, report.

`loghub_operator.controller.workqueue` decides when. A failed reconcile is retried with back-off up to
`MAX_BACKOFF_S`. A reconcile that changed something is followed soon by another one, which observes the
effect. While a group is idle, a watch event or the resync starts one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from loghub.backoff import backoff_s
from loghub.clock import Clock
from loghub.wire.errors import LogHubException
from loghub_operator.api import InvalidResourceError, LogHubConsumerGroup, parse_stored
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.api.conditions import UncheckedReason
from loghub_operator.api.parse import parse_for_deletion
from loghub_operator.api.status import Status
from loghub_operator.apply.applier import Applier
from loghub_operator.clients.kube import CONSUMER_GROUP, FORBIDDEN, Document, Kind, KubeError
from loghub_operator.controller.liveness import TaskHealth
from loghub_operator.controller.requeue import SOON_S, jitter, requeue_after_s
from loghub_operator.controller.workqueue import Key, Requeue, WorkQueue
from loghub_operator.leader.namespace_claims import ManagedElsewhere
from loghub_operator.metrics.store import MetricsReporter
from loghub_operator.model.actions import GROUP_ORPHANED, Action, ActionRefused, EmitEvent, Plan
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import ObservedState, Peer, ServiceErrorReason, Unavailable
from loghub_operator.observe.observer import Observer
from loghub_operator.plan.deletion import (
    DELETE_BOUND_S,
    bound_s,
    given_up,
    plan_failed,
    plan_invalid,
    remembered,
    waited_s,
    without_spec,
)
from loghub_operator.plan.events import kept_off
from loghub_operator.plan.planner import finish, plan
from loghub_operator.plan.status.builder import error_message, unchecked_status, worth_writing
from loghub_operator.plan.subject import Subject, subject_of

log = structlog.get_logger()

# As long as the usual resync: a group that fails is tried no more rarely than one that works.
MAX_BACKOFF_S = 30.0
# Failures before Forbidden is reported: an API server that just started rejects what it later allows.
FORBIDDEN_AFTER = 5


@dataclass(slots=True)
class _GroupState:
    """What is remembered of one group; a restart of the operator forgets all of it."""

    written_monotonic_s: float = float("-inf")
    failures: int = 0
    memory: Memory | None = None
    unchanged: int = 0  # reconciles in a row without an action or a new status
    answered: bool | None = None  # by the log service; None: not asked in this reconcile
    owner: Peer | None = None  # another object that owns the group
    elsewhere: str = ""  # another operator that manages it
    deletion_bound_s: float = DELETE_BOUND_S  # of the spec as it was when it could be read last


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """The longest time between two reconciles, and the least between two statuses that differ in numbers."""

    resync_s: float
    numbers_every_s: float


class ReadableObjects(Protocol):
    """Where the objects are read, such as `loghub_operator.leader.namespace_claims.ClaimedObjects`."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None: ...


class Reconciler:
    """Reconciles every group that was seen and still exists."""

    def __init__(
        self,
        *,
        kube: ReadableObjects,
        observer: Observer,
        applier: Applier,
        clock: Clock,
        intervals: Intervals,
        listener: MetricsReporter | None = None,
    ) -> None:
        self._kube = kube
        self._observer = observer
        self._applier = applier
        self._clock = clock
        self._intervals = intervals
        self._listener = listener or MetricsReporter()
        self._groups: dict[Key, _GroupState] = {}
        self._queue = WorkQueue(self._guarded_reconcile, clock)

    def enqueue(self, key: Key, *, version: str = "") -> None:
        """Reconciles this group now; `WorkQueue.enqueue` explains ``version``."""
        self._queue.enqueue(key, version=version)

    def enqueue_known(self, key: Key) -> None:
        """Reconciles the group of a changed StatefulSet or pod now, unless the group is gone."""
        self._queue.enqueue_known(key)

    @property
    def ended_s(self) -> float:
        """When a reconcile last ended, in monotonic seconds."""
        return self._queue.reconcile_ended_s

    def tasks(self) -> tuple[TaskHealth, ...]:
        """The state of each group's task."""
        return self._queue.tasks()

    async def close(self) -> None:
        """Cancels all reconciles; the next start continues what they were doing."""
        await self._queue.close()

    async def _guarded_reconcile(self, key: Key) -> Requeue:
        group, began_s = self._groups.setdefault(key, _GroupState()), self._clock.monotonic_s()
        group.answered = None
        result, after_s = await self._result(key, group)
        self._listener.reconciled(result, self._clock.monotonic_s() - began_s)
        if after_s is None:
            del self._groups[key]
        return Requeue(after_s=after_s, answered=group.answered)

    async def _result(self, key: Key, group: _GroupState) -> tuple[str, float | None]:
        """How it went, and seconds until the next reconcile; None: the object no longer exists."""
        document: Document | None = None
        try:
            try:
                document = await self._kube.get(CONSUMER_GROUP, key.namespace, key.name)
            except ManagedElsewhere as other:
                await self._keep_off(other, key, group)
                return "success", MAX_BACKOFF_S
            if document is None:
                self._listener.deleted(key.namespace, key.name)
                return "success", None
            group.elsewhere = ""
            after_s = await self._reconcile(key, document, group)
        except (KubeError, LogHubException, ActionRefused) as error:
            group.failures += 1
            self._listener.unobserved(key.namespace, key.name, ())
            log.warning("reconcile failed", namespace=key.namespace, name=key.name, error=str(error))
            await self._after_failure(document, error, group)
            return "error", backoff_s(group.failures, first_s=2 * SOON_S, max_s=MAX_BACKOFF_S)
        except Exception as error:
            # A fault of ours in one group must not end its task for good, nor the others.
            group.failures += 1
            log.exception("reconcile panicked", namespace=key.namespace, name=key.name)
            await self._after_failure(document, error, group, fault=True)
            return "panic", MAX_BACKOFF_S
        group.failures = 0
        return "success", after_s

    async def _keep_off(self, other: ManagedElsewhere, key: Key, group: _GroupState) -> None:
        """Writes an event and nothing else. What is remembered will be out of date if this one takes over."""
        self._listener.managed_elsewhere(key.namespace, key.name, other.operator)
        is_new = group.elsewhere != other.operator
        group.elsewhere, group.memory, group.failures = other.operator, None, 0
        if is_new:
            log.warning("kept off", namespace=key.namespace, name=key.name, operator=other.operator)
            await self._carry_out(without_spec(other.document), (kept_off(other.operator),), None)

    async def _after_failure(
        self, document: Document | None, error: Exception, group: _GroupState, *, fault: bool = False
    ) -> None:
        """Reports a fault of ours, and ends a deletion that could not be carried out within its bound. This
        must not raise, or the task of the group would end."""
        if document is None:
            return
        try:
            resource, now = without_spec(document), self._clock.unix_s()
            if fault:
                planned = plan_failed(resource, error, now)
                metadata = resource.metadata
                self._listener.unobserved(metadata.namespace, metadata.name, planned.status.conditions)
                await self._report(resource, planned.status, group)
                await self._carry_out(resource, planned.actions, None)
            if resource.metadata.deletion_timestamp is None:
                return
            group.memory = remembered(group.memory, now)
            if waited_s(resource.metadata, group.memory, now) > group.deletion_bound_s:
                await self._carry_out(resource, (given_up(error),), None)
                await self._applier.release(resource)
        except Exception:
            log.exception("failure not reported", name=str(document.get("metadata", {}).get("name")))

    async def _reconcile(self, key: Key, document: Document, group: _GroupState) -> float | None:
        # 1. The object as it is stored now; one that cannot be parsed is only reported.
        try:
            resource = _parsed(document)
        except InvalidResourceError as error:
            log.error("object rejected", namespace=key.namespace, name=key.name, error=str(error))
            await self._report_invalid(without_spec(document), error, group)
            return MAX_BACKOFF_S
        group.deletion_bound_s = bound_s(resource)
        # 2. Observe, decide, and act up to the first action that fails.
        subject = await self._observe(resource, group)
        planned, failure = plan(subject, self._clock.unix_s()), None
        _log_owner(key, group, planned.owner)
        try:
            await self._carry_out(resource, planned.actions, subject.observed.group_record)
        except (KubeError, LogHubException, ActionRefused) as raised:
            failure = raised
        # 3. Report, also what failed; only then does the failure end the reconcile.
        outcome = finish(subject, planned, failure, self._clock.unix_s(), passes=_passes(failure))
        group.memory, status = outcome.memory, outcome.status
        self._publish(key, planned, status)
        reported = await self._report(resource, status, group)
        if outcome.error is not None:
            raise outcome.error
        # 4. The next one comes soon after a change, and less and less often while nothing changes.
        group.unchanged = 0 if planned.actions or reported else group.unchanged + 1
        pause = requeue_after_s(
            planned.actions, status, unchanged=group.unchanged, resync_s=self._intervals.resync_s
        )
        return jitter(pause, f"{key.namespace}/{key.name}")

    async def _observe(self, resource: LogHubConsumerGroup, group: _GroupState) -> Subject:
        """Observes the group, and compares its objects with what should run."""
        try:
            observed = await self._observer.observe(resource)
            subject = subject_of(resource, observed, group.memory)
            drift = await self._observer.drift(subject.workers, observed.worker_set)
        except KubeError as error:
            if error.status == FORBIDDEN and group.failures >= FORBIDDEN_AFTER:
                await self._report_forbidden(resource, error, group)
            raise
        group.answered = not _is_unreachable(observed)
        return replace(subject, drift=drift)

    def _publish(self, key: Key, planned: Plan, status: Status) -> None:
        if planned.metrics is None:
            self._listener.deleted(key.namespace, key.name)
        else:
            self._listener.observed(planned.metrics, status.conditions)

    async def _report_invalid(
        self, resource: LogHubConsumerGroup, error: InvalidResourceError, group: _GroupState
    ) -> None:
        """Write the status first: it records that the event was emitted."""
        planned = plan_invalid(resource, error, self._clock.unix_s())
        metadata = resource.metadata
        if metadata.deletion_timestamp is None:
            self._listener.unobserved(metadata.namespace, metadata.name, planned.status.conditions)
        else:
            self._listener.deleted(metadata.namespace, metadata.name)
        await self._report(resource, planned.status, group)
        await self._carry_out(resource, planned.actions, None)

    async def _report_forbidden(
        self, resource: LogHubConsumerGroup, error: KubeError, group: _GroupState
    ) -> None:
        """Without this, the status from before the permission was removed would stay forever."""
        why, generation, now = UncheckedReason.FORBIDDEN, resource.metadata.generation, self._clock.unix_s()
        status = unchecked_status(resource.status, why, error_message(error), generation=generation, now=now)
        self._listener.unobserved(resource.metadata.namespace, resource.metadata.name, status.conditions)
        await self._report(resource, status, group)

    async def _carry_out(
        self, resource: LogHubConsumerGroup, actions: Sequence[Action], record: GroupRecord | None
    ) -> None:
        for action in actions:
            if isinstance(action, EmitEvent) and action.reason == GROUP_ORPHANED:
                self._report_orphan(resource, action)
            try:
                await self._applier.carry_out(resource, action, group_record=record)
            except KubeError as error:
                if not isinstance(action, EmitEvent):
                    raise
                # An event is a courtesy; a terminating namespace accepts none.
                log.warning("event not recorded", name=resource.metadata.name, error=str(error))
                continue
            log.info(
                "action completed",
                namespace=resource.metadata.namespace,
                name=resource.metadata.name,
                action=type(action).__name__,
            )

    def _report_orphan(self, resource: LogHubConsumerGroup, event: EmitEvent) -> None:
        """A terminating namespace accepts no event, and the object's status ends with it."""
        metadata = resource.metadata
        log.warning("group left behind", namespace=metadata.namespace, name=metadata.name, why=event.message)
        self._listener.group_left_behind()

    async def _report(self, resource: LogHubConsumerGroup, status: Status, group: _GroupState) -> bool:
        """Write the status if it says something new; whether it did."""
        since_s = self._clock.monotonic_s() - group.written_monotonic_s
        every_s = self._intervals.numbers_every_s
        if not worth_writing(resource.status, status, since_last_s=since_s, numbers_every_s=every_s):
            return False
        try:
            version = await self._applier.write_status(resource, status)
            self._queue.wrote(Key(resource.metadata.namespace, resource.metadata.name), version)
        except KubeError as error:
            if error.status not in (404, 409):  # just released, or recreated
                raise
        group.written_monotonic_s = self._clock.monotonic_s()
        return True


def _parsed(document: Document) -> LogHubConsumerGroup:
    """Raises `InvalidResourceError`; not if the object is being deleted and says what to delete."""
    try:
        return parse_stored(document)
    except InvalidResourceError:
        deleted = document["metadata"].get("deletionTimestamp") and parse_for_deletion(document)
        if not deleted:
            raise
        return deleted


def _log_owner(key: Key, group: _GroupState, owner: Peer | None) -> None:
    """Says who owns the group to those who run the operator; the status must not, because its reader may
    have no right to know the objects of another namespace."""
    if owner != group.owner:
        group.owner = owner
        named = str(owner) if owner else "this object"
        log.info("owner of the consumer group", namespace=key.namespace, name=key.name, owner=named)


def _passes(error: Exception | None) -> bool:
    """Whether the API server was away or busy, or another client wrote at the same moment."""
    return isinstance(error, KubeError) and (error.status in (0, 409, 429) or error.status >= 500)


def _is_unreachable(observed: ObservedState) -> bool:
    service = observed.service
    return isinstance(service, Unavailable) and service.reason is ServiceErrorReason.ENDPOINT_UNREACHABLE
