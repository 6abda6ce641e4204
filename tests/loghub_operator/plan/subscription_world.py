"""One object that consumes a subscription, reconciled round by round: its pods, and the log service.

A pod joins the subscription in the round after it was started, and a pod that was asked to drain has left in
the round after that. Logs arrive at ``arrival_per_s``, and each connected consumer acknowledges
``rate_per_s``, as long as the state of the subscription lets logs flow.
"""

from dataclasses import dataclass, field, replace

from loghub.domain.subscription import SubscriptionState
from loghub.wire import cursor as wire_cursor
from loghub_operator.api import parse_resource
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.model import actions
from loghub_operator.model.actions import Action, EmitEvent
from loghub_operator.model.memory import NO_MEMORY, Memory
from loghub_operator.model.observed import (
    NO_FAILURES,
    Available,
    LogServiceObserved,
    ObservedState,
    ObservedStatefulSet,
    OtherLogstore,
    Peer,
    Placement,
    ShardFailures,
    ShardObserved,
    Unavailable,
    WorkerObserved,
    WorkerPhase,
)
from loghub_operator.model.revision import WorkerSpec
from loghub_operator.model.subscription import ShardDelivery, SubscriptionKind, SubscriptionObserved
from tests.loghub_operator.support.examples import Document, document, merge
from tests.loghub_operator.support.golden import EPOCH, SameTemplate
from tests.loghub_operator.support.rounds import plan

STEP_S = 5.0
SHARDS = 2


@dataclass
class Pod:
    spec: WorkerSpec
    drain_unix_s: float | None = None
    left: bool = False


