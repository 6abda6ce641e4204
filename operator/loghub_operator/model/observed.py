"""The types that observing, planning and applying exchange.

`loghub_operator.observe.observer` (cluster) and `loghub_cli.up` (processes) fill an `ObservedState`;
`loghub_operator.plan.planner.plan` turns it into a `Plan`; the two backends carry out its actions.

Both loops do the same: observe, plan, carry out the actions in their order, stop at the first one that fails
(the next reconcile observes the result), then write the status. Every action is idempotent. ``now`` and all
``*_unix_s`` are unix seconds.

A worker runs the user's code, so its report on logs that it cannot deliver, and on the state of a stateful
pipeline, is not trusted: what does not look like a report is left out, and the number of entries is bounded.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec

from loghub.contract.worker import (
    MAX_REASON,
    FailingShard,
    IncompleteState,
    KeptState,
    SkippedLogGroups,
    WorkerConfig,
    WorkerStatus,
    is_error_class,
)
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.api.status import CheckpointResetPhase, ShardStateText
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.memory import NO_MEMORY, Memory
from loghub_operator.model.revision import Document, Revision, WorkerSpec
from loghub_operator.model.subscription import ShardDelivery, SubscriptionKind, SubscriptionObserved


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBackup:
    """What was saved before the checkpoints changed; shard -> cursor, "" for none."""

    requested_at: str  # as in the status of the reset that it belongs to
    before: Mapping[int, str]
    targets: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoints:
    """What is stored about a reset, apart from the object; `ResetObserved` explains ``source``."""

    backup: CheckpointBackup | None = None
    source: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetObserved:
    """What a checkpoint reset needs to know; observed only while a reset is in progress.

    ``positions`` are cursors read now: the targets of the reset or, with ``to: ConfigMap``, where a shard
    without a checkpoint begins. ``source`` is the ConfigMap of the reset, None if it does not exist.
    """

    backup: CheckpointBackup | None = None
    positions: Mapping[int, str] = field(default_factory=dict)
    ends: Mapping[int, str] = field(default_factory=dict)
    source: Mapping[str, str] | None = None
    error: str = ""  # why something of it could not be read, as a message for users


def needs_observation(resource: LogHubConsumerGroup) -> bool:
    """Whether a reset is in a phase that needs `ObservedState.reset`. A deletion finishes one that has
    begun to change checkpoints, and begins none."""
    last = resource.status.checkpoint_reset
    if last is None or last.nonce != resource.spec.reset_nonce:
        return False
    if resource.metadata.deletion_timestamp is not None:
        return last.phase == CheckpointResetPhase.COMMITTING
    return last.phase in (CheckpointResetPhase.STOPPING_WORKERS, CheckpointResetPhase.COMMITTING)


def backup_name(resource: LogHubConsumerGroup) -> str:
    """Name of the ConfigMap that this reset leaves for undo."""
    return f"{resource.metadata.name}-checkpoints-{resource.spec.reset_nonce}"


MAX_ENTRIES = 1000  # of all workers of a group together
T = TypeVar("T", FailingShard, SkippedLogGroups)
_CURSOR = re.compile(r"[A-Za-z0-9+/=]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFailures:
    """The failing shards of a group. ``unreported`` are the workers whose report is not known, although they
    are ready."""

    failing: tuple[FailingShard, ...] = ()
    skipped: tuple[SkippedLogGroups, ...] = ()
    unreported: tuple[str, ...] = ()


NO_FAILURES = ShardFailures()


def shard_failures(statuses: Mapping[str, WorkerStatus | None], *, ready: Collection[str]) -> ShardFailures:
    """What these workers report, by shard; ``ready`` are the names of the ready ones."""
    reports = [status for name, status in statuses.items() if status is not None and status.consumer == name]
    failing = (_checked(one) for status in reports for one in status.failing if _is_failing(one))
    skipped = (one for status in reports for one in status.skipped if _CURSOR.fullmatch(one.last_cursor))
    answered = {status.consumer for status in reports}
    return ShardFailures(
        failing=_first(failing),
        skipped=_first(skipped),
        unreported=tuple(sorted(name for name in ready if name not in answered)),
    )


def _is_failing(shard: FailingShard) -> bool:
    is_reason = shard.reason.isalnum() and len(shard.reason) <= MAX_REASON
    return is_reason and _CURSOR.fullmatch(shard.cursor) is not None


def _checked(shard: FailingShard) -> FailingShard:
    """An unknown error class, perhaps of a newer worker, is left out, and the shard is still reported."""
    return shard if is_error_class(shard.error) else msgspec.structs.replace(shard, error="")


def _first(entries: Iterable[T]) -> tuple[T, ...]:
    return tuple(sorted(entries, key=lambda one: one.shard)[:MAX_ENTRIES])


LATE_S = 3600.0  # how long rows that were dropped as late are reported


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReports:
    """The shards whose state lacks earlier logs, and the workers that dropped rows as late within an hour,
    with their states. ``continued`` are the shards without a checkpoint that continued by the sink's record,
    with that cursor. ``unreported`` are the workers whose report is not known, although they are ready."""

    incomplete: tuple[IncompleteState, ...] = ()
    late: tuple[tuple[str, KeptState], ...] = ()
    continued: tuple[tuple[int, str], ...] = ()
    unreported: tuple[str, ...] = ()


NO_STATE_REPORTS = StateReports()


def state_reports(statuses: Mapping[str, WorkerStatus | None], *, ready: Collection[str]) -> StateReports:
    """What these workers report, by shard; ``ready`` are the names of the ready ones."""
    reports = [status for name, status in statuses.items() if status is not None and status.consumer == name]
    incomplete = (one for status in reports for one in status.incomplete if _CURSOR.fullmatch(one.cursor))
    kept = ((status.consumer, status.state) for status in reports if status.state is not None)
    late = sorted((one for one in kept if _is_late(one[1])), key=lambda one: one[0])
    answered = {status.consumer for status in reports}
    return StateReports(
        incomplete=tuple(sorted(incomplete, key=lambda one: one.shard)[:MAX_ENTRIES]),
        late=tuple(late[:MAX_ENTRIES]),
        continued=tuple(sorted(_continued(reports))[:MAX_ENTRIES]),
        unreported=tuple(sorted(name for name in ready if name not in answered)),
    )


def _continued(statuses: Iterable[WorkerStatus]) -> Iterator[tuple[int, str]]:
    for shard in (shard for status in statuses for shard in status.shards):
        if shard.sink_cursor is not None and _CURSOR.fullmatch(shard.sink_cursor):
            yield shard.shard, shard.sink_cursor


def _is_late(state: KeptState) -> bool:
    return state.late_rows > 0 and state.late_age_s is not None and state.late_age_s < LATE_S


class ServiceErrorReason(StrEnum):
    """Why the log service cannot be used.

    CREDENTIALS_MISSING: the Secret or a key in it does not exist, or the operator may not read it.
    INSECURE_ENDPOINT: the endpoint is `http` to a host outside the cluster and its private network, where
    keys and logs could be read, or its host is link-local or the metadata address of a cloud, where no log
    service is. No request is sent. Use `https` and the host name of the log service, or let the administrator
    allow the host.
    ENDPOINT_UNREACHABLE: the endpoint does not answer (DNS, connection, TLS or timeout).
    AUTHENTICATION_FAILED: the access key is unknown, the signature is wrong, or the permission is not
    granted. THROTTLED: a quota of the project is exhausted, or the service is busy; what else uses the
    project counts too. Nothing changes, and the operator asks less often, up to every five minutes; raise
    the quota.
    PROJECT_NOT_FOUND, LOGSTORE_NOT_FOUND: the endpoint answers, and the project or logstore does
    not exist. SUBSCRIPTION_UNSUPPORTED: the endpoint has no subscriptions, which only the embedded service of
    this release has. No worker is started. Use the embedded service, or create an object without
    spec.subscription: a consumer group is what Failover is, and fan_out of the consumer library deals the
    logs of a shard to threads by key. REQUEST_REJECTED: the service rejected the request for another reason;
    the message contains its error."""

    CREDENTIALS_MISSING = "CredentialsMissing"
    INSECURE_ENDPOINT = "InsecureEndpoint"
    ENDPOINT_UNREACHABLE = "EndpointUnreachable"
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    THROTTLED = "Throttled"
    PROJECT_NOT_FOUND = "ProjectNotFound"
    LOGSTORE_NOT_FOUND = "LogstoreNotFound"
    SUBSCRIPTION_UNSUPPORTED = "SubscriptionUnsupported"
    REQUEST_REJECTED = "RequestRejected"


class WorkerPhase(StrEnum):
    """A worker as its backend observes it.

    PENDING: requested, not started (no node, or its image is being pulled). STARTING: started, not yet ready.
    RUNNING: ready. STOPPING: it was asked to terminate and has not yet. LEFT: it reported that it left the
    group, and waits to be stopped. FAILED: it terminated or cannot start; ``reason`` and ``message`` are what
    it (or its pod) reported last. A failed worker is restarted by its backend, and stays FAILED here until
    it is ready again or its settings change.
    """

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    LEFT = "left"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCodeFiles:
    """The Python files of ``spec.pipeline.python.configMap``, as they are now."""

    files: Mapping[str, str] = field(default_factory=dict)  # name -> text
    error: str = ""  # why the workers cannot have them, as a message for users


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the workers run: what differs between a cluster and one machine."""

    endpoint: str  # URL of the log service, from the CR or of the embedded service
    sink_root: str  # absolute folder in which a claim's content is: "/sink", or <state>/volumes/<claim>
    needs_project_address: bool  # workers reach each project by a Service of that name
    code_root: str = ""  # of the claim with the pipeline's code
    dead_letter_root: str = ""  # of the claim of the dead letter
    log_root: str = ""  # of the claim of the log file
    has_pods: bool = False  # workers are pods, and can make others
    code: UserCodeFiles = UserCodeFiles()


