"""Look at one consumer group: its objects in the cluster, its group at the log service.

What for: fills `Observed`; reads only. What it must not know: what follows from it. Read
next: `loghub_operator.plan`.
"""

import asyncio
import base64
from dataclasses import replace
from typing import Any

from loghub.client.port import Credentials, LogHub
from loghub.client.target import BadEndpoint
from loghub.clock import Clock
from loghub.worker_contract import (
    ACCESS_KEY_ID_FILE,
    ACCESS_KEY_SECRET_FILE,
    SECURITY_TOKEN_FILE,
    WorkerConfig,
)
from loghub_operator.api.v1alpha1 import EMBEDDED, LogHubConsumerGroup
from loghub_operator.checkpoints import look_ahead
from loghub_operator.claims import Claims
from loghub_operator.drifting import Drifting
from loghub_operator.hubs import Hubs
from loghub_operator.kube import (
    CONFIG_MAP,
    FORBIDDEN,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Kube,
    KubeError,
)
from loghub_operator.logservice import observe_service
from loghub_operator.model import (
    Code,
    MoveObserved,
    Observed,
    ServiceObserved,
    ServiceTrouble,
    Site,
    Trouble,
    WorkerObserved,
    WorkerSet,
)
from loghub_operator.names import (
    ANNOTATION_CONFIG_HASH,
    ANNOTATION_LAST_APPLIED_HASH,
    ANNOTATION_POD_TEMPLATE_HASH,
    FINALIZER,
    worker_selector,
)
from loghub_operator.origin import origin_in
from loghub_operator.pods import worker_of
from loghub_operator.repositioning import needs_a_look, record_name
from loghub_operator.resources import (
    applied_hash,
    beside,
    is_ours,
    leads_to_the_service,
    pod_template_hash,
    record_in,
    worker_set,
)
from loghub_operator.settings import CODE_ROOT, SINK_ROOT, Settings
from loghub_operator.shard_marks import KeptEnds
from loghub_operator.usercode import code_in, code_source
from loghub_operator.workers import worker_config

Document = dict[str, Any]
BESIDE_EVERY = 3  # looks at rest between two looks at what stands beside the StatefulSet


def site_of(resource: LogHubConsumerGroup, settings: Settings) -> Site:
    """Where this group's workers run."""
    embedded = resource.spec.endpoint == EMBEDDED
    return Site(
        endpoint=settings.endpoint(resource.spec.endpoint),
        sink_root=SINK_ROOT,
        code_root=CODE_ROOT,
        needs_project_address=embedded and settings.project_namespace is not None,
    )


