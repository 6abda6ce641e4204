"""Observes one consumer group: its objects in the cluster and its group at the log service.

The observer fills `ObservedState`, from which `loghub_operator.plan` decides on the next actions. It only
reads.

Why pods are missing or do not start is found out in the API server's own words. A quota, a limit range, Pod
Security or a webhook refuses a pod before it exists, and a missing Secret or a volume of a lost node keeps
one from starting: neither is in the status of any object, only in a Warning event of the StatefulSet or the
pod. The events are requested only while there is something to explain.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from loghub.client.port import Credentials
from loghub.clock import Clock
from loghub.contract.worker import MAX_REASON, WorkerReason, WorkerStatus
from loghub.domain.state_inference import WorkerReport
from loghub_operator.api.adoption import is_attributed, read_record
from loghub_operator.api.fields import MAX_REPLICAS
from loghub_operator.api.labels import ANNOTATION_REVISION, FINALIZER, worker_selector
from loghub_operator.api.v1alpha1 import EMBEDDED, LogHubConsumerGroup
from loghub_operator.clients.kube import CONFIG_MAP, FORBIDDEN, POD, SERVICE, STATEFUL_SET, Kube, KubeError
from loghub_operator.logservice.access import LogServiceAccess
from loghub_operator.logservice.group_state import Unresolved
from loghub_operator.logservice.shard_cursors import last_initial_shard
from loghub_operator.model.memory import FieldPath
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    ObservedState,
    ObservedStatefulSet,
    Placement,
    ServiceErrorReason,
    StoredCheckpoints,
    UnaddressedProject,
    Unavailable,
    UserCodeFiles,
    WorkerObserved,
    WorkerPhase,
    backup_name,
    shard_failures,
    state_reports,
)
from loghub_operator.model.revision import Document, Revision, WorkerSpec
from loghub_operator.observe.drift_detector import DriftDetector
from loghub_operator.observe.group_index import GroupIndex
from loghub_operator.observe.pods import reports_of, statuses_of, worker_from_pod
from loghub_operator.resources import PodEnvironment, backup_in, is_observed, is_ours, leads_to_the_service
from loghub_operator.resources.metadata import (
    CODE_ROOT,
    DEAD_LETTER_ROOT,
    LOG_ROOT,
    SINK_ROOT,
    code_in,
    code_source,
)
from loghub_operator.settings import Settings

MAX_NOTE = 1000  # characters of an event in a condition, whose message has at most 1,024


async def refusal_of(kube: Kube, stateful_set: Document, workers: Sequence[WorkerObserved]) -> str:
    """Why the StatefulSet has fewer pods than it asks for; "" if that is not so, or nothing says why."""
    wanted = int(stateful_set["spec"].get("replicas", 0))
    if sum(one.ordinal < wanted for one in workers) >= wanted:
        return ""
    newest = await _newest(kube, stateful_set)
    return "" if newest is None else newest[1]


async def explained(
    kube: Kube, workers: Sequence[WorkerObserved], pods: Sequence[Document]
) -> tuple[WorkerObserved, ...]:
    """The workers, and of the first one that does not start without having said why, what keeps it."""
    result = list(workers)
    silent = (number for number, one in enumerate(workers) if one.phase is WorkerPhase.PENDING)
    number = next((number for number in silent if not workers[number].message), None)
    if number is None:
        return tuple(workers)
    pod = next(one for one in pods if one["metadata"]["name"] == workers[number].name)
    newest = await _newest(kube, pod)
    if newest is not None:
        reason, note = newest
        result[number] = replace(workers[number], reason=reason[:MAX_REASON], message=note)
    return tuple(result)


async def _newest(kube: Kube, of: Document) -> tuple[str, str] | None:
    """Reason and text of the newest Warning about the object. An operator that is newer than its chart has no
    right to ask, and goes on without."""
    metadata = of["metadata"]
    try:
        events = await kube.warnings(metadata.get("namespace", ""), metadata.get("uid", ""))
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return None
    if not events:
        return None
    newest = max(events, key=_last_seen)
    return str(newest.get("reason") or ""), str(newest.get("note") or "")[:MAX_NOTE]


def _last_seen(event: Document) -> str:
    """All times are RFC 3339 in UTC, so the texts sort by time."""
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return max(str(one) for one in times if one) if any(times) else ""


MAX_MESSAGE = 1000  # characters of a worker's message in a condition, whose message has at most 1,024


class Observer:
    """Observes any number of groups."""

    def __init__(
        self,
        *,
        kube: Kube,
        log_service: LogServiceAccess,
        group_index: GroupIndex,
        drift: DriftDetector,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._log_service = log_service
        self._group_index = group_index
        self._drift = drift
        self._settings = settings
        self._clock = clock

    async def observe(self, resource: LogHubConsumerGroup) -> ObservedState:
        """Makes one observation. Raises `KubeError`; an error of the log service is part of the result. A
        deletion applies nothing, so what would be applied is not observed for it."""
        ending = resource.metadata.deletion_timestamp is not None
        # 1. What the cluster has, and with which key the log service can be asked.
        placement = await self._placement(resource, ending=ending)
        pods, existing, without_service, credentials = await asyncio.gather(
            self._pods(resource),
            self._stateful_set(resource),
            self._without_service(resource, placement),
            self._log_service.credentials_or_reason(resource),
        )
        client = self._log_service.client_or_reason(resource, credentials)
        workers = self._workers(pods)
        # 2. The workers are asked while the log service is, which may need their reports for its answer. A
        # pod that is being replaced does not exist for a moment, and its name still holds shards.
        replicas = _replicas(existing) if existing else 0
        expected = range(min(replicas, MAX_REPLICAS))  # anyone who may scale it can ask for any number
        names = {*(resource.consumer(n) for n in expected), *(worker.name for worker in workers)}
        reading = asyncio.create_task(statuses_of(pods, names))

        async def reports(unresolved: Unresolved) -> dict[str, WorkerReport | None]:
            return reports_of(await reading, expected=names, timeout_s=unresolved.timeout_s)

        # 3. The group at the log service, and the positions that a checkpoint reset needs.
        service = await self._log_service.observe(resource, client, reports)
        recorded = read_record(resource)
        last_initial = last_initial_shard(recorded, service)
        reset = await self._log_service.observe_reset(
            resource,
            client,
            service,
            lambda: self._stored_checkpoints(resource),
            has_workers=bool(workers),
            last_initial_shard=last_initial,
        )
        statuses = await reading
        # 4. Why something is missing, which takes requests only where something is.
        if not ending:
            workers = await explained(self._kube, workers, pods)
        unaddressed = await self._unaddressed(resource, without_service, service, credentials)
        refusal = await refusal_of(self._kube, existing, workers) if existing and not ending else ""
        ready, settings = {one.name for one in workers if one.ready}, self._settings
        return ObservedState(
            at_unix_s=self._clock.unix_s(),
            placement=placement,
            environment=PodEnvironment(image=settings.worker_image, defaults=settings.worker_defaults),
            service=service,
            worker_set=_worker_set(existing, refusal) if existing else None,
            workers=tuple(_as_reported(one, statuses) for one in workers),
            unaddressed=unaddressed,
            has_finalizer=FINALIZER in resource.metadata.finalizers,
            group_record=recorded,
            record_annotated=is_attributed(resource),
            last_initial_shard=last_initial,
            peers=self._group_index.peers_of(resource),
            reset=reset,
            failures=shard_failures(statuses, ready=ready),
            states=state_reports(statuses, ready=ready),
        )

    async def drift(
        self, desired: WorkerSpec | None, worker_set: ObservedStatefulSet | None
    ) -> tuple[FieldPath, ...]:
        """The fields of what should run that another client has changed; reads the objects that it compares.
        Raises `KubeError`."""
        return await self._drift.drift(desired, worker_set)

    async def _pods(self, resource: LogHubConsumerGroup) -> list[Document]:
        metadata = resource.metadata
        return await self._kube.list(POD, metadata.namespace, worker_selector(metadata.name))

    def _workers(self, pods: list[Document]) -> tuple[WorkerObserved, ...]:
        now = self._clock.unix_s()
        workers = (worker_from_pod(pod, now) for pod in pods)
        return tuple(sorted((one for one in workers if one is not None), key=lambda one: one.ordinal))

    async def _stateful_set(self, resource: LogHubConsumerGroup) -> Document | None:
        metadata = resource.metadata
        existing = await self._kube.get(STATEFUL_SET, metadata.namespace, metadata.name)
        if (
            existing is None
            or existing["metadata"].get("deletionTimestamp")
            or not is_ours(resource, existing)
        ):
            return None
        return existing

    async def _placement(self, resource: LogHubConsumerGroup, *, ending: bool) -> Placement:
        placement = placement_of(resource, self._settings)
        if ending:
            return replace(placement, needs_project_address=False)
        return replace(placement, code=await self._code(resource))

    async def _stored_checkpoints(self, resource: LogHubConsumerGroup) -> StoredCheckpoints:
        name, namespace = backup_name(resource), resource.metadata.namespace
        existing = await self._kube.get(CONFIG_MAP, namespace, name)
        backup = None if existing is None else backup_in(existing)
        if existing is not None and (backup is None or not is_ours(resource, existing)):
            raise ValueError(f"ConfigMap {name} exists and does not belong to this object")
        # A backup has the targets, so their source is not needed any more.
        source = await self._reset_source(resource) if backup is None else None
        return StoredCheckpoints(backup=backup, source=source)

    async def _reset_source(self, resource: LogHubConsumerGroup) -> dict[str, str] | None:
        name = resource.spec.reset_source
        if name is None:
            return None
        source = await self._kube.get(CONFIG_MAP, resource.metadata.namespace, name)
        return None if source is None else dict(source.get("data") or {})

    async def _code(self, resource: LogHubConsumerGroup) -> UserCodeFiles:
        name = code_source(resource)
        if name is None:
            return UserCodeFiles()
        return code_in(resource, await self._kube.get(CONFIG_MAP, resource.metadata.namespace, name))

    async def _without_service(self, resource: LogHubConsumerGroup, placement: Placement) -> tuple[str, ...]:
        """The projects that the spec names and that no Service leads to; the consumed project comes first."""
        namespace, spec = self._settings.project_namespace, resource.spec
        if namespace is None or not placement.needs_project_address:
            return ()
        names = (spec.project, *spec.other_projects)
        addressed = await asyncio.gather(*(self._is_addressed(name, namespace) for name in names))
        return tuple(name for name, known in zip(names, addressed, strict=True) if not known)

    async def _is_addressed(self, project: str, namespace: str) -> bool:
        try:
            service = await self._kube.get(SERVICE, namespace, project)
        except KubeError as error:
            if error.status != FORBIDDEN:
                raise
            return False  # creating the Service fails with the same error, which the status reports
        return service is not None and leads_to_the_service(service, self._settings.project_port)

    async def _unaddressed(
        self,
        resource: LogHubConsumerGroup,
        names: tuple[str, ...],
        service: LogServiceObserved,
        credentials: Credentials | Unavailable,
    ) -> tuple[UnaddressedProject, ...]:
        """Whether each of the projects exists: else everybody who may write an object could have Services
        created, without a key of the log service. The project that is consumed has just been observed."""
        errors = [
            missing_project(service)
            if name == resource.spec.project
            else await self._log_service.project_error(resource, name, credentials)
            for name in names
        ]
        return tuple(
            UnaddressedProject(name=name, error=error) for name, error in zip(names, errors, strict=True)
        )


def _worker_set(existing: Document, refusal: str) -> ObservedStatefulSet:
    annotations = existing["metadata"].get("annotations") or {}
    return ObservedStatefulSet(
        replicas=_replicas(existing),
        revision=Revision.parse(annotations.get(ANNOTATION_REVISION, "")),
        observed=is_observed(existing),
        refusal=refusal,
        document=existing,
    )


def _replicas(stateful_set: Document) -> int:
    return int(stateful_set["spec"].get("replicas", 0))


def placement_of(resource: LogHubConsumerGroup, settings: Settings) -> Placement:
    """The placement of this group's workers in a cluster."""
    embedded = resource.spec.endpoint == EMBEDDED
    return Placement(
        endpoint=settings.endpoint(resource.spec.endpoint),
        sink_root=SINK_ROOT,
        code_root=CODE_ROOT,
        dead_letter_root=DEAD_LETTER_ROOT,
        log_root=LOG_ROOT,
        needs_project_address=embedded and settings.project_namespace is not None,
        has_pods=True,
    )


def missing_project(service: LogServiceObserved) -> str:
    """Why it is not known that the project exists; "" if it is."""
    if isinstance(service, Available) or service.reason is ServiceErrorReason.LOGSTORE_NOT_FOUND:
        return ""
    return service.message


def _as_reported(worker: WorkerObserved, statuses: Mapping[str, WorkerStatus | None]) -> WorkerObserved:
    """With what the worker reports of itself; a pod that does not answer is not known to ignore anything. A
    worker that cannot reach its sink retries, so its pod does not say so."""
    status = statuses.get(worker.name)
    if status is None:
        return worker
    reported = replace(worker, ignored_settings=tuple(status.ignored_settings))
    if worker.reason or status.reason != WorkerReason.SINK_UNAVAILABLE:
        return reported
    return replace(reported, reason=status.reason, message=status.message[:MAX_MESSAGE])