class WorkerEnvironment(Protocol):
    """What runs workers: pods with the administrator's defaults, or processes of this machine."""

    def worker_spec(self, resource: LogHubConsumerGroup, config: WorkerConfig) -> WorkerSpec:
        """Everything that is applied for workers with these settings. Pure."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What the log service stores of a consumer group."""

    timeout_s: int
    order: bool


Stored = GroupSettings | SubscriptionKind  # of what an object consumes


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardObserved:
    """One shard; None is unknown. ``state`` is as on the wire, or "unknown".

    Keys (32 hex digits) and ``created_unix_s`` are requested only if shards may be split or merged.
    ``beyond_end``: the position of the group lies beyond the end of the shard, because logs were lost.
    ``delivery`` is set in a subscription, whose mark-delete position is the ``checkpoint``.
    """

    shard: int
    state: ShardStateText
    holder: str = ""
    next_holder: str = ""
    checkpoint: str = ""  # cursor as on the wire
    checkpoint_unix_s: float | None = None
    checkpoint_consumer: str = ""  # who saved it; "" if that is not reported
    lag_s: float | None = None
    lag_logs: int | None = None
    lag_groups: int | None = None
    end_cursor: str = ""  # of the next write, as on the wire
    beyond_end: bool = False
    read_only: bool = False
    parents: tuple[int, ...] = ()
    begin_key: str = ""
    end_key: str = ""
    created_unix_s: float | None = None
    delivery: ShardDelivery | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLogstore:
    """What a logstore has to which the workers write what fails: of the retry logstore what is left to retry,
    of the dead letter everything. None: unknown, and ``error`` says why, as a message for users."""

    log_groups: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """The log service answered all questions of one observation.

    ``group`` is what the log service stores of a consumer group, ``subscription`` is a subscription; both are
    None if what the object consumes does not exist. ``shards`` are the shards of the logstore, which are
    ``not_alloc`` then. ``consumers`` are the live ones, None if the endpoint cannot report them.
    ``other_groups`` counts all others on the same logstore, subscriptions included, if shards may be merged.
    ``lag_error`` says why the lag of some shard is unknown, as a message for users. ``retries`` and
    ``dead_letter`` are None if the group has no such logstore.
    """

    group: GroupSettings | None = None
    subscription: SubscriptionObserved | None = None
    shards: tuple[ShardObserved, ...] = ()
    consumers: tuple[str, ...] | None = None
    other_groups: int = 0
    lag_error: str = ""
    retries: OtherLogstore | None = None
    dead_letter: OtherLogstore | None = None

    @property
    def stored(self) -> Stored | None:
        """What the log service stores of what the object consumes; None: it does not exist."""
        return self.group if self.subscription is None else self.subscription.settings

    @property
    def retry_groups(self) -> int | None:
        """The log groups that wait to be retried."""
        return 0 if self.retries is None else self.retries.log_groups

    @property
    def beyond_end(self) -> tuple[ShardObserved, ...]:
        """The shards that end before the position of the group."""
        return tuple(shard for shard in self.shards if shard.beyond_end)

    @property
    def in_transfer(self) -> tuple[ShardObserved, ...]:
        """The shards that are being handed over from one consumer to another."""
        return tuple(shard for shard in self.shards if shard.state == "transfer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """Why the log service cannot be used, as a message for users; never contains a key."""

    reason: ServiceErrorReason
    message: str


LogServiceObserved = Available | Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerObserved:
    """One worker that exists: a pod, or a local process with its name."""

    name: str  # the consumer name
    ordinal: int
    phase: WorkerPhase
    ready: bool
    revision: Revision  # that it was started with
    drain_requested: bool  # it was asked to drain and leave the group
    drain_requested_at_unix_s: float | None = None  # the first time
    reason: str = ""  # one CamelCase word, as it or its pod reported last
    message: str = ""
    ignored_settings: tuple[str, ...] = ()  # that its image does not know, as it reported


@dataclass(frozen=True, slots=True)
class WorkerNames:
    """The names that the workers of one object have as consumers; ``replicas`` of them should exist."""

    prefix: str
    replicas: int

    def of(self, ordinal: int) -> str:
        return f"{self.prefix}{ordinal}"

    def foreign(self, consumers: Iterable[str]) -> tuple[str, ...]:
        """The consumers whose names are no names of workers."""
        own = re.compile(re.escape(self.prefix) + "[0-9]+")
        return tuple(name for name in consumers if not own.fullmatch(name))

    def ordinals(self, consumers: Iterable[str]) -> tuple[int, ...]:
        """The ordinals of the consumers that have names of workers that should exist, in order."""
        own = re.compile(re.escape(self.prefix) + "(0|[1-9][0-9]{0,8})")
        matches = (own.fullmatch(name) for name in consumers)
        ordinals = (int(match[1]) for match in matches if match is not None)
        return tuple(sorted(ordinal for ordinal in ordinals if ordinal < self.replicas))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStatefulSet:
    """What the backend was last asked to run (the StatefulSet), regardless of what runs now.

    ``observed``: its own controller has observed the last change. ``document`` is the StatefulSet as it was
    read; processes of this machine have none.
    """

    replicas: int
    revision: Revision
    observed: bool = True
    refusal: str = ""  # why pods are missing, in the API server's words
    document: Document = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """An object that refers to the same consumer group. Times are as the apiserver writes them (RFC 3339)."""

    created: str
    namespace: str
    name: str
    access_since: str = ""  # when it first proved access to the group; "": it has not, or not lately
    leaving: bool = False  # its deletion was requested
    subscription: SubscriptionKind | None = None  # as which it consumes one; None: a consumer group

    def shares_with(self, other: "Peer") -> bool:
        """Whether both consume one subscription together: as the same, and with workers of other names."""
        same = self.subscription is not None and self.subscription == other.subscription
        return same and self.name != other.name

    @property
    def rank(self) -> tuple[bool, str, str, str, str]:
        """The owner is the smallest: the first to prove access, then the oldest."""
        return (not self.access_since, self.access_since, self.created, self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaddressedProject:
    """A project of the embedded service that workers cannot reach, because it has no Service. ``error`` says
    why it must not have one yet; it is "" if the log service answered that the project exists.
    """

    name: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedState:
    """Everything that a decision may use, besides the resource itself and the time."""

    at_unix_s: float
    placement: Placement
    environment: WorkerEnvironment
    service: LogServiceObserved
    worker_set: ObservedStatefulSet | None  # None: never applied, or removed
    workers: tuple[WorkerObserved, ...] = ()  # by ordinal
    unaddressed: tuple[UnaddressedProject, ...] = ()  # of the projects that the spec names
    has_finalizer: bool = True  # the operator's finalizer is on the object
    group_record: GroupRecord | None = None  # on the object
    record_annotated: bool = True  # its annotations say so too, not the status alone
    last_initial_shard: int | None = None  # as of now: what the record should say
    memory: Memory = NO_MEMORY  # of the previous reconcile
    peers: tuple[Peer, ...] = ()  # the other objects that refer to the group
    reset: ResetObserved | None = None  # only while a checkpoint reset is in progress
    failures: ShardFailures = NO_FAILURES  # what the workers report
    states: StateReports = NO_STATE_REPORTS  # what the workers of a stateful pipeline report

    @property
    def has_record(self) -> bool:
        """Whether the object has created or adopted the group."""
        return self.group_record is not None and self.group_record.is_about_ours

    @property
    def stored(self) -> Stored | None:
        """What the log service stores of what the object consumes; None: it does not exist, or that is not
        known."""
        return self.service.stored if isinstance(self.service, Available) else None

    @property
    def replicas(self) -> int:
        """How many workers the backend was last asked to run. Workers whose StatefulSet was deleted without
        them were requested too: a StatefulSet of fewer replicas would stop them without a drain.
        """
        if self.worker_set is not None:
            return self.worker_set.replicas
        return max((worker.ordinal + 1 for worker in self.workers), default=0)

    @property
    def ready_workers(self) -> int:
        return sum(worker.ready for worker in self.workers)
