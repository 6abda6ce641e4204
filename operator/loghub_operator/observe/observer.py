"""Observes one consumer group: its objects in the cluster and its group at the log service.

The observer fills `ObservedState`, from which `loghub_operator.plan.planner` plans the next actions. It only
reads.
"""

import asyncio
from dataclasses import replace
from typing import Any

from loghub.client.port import Credentials
from loghub.clock import Clock
from loghub.worker_contract import WorkerConfig
from loghub_operator.api.adoption import read_origin
from loghub_operator.api.labels import (
    ANNOTATION_CONFIG_HASH,
    ANNOTATION_LAST_APPLIED_HASH,
    ANNOTATION_POD_TEMPLATE_HASH,
    FINALIZER,
    worker_selector,
)
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.clients.kube import CONFIG_MAP, FORBIDDEN, POD, SERVICE, STATEFUL_SET, Kube, KubeError
from loghub_operator.clients.log_service_pool import LogServicePool
from loghub_operator.logservice.access import LogServiceAccess, site_of
from loghub_operator.logservice.checkpoints import resolve_targets
from loghub_operator.logservice.group_state import Unresolved, observe_service
from loghub_operator.logservice.shard_cursors import EndCursorCache
from loghub_operator.model.observed import (
    Code,
    ObservedState,
    ObservedStatefulSet,
    Placement,
    ServiceError,
    ServiceErrorReason,
    ServiceObserved,
    WorkerObserved,
)
from loghub_operator.model.reposition import MoveObserved, needs_a_look, record_name
from loghub_operator.observe.drift_detector import DriftDetector
from loghub_operator.observe.group_index import GroupIndex
from loghub_operator.observe.pods import worker_from_pod
from loghub_operator.observe.worker_reports import read_reports
from loghub_operator.resources import (
    applied_hash,
    dependencies,
    is_ours,
    leads_to_the_service,
    pod_template_hash,
    record_in,
    stateful_set,
)
from loghub_operator.resources.user_code import code_in, code_source
from loghub_operator.resources.worker_config import worker_config
from loghub_operator.settings import Settings

Document = dict[str, Any]
BESIDE_EVERY = 3  # resync periods between two comparisons of the StatefulSet's dependencies