class Observer:
    """Looks at one group after the other; holds the connections, and what never changes."""

    def __init__(self, *, kube: Kube, hubs: Hubs, settings: Settings, clock: Clock) -> None:
        self._kube = kube
        self._hubs = hubs
        self._settings = settings
        self._clock = clock
        self._ends = KeptEnds()
        self.claims = Claims(settings)
        self.drifting = Drifting(kube=kube, clock=clock, every_s=BESIDE_EVERY * settings.resync_s)

    async def observe(self, resource: LogHubConsumerGroup) -> Observed:
        """One look. Raises `KubeError`; trouble with the log service is part of what is seen."""
        site = replace(site_of(resource, self._settings), code=await self._code(resource))
        workers, worker_set, address, keys = await asyncio.gather(
            self._workers(resource),
            self._worker_set(resource, site),
            self._project_address(resource, site),
            self._credentials(resource),
        )
        service = await self._service(resource, workers, keys) if address else _not_addressed(resource, site)
        move = await self._move(resource, service) if not workers else None
        return Observed(
            at_unix_s=self._clock.unix_s(),
            site=site,
            service=service,
            worker_set=worker_set,
            workers=workers,
            project_address=address,
            held=FINALIZER in resource.metadata.finalizers,
            group_origin=origin_in(resource),
            peers=self.claims.peers_of(resource),
            move=move,
        )

    async def hub(self, resource: LogHubConsumerGroup) -> LogHub | Trouble:
        """The client of the group's project, or why there is none."""
        return self._hub(resource, await self._credentials(resource))

    def _hub(self, resource: LogHubConsumerGroup, credentials: Credentials | Trouble) -> LogHub | Trouble:
        if isinstance(credentials, Trouble):
            return credentials
        site = site_of(resource, self._settings)
        try:
            return self._hubs.hub(site.endpoint, resource.spec.project, credentials)
        except BadEndpoint as error:  # a port beyond all ports, say
            return Trouble(reason=ServiceTrouble.ENDPOINT_UNREACHABLE, message=str(error))

    async def _workers(self, resource: LogHubConsumerGroup) -> tuple[WorkerObserved, ...]:
        metadata = resource.metadata
        pods = await self._kube.select(POD, metadata.namespace, worker_selector(metadata.name))
        now = self._clock.unix_s()
        workers = (worker_of(pod, now) for pod in pods)
        return tuple(sorted((one for one in workers if one is not None), key=lambda one: one.ordinal))

    async def _worker_set(self, resource: LogHubConsumerGroup, site: Site) -> WorkerSet | None:
        metadata = resource.metadata
        found = await self._kube.get(STATEFUL_SET, metadata.namespace, metadata.name)
        if found is None or found["metadata"].get("deletionTimestamp") or not is_ours(resource, found):
            return None
        annotations = found["metadata"].get("annotations") or {}
        config, image = worker_config(resource, site), self._settings.worker_image
        drifted = annotations.get(ANNOTATION_LAST_APPLIED_HASH) != applied_hash(resource, config, image=image)
        return WorkerSet(
            replicas=int(found["spec"].get("replicas", 0)),
            config_hash=annotations.get(ANNOTATION_CONFIG_HASH, ""),
            drifted=drifted,
            rolls=annotations.get(ANNOTATION_POD_TEMPLATE_HASH)
            != pod_template_hash(resource, config, image=image),
            # While ours differ from what was applied, a difference is our own.
            drift=() if drifted else await self._drift(resource, config, found),
        )

    async def _drift(
        self, resource: LogHubConsumerGroup, config: WorkerConfig, found: Document
    ) -> tuple[str, ...]:
        wanted = worker_set(resource, config, replicas=0, image=self._settings.worker_image)
        del wanted["spec"]["replicas"]
        return await self.drifting.seen(wanted, found, beside(resource, config))

    async def _move(self, resource: LogHubConsumerGroup, service: ServiceObserved) -> MoveObserved | None:
        if service.trouble is not None or service.group is None or not needs_a_look(resource):
            return None
        hub, namespace = await self.hub(resource), resource.metadata.namespace
        if isinstance(hub, Trouble):
            return None
        name = record_name(resource)
        kept = await self._kube.get(CONFIG_MAP, namespace, name)
        record = None if kept is None else record_in(kept)
        if kept is not None and (record is None or not is_ours(resource, kept)):
            return MoveObserved(trouble=f"ConfigMap {name} exists and does not belong to this object")
        source = await self._reset_source(resource)
        return await self._hubs.call(
            look_ahead, hub, resource, service.shards, record=record, source=source, clock=self._clock
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

    async def _project_address(self, resource: LogHubConsumerGroup, site: Site) -> bool:
        namespace = self._settings.project_namespace
        if not site.needs_project_address or namespace is None:
            return True
        try:
            there = await self._kube.get(SERVICE, namespace, resource.spec.project)
        except KubeError as error:
            if error.status != FORBIDDEN:
                raise
            return False  # whoever makes it is refused in the same words, and those are told
        return there is not None and leads_to_the_service(there)

    async def _service(
        self,
        resource: LogHubConsumerGroup,
        workers: tuple[WorkerObserved, ...],
        credentials: Credentials | Trouble,
    ) -> ServiceObserved:
        hub = self._hub(resource, credentials)
        if isinstance(hub, Trouble):
            return ServiceObserved(trouble=hub)
        expected = [worker.name for worker in workers]
        return await self._hubs.call(
            observe_service, hub, resource, expected=expected, ends=self._ends, clock=self._clock
        )

    async def _credentials(self, resource: LogHubConsumerGroup) -> Credentials | Trouble:
        name, namespace = resource.spec.credentials_secret.name, resource.metadata.namespace
        try:
            secret = await self._kube.get(SECRET, namespace, name)
        except KubeError as error:
            if error.status != FORBIDDEN:
                raise
            words = f"the operator has no right to read Secret {name} in namespace {namespace}"
            return _missing(f"{words}; is it among rbac.secretNames of its chart?")
        if secret is None:
            return _missing(
                f"there is no Secret {name} in namespace {namespace}; "
                f"make it with the keys {ACCESS_KEY_ID_FILE} and {ACCESS_KEY_SECRET_FILE}"
            )
        data = {key: _decoded(value) for key, value in (secret.get("data") or {}).items()}
        absent = [key for key in (ACCESS_KEY_ID_FILE, ACCESS_KEY_SECRET_FILE) if not data.get(key)]
        if absent:
            return _missing(f"Secret {name} in namespace {namespace} has no {' and no '.join(absent)}")
        return Credentials(
            access_key_id=data[ACCESS_KEY_ID_FILE],
            access_key_secret=data[ACCESS_KEY_SECRET_FILE],
            security_token=data.get(SECURITY_TOKEN_FILE, ""),
        )


def _not_addressed(resource: LogHubConsumerGroup, site: Site) -> ServiceObserved:
    """Not asked at all: a name that was looked up too early stays unknown to DNS caches for a while."""
    message = f"project {resource.spec.project} does not have a host name at {site.endpoint} yet"
    return ServiceObserved(trouble=Trouble(reason=ServiceTrouble.ENDPOINT_UNREACHABLE, message=message))


def _decoded(value: str) -> str:
    # Made from a file, a key often has a line's end.
    return base64.b64decode(value).decode(errors="replace").strip()


def _missing(message: str) -> Trouble:
    return Trouble(reason=ServiceTrouble.CREDENTIALS_MISSING, message=message)
