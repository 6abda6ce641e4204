"""Carry a plan's actions out in the cluster.

What for: one function per action; the only writer of objects. What it must not know: why.
Read next: `loghub_operator.model.observed` (what each action promises), `loghub_operator.resources`.

Every action is idempotent, so a crash between any two is mended by the next round.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from loghub.client.port import LogHub
from loghub.clock import Clock
from loghub.worker_contract import DRAIN_ANNOTATION, DRAIN_REQUESTED
from loghub_operator.api.adoption import GroupOrigin, origin_annotations
from loghub_operator.api.conditions import rfc3339
from loghub_operator.api.labels import (
    ANNOTATION_CONFIG_HASH,
    ANNOTATION_DRAIN_REQUESTED_AT,
    FINALIZER,
    LABEL_MANAGED_BY,
    MANAGER,
    worker_selector,
)
from loghub_operator.api.status import Status
from loghub_operator.api.v1alpha1 import API_VERSION, KIND, LogHubConsumerGroup, Metadata
from loghub_operator.clients.kube import (
    CONFIG_MAP,
    CONSUMER_GROUP,
    DISRUPTION_BUDGET,
    KINDS,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Kind,
    Kube,
    KubeError,
)
from loghub_operator.clients.log_service_pool import LogServicePool
from loghub_operator.logservice.access import LogServiceAccess
from loghub_operator.logservice.checkpoints import move_checkpoints
from loghub_operator.logservice.group_changes import change_group, change_shards
from loghub_operator.logservice.group_key import GroupKey
from loghub_operator.model import actions
from loghub_operator.model.actions import Action, ActionRefused, GroupChange
from loghub_operator.model.observed import ObservedState, ServiceError
from loghub_operator.resources import (
    checkpoint_backup,
    dependencies,
    is_ours,
    is_settings,
    project_service,
    stateful_set,
    workers_name,
)
from loghub_operator.resources.event import event_of
from loghub_operator.settings import Settings

Document = dict[str, Any]


class Executor:
    """Carries out; remembers nothing from one round to the next. ``wrote`` is called with each
    object applied and the apiserver's answer."""

    def __init__(
        self,
        *,
        kube: Kube,
        hubs: LogServicePool,
        access: LogServiceAccess,
        wrote: Callable[[Document, Document], None],
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._hubs = hubs
        self._access = access
        self._wrote = wrote
        self._settings = settings
        self._clock = clock

    async def carry_out(
        self, resource: LogHubConsumerGroup, observed: ObservedState | None, action: Action
    ) -> None:
        """Raises `KubeError`, `LogHubException` or `ActionRefused`.

        Without ``observed`` (`loghub_operator.plan.invalid_resource`) the resource has no spec.
        """
        match action:
            case actions.HoldObject():
                await self._mark(resource, observed.group_origin if observed else None)
            case actions.RecordGroupOrigin(origin):
                await self._mark(resource, origin)
            case actions.ReleaseObject():
                # Killed amid a RemoveWorkers, it left the later parts, which no look misses.
                await self._remove_workers(resource)
                await self._release(resource)
            case actions.EnsureProjectAddress(project):
                await self._ensure_project_address(project)
            case actions.CreateGroup() | actions.UpdateGroup() | actions.DeleteGroup():
                await self._change_group(resource, action)
            case actions.KeepCheckpoints(name=name, record=record):
                await self._keep(checkpoint_backup(resource, name, record))
            case actions.MoveCheckpoints():
                await self._move_checkpoints(resource, action)
            case actions.ApplyWorkers():
                await self._apply_workers(resource, action)
            case actions.AskLeave(consumer):
                await self._request_drain(resource, consumer)
            case actions.RestartWorker(consumer):
                await self._kube.delete(POD, resource.metadata.namespace, consumer)
            case actions.RemoveWorkers():
                await self._remove_workers(resource)
            case actions.SplitShard() | actions.MergeShards():
                await self._change_shards(resource, action)
            case actions.EmitEvent():
                await self._emit(resource, action)

    async def write_status(self, resource: LogHubConsumerGroup, status: Status) -> str:
        """All of the status is ours: what is absent now goes.

        The version that this made; "" where more than the status is not as it was read.
        """
        document = _identity(resource)
        document["status"] = status.to_dict()
        about = (await self._kube.apply(document, subresource="status"))["metadata"]
        # Each change of the spec is another generation.
        unchanged = Metadata.model_validate(about, strict=False) == resource.metadata
        return str(about["resourceVersion"]) if unchanged else ""

    async def _release(self, resource: LogHubConsumerGroup) -> None:
        """Take our finalizer off, whoever wrote it; an apply would leave one that a backup brought back."""
        metadata = resource.metadata
        found = await self._kube.get(CONSUMER_GROUP, metadata.namespace, metadata.name)
        if found is None or found["metadata"]["uid"] != metadata.uid:
            return
        kept = [one for one in found["metadata"].get("finalizers") or () if one != FINALIZER]
        version = found["metadata"]["resourceVersion"]
        patch = {"metadata": {"finalizers": kept, "resourceVersion": version}}
        await self._kube.patch(CONSUMER_GROUP, metadata.namespace, metadata.name, patch)

    async def _emit(self, resource: LogHubConsumerGroup, event: actions.EmitEvent) -> None:
        """An Event about the object."""
        await self._kube.create(event_of(resource, event, unix_s=self._clock.unix_s()))

    async def _mark(self, resource: LogHubConsumerGroup, origin: GroupOrigin | None) -> None:
        """Our finalizer and annotations; the uid keeps an apply from making a deleted object anew."""
        document = _identity(resource)
        document["metadata"]["finalizers"] = [FINALIZER]
        if origin is not None:
            document["metadata"]["annotations"] = origin_annotations(origin, resource)
        await self._kube.apply(document)

    async def _ensure_project_address(self, project: str) -> None:
        namespace = self._settings.project_namespace
        assert namespace is not None  # else no such action is planned
        there = await self._kube.get(SERVICE, namespace, project)
        if there is not None and _labels(there).get(LABEL_MANAGED_BY) != MANAGER:
            raise _taken(SERVICE, namespace, project, f"project {project} is reached by it")
        await self._kube.apply(project_service(project, namespace))

    async def _hub(self, resource: LogHubConsumerGroup) -> LogHub:
        """To change something there. Raises `ActionRefused` where it cannot be asked."""
        hub = await self._access.client(resource)
        if isinstance(hub, ServiceError):
            raise ActionRefused(hub.message)
        return hub

    async def _change_shards(self, resource: LogHubConsumerGroup, action: actions.ShardChange) -> None:
        await self._hubs.call(change_shards, await self._hub(resource), resource.spec.logstore, action)

    async def _change_group(self, resource: LogHubConsumerGroup, action: GroupChange) -> None:
        if not await self._hubs.call(change_group, await self._hub(resource), GroupKey.of(resource), action):
            await self._mark(resource, "Adopted")

    async def _keep(self, document: Document) -> None:
        """Written once: what is there is of before, and stays."""
        try:
            await self._kube.create(document)
        except KubeError as error:
            if error.status != 409:
                raise

    async def _move_checkpoints(self, resource: LogHubConsumerGroup, action: actions.MoveCheckpoints) -> None:
        hub = await self._hub(resource)
        await self._hubs.call(move_checkpoints, hub, GroupKey.of(resource), action, self._clock)

    async def _apply_workers(self, resource: LogHubConsumerGroup, action: actions.ApplyWorkers) -> None:
        """What the pods need before the pods."""
        await _all_of(self._apply_ours(resource, one) for one in dependencies(resource, action.config))
        image = self._settings.worker_image
        made = stateful_set(resource, action.config, replicas=action.replicas, image=image)
        await self._apply_ours(resource, made)
        await self._remove_old_settings(resource, action.config_hash)

    async def _apply_ours(self, resource: LogHubConsumerGroup, document: Document) -> None:
        """Unless the name is somebody else's: a forced apply would take theirs over."""
        kind, about = KINDS[document["kind"]], document["metadata"]
        there = await self._kube.get(kind, about["namespace"], about["name"])
        if there is not None and not is_ours(resource, there):
            raise _taken(kind, about["namespace"], about["name"], "the workers need it")
        self._wrote(document, await self._kube.apply(document))

    async def _remove_old_settings(self, resource: LogHubConsumerGroup, current: str) -> None:
        """The settings that no pod runs with any more."""
        namespace, labels = resource.metadata.namespace, worker_selector(resource.metadata.name)
        pods = await self._kube.list(POD, namespace, labels)
        used = {current, *(_annotations(pod).get(ANNOTATION_CONFIG_HASH) for pod in pods)}
        for found in await self._kube.list(CONFIG_MAP, namespace, labels):
            if is_settings(resource, found) and _annotations(found)[ANNOTATION_CONFIG_HASH] not in used:
                await self._kube.delete(CONFIG_MAP, namespace, found["metadata"]["name"])

    async def _request_drain(self, resource: LogHubConsumerGroup, consumer: str) -> None:
        annotations = {
            DRAIN_ANNOTATION: DRAIN_REQUESTED,
            ANNOTATION_DRAIN_REQUESTED_AT: rfc3339(self._clock.unix_s()),
        }
        patch = {"metadata": {"annotations": annotations}}
        await self._kube.patch(POD, resource.metadata.namespace, consumer, patch)

    async def _remove_workers(self, resource: LogHubConsumerGroup) -> None:
        namespace, name = resource.metadata.namespace, resource.metadata.name
        beside_it = workers_name(resource)
        ours = (
            (STATEFUL_SET, name),
            (SERVICE, beside_it),
            (DISRUPTION_BUDGET, beside_it),
            (SERVICE_ACCOUNT, beside_it),
        )
        for kind, its_name in ours:
            there = await self._kube.get(kind, namespace, its_name)
            if there is not None and is_ours(resource, there):
                await self._kube.delete(kind, namespace, its_name, uid=there["metadata"]["uid"])
        for found in await self._kube.list(CONFIG_MAP, namespace, worker_selector(name)):
            if is_settings(resource, found):
                await self._kube.delete(CONFIG_MAP, namespace, found["metadata"]["name"])


async def _all_of(parts: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Side by side; where one fails the others still end before it is raised."""
    for outcome in await asyncio.gather(*parts, return_exceptions=True):
        if outcome is not None:
            raise outcome


def _taken(kind: Kind, namespace: str, name: str, why: str) -> ActionRefused:
    words = f"{kind.kind} {name} in namespace {namespace} was created by another client, and {why}"
    return ActionRefused(f"{words}; remove it or choose another name")


def _identity(resource: LogHubConsumerGroup) -> Document:
    metadata = resource.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
    }


def _labels(document: Document) -> dict[str, str]:
    return document["metadata"].get("labels") or {}


def _annotations(document: Document) -> dict[str, str]:
    return document["metadata"].get("annotations") or {}