class Observer:
    """Observes any number of groups; holds the connections and the caches that outlive an observation."""

    def __init__(self, *, kube: Kube, hubs: LogServicePool, settings: Settings, clock: Clock) -> None:
        self._kube = kube
        self._hubs = hubs
        self._settings = settings
        self._clock = clock
        self._ends = EndCursorCache()
        self.claims = GroupIndex(settings)
        self.drifting = DriftDetector(kube=kube, clock=clock, every_s=BESIDE_EVERY * settings.resync_s)
        self.access = LogServiceAccess(kube=kube, hubs=hubs, settings=settings)

    async def observe(self, resource: LogHubConsumerGroup) -> ObservedState:
        """Makes one observation. Raises `KubeError`; an error of the log service is part of the result."""
        site = replace(site_of(resource, self._settings), code=await self._code(resource))
        pods, worker_set, address, keys = await asyncio.gather(
            self._pods(resource),
            self._worker_set(resource, site),
            self._project_address(resource, site),
            self.access.credentials(resource),
        )
        workers = self._workers(pods)
        # A pod that is being replaced does not exist for a moment, and its name still holds shards.
        wanted = [resource.consumer(n) for n in range(worker_set.replicas if worker_set else 0)]
        expected = {*wanted, *(worker.name for worker in workers)}
        service = (
            await self._service(resource, pods, expected, keys) if address else _not_addressed(resource, site)
        )
        move = await self._move(resource, service) if not workers else None
        return ObservedState(
            at_unix_s=self._clock.unix_s(),
            site=site,
            service=service,
            worker_set=worker_set,
            workers=workers,
            project_address=address,
            held=FINALIZER in resource.metadata.finalizers,
            group_origin=read_origin(resource),
            peers=self.claims.peers_of(resource),
            move=move,
        )

    async def _pods(self, resource: LogHubConsumerGroup) -> list[Document]:
        metadata = resource.metadata
        return await self._kube.list(POD, metadata.namespace, worker_selector(metadata.name))

    def _workers(self, pods: list[Document]) -> tuple[WorkerObserved, ...]:
        now = self._clock.unix_s()
        workers = (worker_from_pod(pod, now) for pod in pods)
        return tuple(sorted((one for one in workers if one is not None), key=lambda one: one.ordinal))

    async def _worker_set(self, resource: LogHubConsumerGroup, site: Placement) -> ObservedStatefulSet | None:
        metadata = resource.metadata
        found = await self._kube.get(STATEFUL_SET, metadata.namespace, metadata.name)
        if found is None or found["metadata"].get("deletionTimestamp") or not is_ours(resource, found):
            return None
        annotations = found["metadata"].get("annotations") or {}
        config, image = worker_config(resource, site), self._settings.worker_image
        drifted = annotations.get(ANNOTATION_LAST_APPLIED_HASH) != applied_hash(resource, config, image=image)
        return ObservedStatefulSet(
            replicas=int(found["spec"].get("replicas", 0)),
            config_hash=annotations.get(ANNOTATION_CONFIG_HASH, ""),
            drifted=drifted,
            rolls=annotations.get(ANNOTATION_POD_TEMPLATE_HASH)
            != pod_template_hash(resource, config, image=image),
            # While the desired state differs from what was applied, the difference is our own change.
            drift=() if drifted else await self._drift(resource, config, found),
        )

    async def _drift(
        self, resource: LogHubConsumerGroup, config: WorkerConfig, found: Document
    ) -> tuple[str, ...]:
        wanted = stateful_set(resource, config, replicas=0, image=self._settings.worker_image)
        del wanted["spec"]["replicas"]
        return await self.drifting.seen(wanted, found, dependencies(resource, config))

    async def _move(self, resource: LogHubConsumerGroup, service: ServiceObserved) -> MoveObserved | None:
        if service.trouble is not None or service.group is None or not needs_a_look(resource):
            return None
        hub, namespace = await self.access.client(resource), resource.metadata.namespace
        if isinstance(hub, ServiceError):
            return None
        name = record_name(resource)
        kept = await self._kube.get(CONFIG_MAP, namespace, name)
        record = None if kept is None else record_in(kept)
        if kept is not None and (record is None or not is_ours(resource, kept)):
            return MoveObserved(trouble=f"ConfigMap {name} exists and does not belong to this object")
        source = await self._reset_source(resource)
        return await self._hubs.call(
            resolve_targets, hub, resource, service.shards, record=record, source=source, clock=self._clock
        )

    async def _reset_source(self, resource: LogHubConsumerGroup) -> dict[str, str] | None:
        order = resource.spec.reset_checkpoints
        if order is None or order.config_map_name is None:
            return None
        found = await self._kube.get(CONFIG_MAP, resource.metadata.namespace, order.config_map_name)
        return None if found is None else dict(found.get("data") or {})

    async def _code(self, resource: LogHubConsumerGroup) -> Code:
        name = code_source(resource)
        if name is None:
            return Code()
        return code_in(resource, await self._kube.get(CONFIG_MAP, resource.metadata.namespace, name))

    async def _project_address(self, resource: LogHubConsumerGroup, site: Placement) -> bool:
        namespace = self._settings.project_namespace
        if not site.needs_project_address or namespace is None:
            return True
        try:
            there = await self._kube.get(SERVICE, namespace, resource.spec.project)
        except KubeError as error:
            if error.status != FORBIDDEN:
                raise
            return False  # creating the Service fails with the same error, which the status reports
        return there is not None and leads_to_the_service(there)

    async def _service(
        self,
        resource: LogHubConsumerGroup,
        pods: list[Document],
        expected: set[str],
        credentials: Credentials | ServiceError,
    ) -> ServiceObserved:
        hub = self.access.client_with(resource, credentials)
        if isinstance(hub, ServiceError):
            return ServiceObserved(trouble=hub)
        found = await self._hubs.call(observe_service, hub, resource, ends=self._ends, clock=self._clock)
        if isinstance(found, Unresolved):
            reports = await read_reports(pods, expected=expected, timeout_s=found.timeout_s)
            return found.resolved(reports)
        return found


def _not_addressed(resource: LogHubConsumerGroup, site: Placement) -> ServiceObserved:
    """Makes no request: DNS caches keep a name that was resolved too early as unknown for a while."""
    message = f"project {resource.spec.project} does not have a host name at {site.endpoint} yet"
    return ServiceObserved(
        trouble=ServiceError(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message=message)
    )
