"""The types that observing, planning and applying exchange.

`loghub_operator.observe.observer` (cluster) and `loghub_operator.local` (processes) fill an `ObservedState`;
`loghub_operator.plan.planner.plan` turns it into a `Plan`; the two executors carry out its actions.

Both loops are the same: observe, ``plan(resource, observed, now)``, carry out the actions in their order,
stop at the first one that fails (the next reconcile observes the result), then write the status. Every action
is idempotent. ``now`` and all ``*_unix_s`` are unix seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from loghub_operator.api.adoption import GroupOrigin
from loghub_operator.api.status import ShardStateText
from loghub_operator.model.drift_state import NO_DRIFT_HISTORY, DriftHistory
from loghub_operator.model.reposition import MoveObserved
from loghub_operator.model.scaling_state import NOTHING, ScalingState


class ServiceErrorReason(StrEnum):
    """Why the log service cannot be used.

    CREDENTIALS_MISSING: the Secret or a key in it does not exist, or the operator may not read it.
    ENDPOINT_UNREACHABLE: the endpoint does not answer (DNS, connection, TLS or timeout).
    AUTHENTICATION_FAILED: the access key is unknown, the signature is wrong, or the permission is not
    granted. PROJECT_NOT_FOUND, LOGSTORE_NOT_FOUND: the endpoint answers, and the project or logstore does
    not exist. REQUEST_REJECTED: the service rejected the request for another reason; the message contains
    its error."""

    CREDENTIALS_MISSING = "CredentialsMissing"
    ENDPOINT_UNREACHABLE = "EndpointUnreachable"
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    PROJECT_NOT_FOUND = "ProjectNotFound"
    LOGSTORE_NOT_FOUND = "LogstoreNotFound"
    REQUEST_REJECTED = "RequestRejected"


class WorkerPhase(StrEnum):
    """A worker as its executor observes it.

    PENDING: requested, not started (no node, or its image is being pulled). STARTING: started, not yet ready.
    RUNNING: ready. STOPPING: it was asked to terminate and has not yet. LEFT: it reported that it left the
    group, and waits to be stopped. FAILED: it terminated or cannot start; ``reason`` and ``message`` are what
    it (or its pod) reported last. A failed worker is restarted by its executor, and stays FAILED here until
    it is ready again or its settings change.
    """

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    LEFT = "left"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """The Python files of ``spec.pipeline.python.configMap``, as they are now."""

    files: Mapping[str, str] = field(default_factory=dict)  # name -> text
    trouble: str = ""  # why the workers cannot have them, as a message for users


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the workers run: what differs between a cluster and one machine."""

    endpoint: str  # URL of the log service, from the CR or of the embedded service
    sink_root: str  # absolute folder in which a claim's content is: "/sink", or <state>/volumes/<claim>
    needs_project_address: bool  # `project` is reached by a Service of that name
    code_root: str = ""  # the same for the claim with the pipeline's code
    code: Code = Code()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceError:
    """Why the log service is unavailable, as a message for users; never contains a key."""

    reason: ServiceErrorReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupObserved:
    """The consumer group at the log service."""

    timeout_s: int
    order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardObserved:
    """One shard; None is unknown. ``state`` is as on the wire, or "unknown".

    Keys (32 hex digits) and ``created_unix_s`` are requested only if shards may be split or merged.
    """

    shard: int
    state: ShardStateText
    holder: str = ""
    next_holder: str = ""
    checkpoint: str = ""  # cursor as on the wire
    checkpoint_unix_s: float | None = None
    lag_s: float | None = None
    lag_logs: int | None = None
    lag_groups: int | None = None
    end_cursor: str = ""  # of the next write, as on the wire
    read_only: bool = False
    parents: tuple[int, ...] = ()
    begin_key: str = ""
    end_key: str = ""
    created_unix_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceObserved:
    """One observation of the log service.

    If ``trouble`` is set, everything else is unknown. ``group`` None without ``trouble``: the group does not
    exist. ``shards`` are those of the logstore; while the group does not exist they are ``not_alloc``.
    ``consumers`` are the live ones, None if the endpoint cannot report them. ``other_groups`` counts all
    others on the same logstore, if shards may be merged. ``lag_trouble`` says why the lag of some shard is
    unknown, as a message for users.
    """

    trouble: ServiceError | None = None
    group: GroupObserved | None = None
    shards: tuple[ShardObserved, ...] = ()
    consumers: tuple[str, ...] | None = None
    other_groups: int = 0
    lag_trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerObserved:
    """One worker that exists: a pod, or a local process with its name."""

    name: str  # the consumer name
    ordinal: int
    phase: WorkerPhase
    ready: bool
    config_hash: str  # of the settings that it runs with
    drain_requested: bool  # it was asked to drain and leave the group
    drain_requested_at_unix_s: float | None = None  # the first time
    reason: str = ""  # one CamelCase word, as it or its pod reported last
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStatefulSet:
    """What the executor was last asked to run (the StatefulSet), regardless of what runs now."""

    replicas: int
    config_hash: str
    drifted: bool = False  # besides replicas and settings, something is not as the operator writes it
    rolls: bool = False  # the pods differ in more than the settings: applying replaces them
    drift: tuple[str, ...] = ()  # fields that another client changed, such as "Service x spec.ports"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Peer:
    """Another object that refers to the same consumer group; the smaller one is the older one."""

    created: str  # RFC 3339, as the apiserver writes it
    namespace: str
    name: str
    leaving: bool = field(default=False, compare=False)  # its deletion was requested

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedState:
    """Everything that a decision may use, besides the resource itself and the time."""

    at_unix_s: float
    site: Placement
    service: ServiceObserved
    worker_set: ObservedStatefulSet | None  # None: never applied, or removed
    workers: tuple[WorkerObserved, ...] = ()  # by ordinal
    project_address: bool = True  # the project's name resolves, or needs no Service
    held: bool = True  # the operator's finalizer is on the object
    group_origin: GroupOrigin | None = None  # as recorded on the object
    memory: ScalingState = NOTHING  # `Plan.memory` of the previous reconcile
    mends: DriftHistory = NO_DRIFT_HISTORY  # `Plan.mends` of the last reconcile that carried out all actions
    peers: tuple[Peer, ...] = ()  # the other objects that refer to the group
    move: MoveObserved | None = None