@dataclass
class World:
    """``others`` are connected consumers that are no workers of the object. ``apart``: the workers run, and
    are not connected for the moment.
    """

    spec: Document
    stored: SubscriptionKind | None = None
    others: tuple[str, ...] = ()
    apart: bool = False
    peers: tuple[Peer, ...] = ()
    unavailable: Unavailable | None = None
    state: SubscriptionState | None = None
    held_slots: int = 0
    retries: OtherLogstore | None = None
    failures: ShardFailures = NO_FAILURES
    arrival_per_s: float = 0.0
    rate_per_s: float = 100.0
    backlog: float = 0.0
    acknowledged: float = 0.0
    now: float = EPOCH
    replicas: int | None = None
    applied: WorkerSpec | None = None
    pods: dict[int, Pod] = field(default_factory=dict)
    record: GroupRecord | None = None
    finalizer: bool = False
    released: bool = False
    memory: Memory = NO_MEMORY
    events: list[EmitEvent] = field(default_factory=list)
    done: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        created = "2026-01-01T00:00:00Z"
        self.document = document(self.spec, uid="uid-1", generation=1, creationTimestamp=created)
        self.document["status"] = {}

    def edit(self, spec: Document) -> None:
        merge(self.document["spec"], spec)
        self.document["metadata"]["generation"] += 1

    def delete(self) -> None:
        self.document["metadata"]["deletionTimestamp"] = "2026-09-21T14:13:20Z"

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(f"access-{ordinal}" for ordinal, pod in sorted(self.pods.items()) if not pod.left)

    @property
    def consumers(self) -> tuple[str, ...]:
        own = () if self.apart else self.members
        return (*own, *self.others) if self.stored is not None else ()

    def round(self) -> tuple[Action, ...]:
        """One reconcile, and the time until the next one."""
        resource = parse_resource(self.document)
        observed = self.observed()
        planned = plan(resource, observed, self.now)
        for action in planned.actions:
            self._carry_out(action)
        self.document["status"] = planned.status.to_dict()
        self.memory = planned.memory
        self.done += planned.actions
        for pod in self.pods.values():
            pod.left = pod.left or pod.drain_unix_s is not None
        self._consume()
        self.now += STEP_S
        return planned.actions

    def rounds(self, count: int) -> "World":
        for _ in range(count):
            self.round()
        return self

    def run_for(self, seconds: float) -> "World":
        return self.rounds(int(seconds / STEP_S))

    def condition(self, kind: str) -> tuple[str, str, str]:
        found = next(one for one in self.document["status"]["conditions"] if one["type"] == kind)
        return found["status"], found["reason"], found["message"]

    def _consume(self) -> None:
        self.backlog += self.arrival_per_s * STEP_S
        flows = self.state is None or self.state is SubscriptionState.FLOWING
        able = len(self.consumers) * self.rate_per_s * STEP_S if flows else 0.0
        done = min(self.backlog, able)
        self.backlog -= done
        self.acknowledged += done

    def _carry_out(self, action: Action) -> None:
        match action:
            case actions.RecordGroupOrigin(record):
                self.record, self.finalizer = record, True
            case actions.AddFinalizer():
                self.finalizer = True
            case actions.CreateGroup() | actions.UpdateGroup():
                assert isinstance(action.settings, SubscriptionKind)
                assert self.stored is None or not self.consumers, "the log service refuses it"
                self.stored = action.settings
            case actions.DeleteGroup():
                self.stored = None
            case actions.ApplyWorkers(replicas=replicas, spec=spec):
                self.replicas, self.applied = replicas, spec
                kept = {number: pod for number, pod in self.pods.items() if number < replicas}
                self.pods = {number: kept.get(number) or Pod(spec) for number in range(replicas)}
            case actions.DrainWorker(consumer):
                self.pods[int(consumer.rpartition("-")[2])].drain_unix_s = self.now
            case actions.RemoveWorkers():
                self.replicas, self.pods = None, {}
            case actions.RemoveFinalizer():
                self.released = True
            case actions.EmitEvent():
                self.events.append(action)
            case _:
                raise AssertionError(action)

    def observed(self) -> ObservedState:
        return ObservedState(
            at_unix_s=self.now,
            placement=Placement(endpoint="http://loghub.svc", sink_root="/sink", needs_project_address=False),
            environment=SameTemplate(),
            service=self.unavailable or self._service(),
            worker_set=self._worker_set(),
            workers=tuple(self._worker(number, pod) for number, pod in sorted(self.pods.items())),
            has_finalizer=self.finalizer,
            group_record=self.record,
            last_initial_shard=SHARDS - 1,
            memory=self.memory,
            peers=self.peers,
            failures=self.failures,
        )

    def _worker_set(self) -> ObservedStatefulSet | None:
        if self.replicas is None or self.applied is None:
            return None
        return ObservedStatefulSet(replicas=self.replicas, revision=self.applied.revision)

    def _worker(self, ordinal: int, pod: Pod) -> WorkerObserved:
        return WorkerObserved(
            name=f"access-{ordinal}",
            ordinal=ordinal,
            phase=WorkerPhase.LEFT if pod.left else WorkerPhase.RUNNING,
            ready=not pod.left,
            revision=pod.spec.revision,
            drain_requested=pod.drain_unix_s is not None,
            drain_requested_at_unix_s=pod.drain_unix_s,
        )

    def _service(self) -> LogServiceObserved:
        state = self.state or (SubscriptionState.FLOWING if self.consumers else SubscriptionState.NO_CONSUMER)
        backlog = int(self.backlog)
        shards = tuple(
            ShardObserved(
                shard=number,
                state="already_alloc" if self.consumers else "not_alloc",
                checkpoint=wire_cursor.encode(7),
                lag_s=float(backlog),
                lag_logs=backlog // SHARDS,
                end_cursor=wire_cursor.encode(9),
                delivery=None if self.stored is None else ShardDelivery(state=state, acked_ranges=3),
            )
            for number in range(SHARDS)
        )
        service = Available(shards=shards, consumers=self.consumers, retries=self.retries)
        if self.stored is None:
            return service
        seen = SubscriptionObserved(
            settings=self.stored,
            state=state,
            backlog_logs=backlog,
            unacked_logs=min(backlog, 10),
            redelivered_logs=4,
            acknowledged_logs=int(self.acknowledged),
            oldest_unacked_s=float(backlog),
            held_slots=self.held_slots,
        )
        return replace(service, subscription=seen)
