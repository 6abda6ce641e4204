"""Observes one consumer group: its objects in the cluster and its group at the log service.

The observer fills `ObservedState`, from which `loghub_operator.plan.planner` plans the next actions. It only
reads.
"""

import asyncio
from dataclasses import replace

from loghub.client.port import LogHub
from loghub.clock import Clock
from loghub_operator.api.adoption import read_origin
from loghub_operator.api.labels import ANNOTATION_REVISION, FINALIZER, worker_selector
from loghub_operator.api.v1alpha1 import EMBEDDED, LogHubConsumerGroup
from loghub_operator.clients.kube import CONFIG_MAP, FORBIDDEN, POD, SERVICE, STATEFUL_SET, Kube, KubeError
from loghub_operator.logservice.access import LogServiceAccess
from loghub_operator.model.checkpoint_reset import ResetObserved, backup_name, needs_observation
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    ObservedState,
    ObservedStatefulSet,
    Placement,
    ServiceErrorReason,
    Unavailable,
    UserCode,
    WorkerObserved,
)
from loghub_operator.model.revision import Document, Revision, WorkerSpec
from loghub_operator.observe.drift_detector import DriftDetector
from loghub_operator.observe.group_index import GroupIndex
from loghub_operator.observe.pods import worker_from_pod
from loghub_operator.observe.worker_reports import read_reports
from loghub_operator.resources import backup_in, is_ours, leads_to_the_service, worker_spec
from loghub_operator.resources.pod_paths import CODE_ROOT, SINK_ROOT
from loghub_operator.resources.user_code import code_in, code_source
from loghub_operator.resources.worker_config import worker_config
from loghub_operator.settings import Settings


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
        """Makes one observation. Raises `KubeError`; an error of the log service is part of the result."""
        placement = replace(placement_of(resource, self._settings), code=await self._code(resource))
        config = worker_config(resource, placement)
        desired = worker_spec(resource, config, image=self._settings.worker_image)
        pods, worker_set, address, credentials = await asyncio.gather(
            self._pods(resource),
            self._worker_set(resource, desired),
            self._project_address(resource, placement),
            self._log_service.credentials_or_reason(resource),
        )
        if address:
            client = self._log_service.client_or_reason(resource, credentials)
        else:
            client = _not_addressed(resource, placement)
        workers = self._workers(pods)
        # A pod that is being replaced does not exist for a moment, and its name still holds shards.
        replicas = worker_set.replicas if worker_set else 0
        names = {*(resource.consumer(n) for n in range(replicas)), *(worker.name for worker in workers)}
        service = await self._log_service.observe(
            resource,
            client,
            lambda unresolved: read_reports(pods, expected=names, timeout_s=unresolved.timeout_s),
        )
        return ObservedState(
            at_unix_s=self._clock.unix_s(),
            placement=placement,
            worker_spec=desired,
            service=service,
            worker_set=worker_set,
            workers=workers,
            project_address=address,
            has_finalizer=FINALIZER in resource.metadata.finalizers,
            group_origin=read_origin(resource),
            peers=self._group_index.peers_of(resource),
            reset=None if workers else await self._reset(resource, client, service),
        )

    async def _pods(self, resource: LogHubConsumerGroup) -> list[Document]:
        metadata = resource.metadata
        return await self._kube.list(POD, metadata.namespace, worker_selector(metadata.name))

    def _workers(self, pods: list[Document]) -> tuple[WorkerObserved, ...]:
        now = self._clock.unix_s()
        workers = (worker_from_pod(pod, now) for pod in pods)
        return tuple(sorted((one for one in workers if one is not None), key=lambda one: one.ordinal))

    async def _worker_set(
        self, resource: LogHubConsumerGroup, desired: WorkerSpec
    ) -> ObservedStatefulSet | None:
        metadata = resource.metadata
        existing = await self._kube.get(STATEFUL_SET, metadata.namespace, metadata.name)
        if (
            existing is None
            or existing["metadata"].get("deletionTimestamp")
            or not is_ours(resource, existing)
        ):
            return None
        annotations = existing["metadata"].get("annotations") or {}
        revision = Revision.parse(annotations.get(ANNOTATION_REVISION, ""))
        return ObservedStatefulSet(
            replicas=int(existing["spec"].get("replicas", 0)),
            revision=revision,
            drift=await self._drift.drift(desired, existing) if revision == desired.revision else (),
        )

    async def _reset(
        self, resource: LogHubConsumerGroup, client: LogHub | Unavailable, service: LogServiceObserved
    ) -> ResetObserved | None:
        if isinstance(client, Unavailable) or not needs_observation(resource):
            return None
        if not isinstance(service, Available) or service.group is None:
            return None
        name, namespace = backup_name(resource), resource.metadata.namespace
        existing = await self._kube.get(CONFIG_MAP, namespace, name)
        backup = None if existing is None else backup_in(existing)
        if existing is not None and (backup is None or not is_ours(resource, existing)):
            return ResetObserved(error=f"ConfigMap {name} exists and does not belong to this object")
        source = await self._reset_source(resource)
        return await self._log_service.reset_targets(
            resource, client, service.shards, backup=backup, source=source
        )

    async def _reset_source(self, resource: LogHubConsumerGroup) -> dict[str, str] | None:
        requested = resource.spec.reset_checkpoints
        if requested is None or requested.config_map_name is None:
            return None
        source = await self._kube.get(CONFIG_MAP, resource.metadata.namespace, requested.config_map_name)
        return None if source is None else dict(source.get("data") or {})

    async def _code(self, resource: LogHubConsumerGroup) -> UserCode:
        name = code_source(resource)
        if name is None:
            return UserCode()
        return code_in(resource, await self._kube.get(CONFIG_MAP, resource.metadata.namespace, name))

    async def _project_address(self, resource: LogHubConsumerGroup, placement: Placement) -> bool:
        namespace = self._settings.project_namespace
        if not placement.needs_project_address or namespace is None:
            return True
        try:
            service = await self._kube.get(SERVICE, namespace, resource.spec.project)
        except KubeError as error:
            if error.status != FORBIDDEN:
                raise
            return False  # creating the Service fails with the same error, which the status reports
        return service is not None and leads_to_the_service(service)


def placement_of(resource: LogHubConsumerGroup, settings: Settings) -> Placement:
    """The placement of this group's workers in a cluster."""
    embedded = resource.spec.endpoint == EMBEDDED
    return Placement(
        endpoint=settings.endpoint(resource.spec.endpoint),
        sink_root=SINK_ROOT,
        code_root=CODE_ROOT,
        needs_project_address=embedded and settings.project_namespace is not None,
    )


def _not_addressed(resource: LogHubConsumerGroup, placement: Placement) -> Unavailable:
    """No request is made: DNS caches keep a name that was resolved too early as unknown for a while."""
    message = f"project {resource.spec.project} does not have a host name at {placement.endpoint} yet"
    return Unavailable(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message=message)
