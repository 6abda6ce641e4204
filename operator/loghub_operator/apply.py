"""Carry a plan's actions out in the cluster.

What for: one function per action; the only writer of objects. What it must not know: why.
Read next: `loghub_operator.model` (what each action promises), `loghub_operator.resources`.

Every action is idempotent, so a crash between any two is mended by the next round.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from datetime import UTC, datetime
from typing import Any

from loghub.client.port import LogHub
from loghub.clock import Clock
from loghub.worker_contract import DRAIN_ANNOTATION, DRAIN_REQUESTED
from loghub_operator import model
from loghub_operator.api.status import Status
from loghub_operator.api.v1alpha1 import API_VERSION, KIND, LogHubConsumerGroup, Metadata
from loghub_operator.checkpoints import move_checkpoints
from loghub_operator.conditions import rfc3339
from loghub_operator.hubs import Hubs
from loghub_operator.kube import (
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
from loghub_operator.logservice import GroupKey, change_group, change_shards
from loghub_operator.model import Action, ActionRefused, GroupChange, GroupOrigin, Observed, Trouble
from loghub_operator.names import (
    ANNOTATION_CONFIG_HASH,
    ANNOTATION_DRAIN_REQUESTED_AT,
    FINALIZER,
    LABEL_MANAGED_BY,
    MANAGER,
    worker_selector,
)
from loghub_operator.observe import Observer
from loghub_operator.origin import origin_marks
from loghub_operator.resources import (
    beside,
    is_ours,
    is_settings,
    kept_checkpoints,
    project_service,
    worker_set,
    workers_name,
)
from loghub_operator.settings import Settings

Document = dict[str, Any]
LONGEST_NOTE_BYTES = 1024


class Executor:
    """Carries out; remembers nothing from one round to the next."""

    def __init__(
        self, *, kube: Kube, hubs: Hubs, observer: Observer, settings: Settings, clock: Clock
    ) -> None:
        self._kube = kube
        self._hubs = hubs
        self._observer = observer
        self._settings = settings
        self._clock = clock

    async def carry_out(
        self, resource: LogHubConsumerGroup, observed: Observed | None, action: Action
    ) -> None:
        """Raises `KubeError`, `LogHubException` or `ActionRefused`.

        Without ``observed`` (`loghub_operator.unread`) the resource has no spec.
        """
        match action:
            case model.HoldObject():
                await self._mark(resource, observed.group_origin if observed else None)
            case model.RecordGroupOrigin(origin):
                await self._mark(resource, origin)
            case model.ReleaseObject():
                # Killed amid a RemoveWorkers, it left the later parts, which no look misses.
                await self._remove_workers(resource)
                await self._release(resource)
            case model.EnsureProjectAddress(project):
                await self._ensure_project_address(project)
            case model.CreateGroup() | model.UpdateGroup() | model.DeleteGroup():
                await self._change_group(resource, action)
            case model.KeepCheckpoints(name=name, record=record):
                await self._keep(kept_checkpoints(resource, name, record))
            case model.MoveCheckpoints():
                await self._move_checkpoints(resource, action)
            case model.ApplyWorkers():
                await self._apply_workers(resource, action)
            case model.AskLeave(consumer):
                await self._ask_leave(resource, consumer)
            case model.RestartWorker(consumer):
                await self._kube.delete(POD, resource.metadata.namespace, consumer)
            case model.RemoveWorkers():
                await self._remove_workers(resource)
            case model.SplitShard() | model.MergeShards():
                await self._change_shards(resource, action)
            case model.EmitEvent():
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
        await self._kube.merge(CONSUMER_GROUP, metadata.namespace, metadata.name, patch)

    async def _emit(self, resource: LogHubConsumerGroup, event: model.EmitEvent) -> None:
        """An Event about the object."""
        await self._kube.create(event_of(resource, event, unix_s=self._clock.unix_s()))

    async def _mark(self, resource: LogHubConsumerGroup, origin: GroupOrigin | None) -> None:
        """Our finalizer and annotations; the uid keeps an apply from making a deleted object anew."""
        document = _identity(resource)
        document["metadata"]["finalizers"] = [FINALIZER]
        if origin is not None:
            document["metadata"]["annotations"] = origin_marks(origin, resource)
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
        hub = await self._observer.hub(resource)
        if isinstance(hub, Trouble):
            raise ActionRefused(hub.message)
        return hub

    async def _change_shards(self, resource: LogHubConsumerGroup, action: model.ShardChange) -> None:
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

    async def _move_checkpoints(self, resource: LogHubConsumerGroup, action: model.MoveCheckpoints) -> None:
        hub = await self._hub(resource)
        await self._hubs.call(move_checkpoints, hub, GroupKey.of(resource), action, self._clock)

    async def _apply_workers(self, resource: LogHubConsumerGroup, action: model.ApplyWorkers) -> None:
        """What the pods need before the pods."""
        await _all_of(self._apply_ours(resource, one) for one in beside(resource, action.config))
        image = self._settings.worker_image
        made = worker_set(resource, action.config, replicas=action.replicas, image=image)
        await self._apply_ours(resource, made)
        await self._remove_old_settings(resource, action.config_hash)

    async def _apply_ours(self, resource: LogHubConsumerGroup, document: Document) -> None:
        """Unless the name is somebody else's: a forced apply would take theirs over."""
        kind, about = KINDS[document["kind"]], document["metadata"]
        there = await self._kube.get(kind, about["namespace"], about["name"])
        if there is not None and not is_ours(resource, there):
            raise _taken(kind, about["namespace"], about["name"], "the workers need it")
        self._observer.drifting.wrote(document, await self._kube.apply(document))

    async def _remove_old_settings(self, resource: LogHubConsumerGroup, current: str) -> None:
        """The settings that no pod runs with any more."""
        namespace, labels = resource.metadata.namespace, worker_selector(resource.metadata.name)
        pods = await self._kube.select(POD, namespace, labels)
        used = {current, *(_annotations(pod).get(ANNOTATION_CONFIG_HASH) for pod in pods)}
        for found in await self._kube.select(CONFIG_MAP, namespace, labels):
            if is_settings(resource, found) and _annotations(found)[ANNOTATION_CONFIG_HASH] not in used:
                await self._kube.delete(CONFIG_MAP, namespace, found["metadata"]["name"])

    async def _ask_leave(self, resource: LogHubConsumerGroup, consumer: str) -> None:
        annotations = {
            DRAIN_ANNOTATION: DRAIN_REQUESTED,
            ANNOTATION_DRAIN_REQUESTED_AT: rfc3339(self._clock.unix_s()),
        }
        patch = {"metadata": {"annotations": annotations}}
        await self._kube.merge(POD, resource.metadata.namespace, consumer, patch)

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
        for found in await self._kube.select(CONFIG_MAP, namespace, worker_selector(name)):
            if is_settings(resource, found):
                await self._kube.delete(CONFIG_MAP, namespace, found["metadata"]["name"])


async def _all_of(parts: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Side by side; where one fails the others still end before it is raised."""
    for outcome in await asyncio.gather(*parts, return_exceptions=True):
        if outcome is not None:
            raise outcome


def event_of(resource: LogHubConsumerGroup, event: model.EmitEvent, *, unix_s: float) -> Document:
    """An Event about the CR; its name is made by the apiserver."""
    name, namespace = resource.metadata.name, resource.metadata.namespace
    regarding = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": name,
        "namespace": namespace,
        "uid": resource.metadata.uid,
    }
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name}-", "namespace": namespace},
        "eventTime": datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": f"loghub.dev/{MANAGER}",
        "reportingInstance": MANAGER,
        "action": "Reconcile",
        "reason": event.reason,
        "note": _cut(event.message),
        "type": event.type,
        "regarding": regarding,
    }


def _cut(message: str) -> str:
    """The apiserver counts bytes."""
    return message.encode()[:LONGEST_NOTE_BYTES].decode(errors="ignore")


def _taken(kind: Kind, namespace: str, name: str, why: str) -> ActionRefused:
    words = f"{kind.kind} {name} in namespace {namespace} was made by somebody else, and {why}"
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
