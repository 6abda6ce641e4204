"""Carries out a plan's actions in the cluster.

The executor has one function for each action of `loghub_operator.model.actions`, and is the only writer of a
group's objects. Every action is idempotent, so the next reconcile completes what a crash between two actions
left undone.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from loghub.clock import Clock
from loghub.worker_contract import DRAIN_ANNOTATION, DRAIN_REQUESTED
from loghub_operator.api.adoption import GroupOrigin, origin_annotations
from loghub_operator.api.conditions import rfc3339
from loghub_operator.api.labels import (
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
from loghub_operator.logservice.access import LogServiceAccess
from loghub_operator.model import actions
from loghub_operator.model.actions import Action, ActionRefused
from loghub_operator.model.revision import Document
from loghub_operator.resources import (
    checkpoint_backup,
    is_ours,
    is_settings,
    project_service,
    with_replicas,
    workers_name,
)
from loghub_operator.resources.event import event_of
from loghub_operator.settings import Settings


class Executor:
    """Carries out actions and keeps no state between reconciles. ``wrote`` is called with each applied object
    and the API server's response."""

    def __init__(
        self,
        *,
        kube: Kube,
        log_service: LogServiceAccess,
        wrote: Callable[[Document, Document], None],
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._log_service = log_service
        self._wrote = wrote
        self._settings = settings
        self._clock = clock

    async def carry_out(
        self, resource: LogHubConsumerGroup, action: Action, *, group_origin: GroupOrigin | None = None
    ) -> None:
        """Raises `KubeError`, `LogHubException` or `ActionRefused`.

        ``group_origin`` is what the object records now. An object that cannot be parsed has no spec
        (`loghub_operator.plan.invalid_resource`).
        """
        match action:
            case actions.AddFinalizer():
                await self._apply_metadata(resource, group_origin)
            case actions.RecordGroupOrigin(origin):
                await self._apply_metadata(resource, origin)
            case actions.RemoveFinalizer():
                # If the operator was killed during RemoveWorkers, the objects that it deletes last still
                # exist, and an observation does not report them.
                await self._remove_workers(resource)
                await self._release(resource)
            case actions.EnsureProjectService(project):
                await self._ensure_project_address(project)
            case actions.CreateGroup() | actions.UpdateGroup() | actions.DeleteGroup():
                if not await self._log_service.change_group(resource, action):
                    await self._apply_metadata(resource, "Adopted")
            case actions.BackUpCheckpoints(name=name, backup=backup):
                await self._create_backup(checkpoint_backup(resource, name, backup))
            case actions.CommitCheckpoints():
                await self._log_service.commit_checkpoints(resource, action)
            case actions.ApplyWorkers():
                await self._apply_workers(resource, action)
            case actions.DrainWorker(consumer):
                await self._request_drain(resource, consumer)
            case actions.RestartWorker(consumer):
                await self._kube.delete(POD, resource.metadata.namespace, consumer)
            case actions.RemoveWorkers():
                await self._remove_workers(resource)
            case actions.SplitShard() | actions.MergeShards():
                await self._log_service.change_shards(resource, action)
            case actions.EmitEvent():
                await self._emit(resource, action)

    async def write_status(self, resource: LogHubConsumerGroup, status: Status) -> str:
        """Applies the whole status, which is ours, so fields that are absent now are removed.

        Returns the new resource version, or "" if anything besides the status has changed since it was read.
        """
        document = _identity(resource)
        document["status"] = status.to_dict()
        metadata = (await self._kube.apply(document, subresource="status"))["metadata"]
        # Each change of the spec increments the generation, which is part of the metadata.
        unchanged = Metadata.model_validate(metadata, strict=False) == resource.metadata
        return str(metadata["resourceVersion"]) if unchanged else ""

    async def _release(self, resource: LogHubConsumerGroup) -> None:
        """Removes our finalizer by a patch, whichever client wrote it; an apply would leave a finalizer that
        was restored from a backup."""
        metadata = resource.metadata
        existing = await self._kube.get(CONSUMER_GROUP, metadata.namespace, metadata.name)
        if existing is None or existing["metadata"]["uid"] != metadata.uid:
            return
        others = [one for one in existing["metadata"].get("finalizers") or () if one != FINALIZER]
        version = existing["metadata"]["resourceVersion"]
        patch = {"metadata": {"finalizers": others, "resourceVersion": version}}
        await self._kube.patch(CONSUMER_GROUP, metadata.namespace, metadata.name, patch)

    async def _emit(self, resource: LogHubConsumerGroup, event: actions.EmitEvent) -> None:
        """Creates an Event about the object."""
        await self._kube.create(event_of(resource, event, unix_s=self._clock.unix_s()))

    async def _apply_metadata(self, resource: LogHubConsumerGroup, origin: GroupOrigin | None) -> None:
        """Applies our finalizer and annotations; the UID prevents the apply from recreating a deleted
        object."""
        document = _identity(resource)
        document["metadata"]["finalizers"] = [FINALIZER]
        if origin is not None:
            document["metadata"]["annotations"] = origin_annotations(origin, resource)
        await self._kube.apply(document)

    async def _ensure_project_address(self, project: str) -> None:
        namespace = self._settings.project_namespace
        assert namespace is not None  # else no such action is planned
        existing = await self._kube.get(SERVICE, namespace, project)
        if existing is not None and _labels(existing).get(LABEL_MANAGED_BY) != MANAGER:
            raise _name_in_use(SERVICE, namespace, project, f"project {project} is reached by it")
        await self._kube.apply(project_service(project, namespace))

    async def _create_backup(self, document: Document) -> None:
        """Creates the backup once: one that exists holds the checkpoints from before the reset, and stays."""
        try:
            await self._kube.create(document)
        except KubeError as error:
            if error.status != 409:
                raise

    async def _apply_workers(self, resource: LogHubConsumerGroup, action: actions.ApplyWorkers) -> None:
        """Applies the pods' dependencies before the StatefulSet."""
        spec = action.spec
        await _all_of(self._apply_ours(resource, wanted) for wanted in spec.dependencies)
        await self._apply_ours(resource, with_replicas(spec.stateful_set, action.replicas))
        await self._remove_old_settings(resource, spec.stateful_set["spec"]["template"])

    async def _apply_ours(self, resource: LogHubConsumerGroup, document: Document) -> None:
        """Applies the object unless its name is in use by another owner, whose fields a forced apply would
        overwrite."""
        kind, metadata = KINDS[document["kind"]], document["metadata"]
        existing = await self._kube.get(kind, metadata["namespace"], metadata["name"])
        if existing is not None and not is_ours(resource, existing):
            raise _name_in_use(kind, metadata["namespace"], metadata["name"], "the workers need it")
        self._wrote(document, await self._kube.apply(document))

    async def _remove_old_settings(self, resource: LogHubConsumerGroup, template: Document) -> None:
        """Deletes the settings that neither the template nor a pod mounts. Annotations of pods do not count:
        another client can edit them, and other versions of the operator write others.
        """
        namespace, labels = resource.metadata.namespace, worker_selector(resource.metadata.name)
        pods = await self._kube.list(POD, namespace, labels)
        used = {name for pod in (template, *pods) for name in _mounted_config_maps(pod)}
        for config_map in await self._kube.list(CONFIG_MAP, namespace, labels):
            name = config_map["metadata"]["name"]
            if name not in used and is_settings(resource, config_map):
                await self._kube.delete(CONFIG_MAP, namespace, name)

    async def _request_drain(self, resource: LogHubConsumerGroup, consumer: str) -> None:
        annotations = {
            DRAIN_ANNOTATION: DRAIN_REQUESTED,
            ANNOTATION_DRAIN_REQUESTED_AT: rfc3339(self._clock.unix_s()),
        }
        patch = {"metadata": {"annotations": annotations}}
        await self._kube.patch(POD, resource.metadata.namespace, consumer, patch)

    async def _remove_workers(self, resource: LogHubConsumerGroup) -> None:
        namespace, name = resource.metadata.namespace, resource.metadata.name
        workers = workers_name(resource)
        ours = (
            (STATEFUL_SET, name),
            (SERVICE, workers),
            (DISRUPTION_BUDGET, workers),
            (SERVICE_ACCOUNT, workers),
        )
        for kind, object_name in ours:
            existing = await self._kube.get(kind, namespace, object_name)
            if existing is not None and is_ours(resource, existing):
                await self._kube.delete(kind, namespace, object_name, uid=existing["metadata"]["uid"])
        for config_map in await self._kube.list(CONFIG_MAP, namespace, worker_selector(name)):
            if is_settings(resource, config_map):
                await self._kube.delete(CONFIG_MAP, namespace, config_map["metadata"]["name"])


async def _all_of(parts: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs the parts concurrently; if a part fails, the others still finish before its error is raised."""
    for outcome in await asyncio.gather(*parts, return_exceptions=True):
        if outcome is not None:
            raise outcome


def _name_in_use(kind: Kind, namespace: str, name: str, why: str) -> ActionRefused:
    message = f"{kind.kind} {name} in namespace {namespace} was created by another client, and {why}"
    return ActionRefused(f"{message}; remove it or choose another name")


def _identity(resource: LogHubConsumerGroup) -> Document:
    metadata = resource.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
    }


def _labels(document: Document) -> dict[str, str]:
    return document["metadata"].get("labels") or {}


def _mounted_config_maps(pod: Document) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        if "configMap" in volume:
            yield volume["configMap"]["name"]
