"""Carries out a plan's actions in the cluster.

The applier has one function for each action of `loghub_operator.model.actions`, and is the only writer of a
group's objects. Every action is idempotent, so the next reconcile completes what a crash between two actions
left undone.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

import structlog

from loghub.clock import Clock
from loghub.contract.worker import DRAIN_ANNOTATION, DRAIN_REQUESTED, KUBERNETES
from loghub.wire.errors import LogHubException
from loghub_operator.api.adoption import GroupRecord, record_annotations
from loghub_operator.api.conditions import rfc3339
from loghub_operator.api.labels import (
    ANNOTATION_DRAIN_REQUESTED_AT,
    ANNOTATION_LEFT_TO_OTHERS,
    FINALIZER,
    LABEL_MANAGED_BY,
    MANAGER,
    OUR_SERVICES,
    worker_selector,
)
from loghub_operator.api.status import Status
from loghub_operator.api.v1alpha1 import API_VERSION, KIND, LogHubConsumerGroup, Metadata
from loghub_operator.apply.event_recorder import EventRecorder
from loghub_operator.apply.older_schema import OlderSchema
from loghub_operator.clients.kube import (
    CONFIG_MAP,
    CONSUMER_GROUP,
    DISRUPTION_BUDGET,
    KINDS,
    POD,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Kind,
    Kube,
    KubeError,
)
from loghub_operator.logservice.access import LogServiceAccess
from loghub_operator.logservice.group_changes import surely_not_created
from loghub_operator.model import actions
from loghub_operator.model.actions import Action, ActionRefused
from loghub_operator.model.revision import Document
from loghub_operator.plan.checkpoint_reset import needed_backups, superseded
from loghub_operator.resources import (
    backup_in,
    backup_selector,
    checkpoint_backup,
    is_ours,
    is_settings,
    project_of,
    project_service,
    rule_of_services,
    with_replicas,
    workers_name,
)
from loghub_operator.resources.diff import differences, fingerprint, left_to_others
from loghub_operator.settings import Settings

INVALID = 422  # a name with a digit first, before Kubernetes 1.36
MAX_REFUSALS = 10  # of one status: the API server does not name all at once what it does not know
log = structlog.get_logger()


class Applier:
    """Carries out actions. ``wrote`` is called with each applied object and the API server's response."""

    def __init__(
        self,
        *,
        kube: Kube,
        log_service: LogServiceAccess,
        wrote: Callable[[Document, Document], None],
        events: EventRecorder,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._log_service = log_service
        self._wrote = wrote
        self._settings = settings
        self._clock = clock
        self._older_schema = OlderSchema(clock)
        self._events = events

    async def carry_out(
        self, resource: LogHubConsumerGroup, action: Action, *, group_record: GroupRecord | None = None
    ) -> None:
        """Raises `KubeError`, `LogHubException` or `ActionRefused`.

        ``group_record`` is what the object records now. An object that cannot be parsed has no spec
        (`loghub_operator.plan.deletion`).
        """
        match action:
            case actions.AddFinalizer():
                await self._apply_metadata(resource, group_record)
            case actions.RecordGroupOrigin(record):
                await self._apply_metadata(resource, record)
            case actions.RemoveFinalizer():
                # If the operator was killed during RemoveWorkers, the objects that it deletes last still
                # exist, and an observation does not report them.
                await self._remove_workers(resource)
                await self.release(resource)
            case actions.EnsureProjectService(project):
                await self._ensure_project_address(project)
            case actions.CreateGroup():
                await self._create_group(resource, action, group_record)
            case actions.UpdateGroup() | actions.DeleteGroup():
                await self._log_service.change_group(resource, action)
            case actions.BackUpCheckpoints(name=name, backup=backup):
                await self._create_backup(checkpoint_backup(resource, name, backup))
                await self._remove_old_backups(resource, name)
            case actions.CommitCheckpoints():
                await self._log_service.commit_checkpoints(resource, action)
            case actions.ApplyWorkers():
                await self._apply_workers(resource, action)
            case actions.DrainWorker(consumer):
                await self._request_drain(resource, consumer)
            case actions.RestartWorker(consumer):
                await self._restart(resource, consumer)
            case actions.RemoveWorkers():
                await self._remove_workers(resource)
            case actions.SplitShard() | actions.MergeShards():
                await self._log_service.change_shards(resource, action)
            case actions.EmitEvent():
                await self._events.record(resource, action)

    async def write_status(self, resource: LogHubConsumerGroup, status: Status) -> str:
        """Applies the whole status, which is ours, so fields that are absent now are removed.

        Returns the new resource version, or "" if anything besides the status has changed since it was read.
        """
        metadata = (await self._apply_status(resource, status.to_dict()))["metadata"]
        # Each change of the spec increments the generation, which is part of the metadata.
        unchanged = Metadata.model_validate(metadata, strict=False) == resource.metadata
        return str(metadata["resourceVersion"]) if unchanged else ""

    async def _apply_status(self, resource: LogHubConsumerGroup, status: Document) -> Document:
        """Applies as much of the status as the API server's schema knows."""
        document = {**_identity(resource), "status": self._older_schema.known_part(status)}
        for _ in range(MAX_REFUSALS):
            try:
                return await self._kube.apply(document, subresource="status")
            except KubeError as error:
                smaller = self._older_schema.reduced(document["status"], error.message)
                if smaller is None:
                    raise
                log.warning("the CRD is of an older release", name=resource.metadata.name, error=str(error))
                document["status"] = smaller
        return await self._kube.apply(document, subresource="status")

    async def release(self, resource: LogHubConsumerGroup) -> None:
        """Removes our finalizer by a patch, whichever client wrote it; an apply would leave a finalizer that
        was restored from a backup."""
        metadata = resource.metadata
        self._log_service.forget(resource)
        existing = await self._kube.get(CONSUMER_GROUP, metadata.namespace, metadata.name)
        if existing is None or existing["metadata"]["uid"] != metadata.uid:
            return
        others = [one for one in existing["metadata"].get("finalizers") or () if one != FINALIZER]
        version = existing["metadata"]["resourceVersion"]
        patch = {"metadata": {"finalizers": others, "resourceVersion": version}}
        await self._kube.patch(CONSUMER_GROUP, metadata.namespace, metadata.name, patch)

    async def _create_group(
        self, resource: LogHubConsumerGroup, action: actions.CreateGroup, recorded: GroupRecord | None
    ) -> None:
        """Takes back that the group is the object's if it was surely not created: another client that
        creates it later would lose it with the object."""
        try:
            await self._log_service.change_group(resource, action)
        except (LogHubException, ActionRefused) as error:
            if surely_not_created(error) and (recorded is None or recorded.is_about_ours):
                await self._apply_metadata(resource, GroupRecord("Refused", action.last_initial_shard))
            raise

    async def _apply_metadata(self, resource: LogHubConsumerGroup, record: GroupRecord | None) -> None:
        """Applies our finalizer and annotations; the UID prevents the apply from recreating a deleted
        object."""
        document = _identity(resource)
        document["metadata"]["finalizers"] = [FINALIZER]
        if record is not None:
            document["metadata"]["annotations"] = record_annotations(record, resource)
        await self._kube.apply(document)

    async def _ensure_project_address(self, project: str) -> None:
        namespace = self._settings.project_namespace
        assert namespace is not None  # else no such action is planned
        existing = await self._kube.get(SERVICE, namespace, project)
        if existing is not None and _labels(existing).get(LABEL_MANAGED_BY) != MANAGER:
            raise _name_in_use(SERVICE, namespace, project, f"project {project} is reached by it")
        if _is_reserved(project, self._settings):
            raise ActionRefused(f"project {project} has a name that is reserved for the chart's Services")
        if existing is None:
            await self._check_number_of_projects(project, namespace)
        port, policy = self._settings.project_port, self._settings.worker_defaults.ip_family_policy
        try:
            await self._kube.apply(project_service(project, namespace, port=port, ip_family_policy=policy))
        except KubeError as error:
            if error.status != INVALID:
                raise
            message = f"project {project} cannot have a Service of that name on this cluster"
            raise ActionRefused(f"{message}{rule_of_services(project)}: {error}") from error

    async def _check_number_of_projects(self, project: str, namespace: str) -> None:
        """The cluster's addresses are for everybody. Groups that are reconciled at the same time may exceed
        the number by one each."""
        maximum = self._settings.max_project_services
        services = await self._kube.list(SERVICE, namespace, OUR_SERVICES)
        if sum(project_of(service) is not None for service in services) >= maximum:
            message = (
                f"project {project} gets no Service: namespace {namespace} has {maximum} Services of"
                " projects, the most that the operator creates (maxProjectServices in the chart); delete"
                " projects and objects that are not needed, and their Services are removed within minutes"
            )
            raise ActionRefused(message)

    async def _create_backup(self, document: Document) -> None:
        """Creates the backup once: one that exists holds the checkpoints from before the reset, and stays."""
        try:
            await self._kube.create(document)
        except KubeError as error:
            if error.status != 409:
                raise

    async def _remove_old_backups(self, resource: LogHubConsumerGroup, name: str) -> None:
        namespace, labels = resource.metadata.namespace, backup_selector(resource)
        requested_at = {
            document["metadata"]["name"]: backup.requested_at
            for document in await self._kube.list(CONFIG_MAP, namespace, labels)
            if is_ours(resource, document) and (backup := backup_in(document)) is not None
        }
        needed = needed_backups(name, resource.spec.reset_source)
        for old in superseded(requested_at, needed=needed):
            await self._kube.delete(CONFIG_MAP, namespace, old)

    async def _apply_workers(self, resource: LogHubConsumerGroup, action: actions.ApplyWorkers) -> None:
        """If no worker should run, they stop also where what they would run with is refused."""
        try:
            await self._apply_worker_objects(resource, action)
        except (KubeError, ActionRefused):
            if action.replicas == 0:
                await self._stop_all(resource)
            raise

    async def _stop_all(self, resource: LogHubConsumerGroup) -> None:
        namespace, name = resource.metadata.namespace, resource.metadata.name
        existing = await self._kube.get(STATEFUL_SET, namespace, name)
        if existing is not None and is_ours(resource, existing) and existing["spec"].get("replicas"):
            await self._kube.patch(STATEFUL_SET, namespace, name, {"spec": {"replicas": 0}})

    async def _apply_worker_objects(
        self, resource: LogHubConsumerGroup, action: actions.ApplyWorkers
    ) -> None:
        """Applies the pods' dependencies before the StatefulSet."""
        spec, makes_pods = action.spec, resource.spec.spark.makes_pods
        if makes_pods and self._settings.worker_defaults.executor_role is None:
            raise ActionRefused(
                f"the operator's settings do not allow spec.spark.master {KUBERNETES}, with which workers may"
                " make pods; use another master, or ask the administrator to set sparkOnKubernetes.enabled in"
                " the operator's Helm chart"
            )
        await _all_of(self._apply_ours(resource, wanted) for wanted in spec.dependencies)
        await self._apply_ours(resource, with_replicas(spec.stateful_set, action.replicas))
        # What the pods do not need any more goes last: a crash before leaves too much, never too little.
        await self._remove_old_settings(resource, spec.stateful_set["spec"]["template"])
        if not makes_pods:
            await self._revoke_rights(resource)

    async def _apply_ours(self, resource: LogHubConsumerGroup, document: Document) -> None:
        """Applies the object unless its name is in use by another owner, whose fields a forced apply would
        overwrite."""
        kind, metadata = KINDS[document["kind"]], document["metadata"]
        existing = await self._kube.get(kind, metadata["namespace"], metadata["name"])
        if existing is not None and not is_ours(resource, existing):
            raise _name_in_use(kind, metadata["namespace"], metadata["name"], "the workers need it")
        answer = await self._kube.apply(document)
        self._wrote(document, answer)
        left = fingerprint(differences(document, answer))
        if left != left_to_others(answer):
            # Not part of what is applied, since the fields to leave are only known from the answer.
            patch = {"metadata": {"annotations": {ANNOTATION_LEFT_TO_OTHERS: left or None}}}
            await self._kube.patch(kind, metadata["namespace"], metadata["name"], patch)

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

    async def _revoke_rights(self, resource: LogHubConsumerGroup) -> None:
        """Takes the right to make pods from the workers' ServiceAccount. The RoleBinding stays until the
        object is deleted: a right to delete RoleBindings would extend to RoleBindings of others."""
        if self._settings.worker_defaults.executor_role is None:
            return
        namespace, name = resource.metadata.namespace, workers_name(resource)
        existing = await self._kube.get(ROLE_BINDING, namespace, name)
        if existing is not None and is_ours(resource, existing) and existing.get("subjects"):
            await self._kube.patch(ROLE_BINDING, namespace, name, {"subjects": None})

    async def _request_drain(self, resource: LogHubConsumerGroup, consumer: str) -> None:
        annotations = {
            DRAIN_ANNOTATION: DRAIN_REQUESTED,
            ANNOTATION_DRAIN_REQUESTED_AT: rfc3339(self._clock.unix_s()),
        }
        patch = {"metadata": {"annotations": annotations}}
        await self._kube.patch(POD, resource.metadata.namespace, consumer, patch)

    async def _restart(self, resource: LogHubConsumerGroup, consumer: str) -> None:
        """Deletes the pod that was asked to drain, and not one that has replaced it since."""
        namespace = resource.metadata.namespace
        for pod in await self._kube.list(POD, namespace, worker_selector(resource.metadata.name)):
            metadata = pod["metadata"]
            asked = (metadata.get("annotations") or {}).get(DRAIN_ANNOTATION) == DRAIN_REQUESTED
            if metadata["name"] == consumer and asked:
                await self._kube.delete(POD, namespace, consumer, uid=metadata["uid"])

    async def _remove_workers(self, resource: LogHubConsumerGroup) -> None:
        namespace, name = resource.metadata.namespace, resource.metadata.name
        workers = workers_name(resource)
        ours = (
            (STATEFUL_SET, name),
            (SERVICE, workers),
            (DISRUPTION_BUDGET, workers),
            (SERVICE_ACCOUNT, workers),
        )
        await self._revoke_rights(resource)
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


def _is_reserved(project: str, settings: Settings) -> bool:
    """A later upgrade of the chart may need a Service of that name."""
    lease, own = settings.lease, settings.service_address.partition(".")[0]
    return project == own or (
        lease is not None and (project == lease.name or project.startswith(f"{lease.name}-"))
    )


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
