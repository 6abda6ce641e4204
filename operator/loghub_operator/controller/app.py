"""Builds the operator from its parts and runs them until the process stops or loses its lease."""

import asyncio
import os
import socket
import uuid
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import kopf
import structlog

from loghub.clock import Clock, SystemClock
from loghub_operator.api.v1alpha1 import EMBEDDED, LogHubConsumerGroup
from loghub_operator.apply.applier import Applier
from loghub_operator.apply.event_recorder import EventRecorder
from loghub_operator.clients.kube import AioKube, Kube, KubeError, configured, connection
from loghub_operator.clients.log_service import Connect, LogServicePool, connector
from loghub_operator.controller import handlers, liveness
from loghub_operator.controller.exporters import Exporters
from loghub_operator.controller.handlers import KopfLogin
from loghub_operator.controller.project_services import ProjectServices
from loghub_operator.controller.reconciler import Intervals, Reconciler
from loghub_operator.controller.watch_check import WatchCheck
from loghub_operator.controller.workqueue import Key
from loghub_operator.http_server import Response, Route, serving, text
from loghub_operator.leader.elector import LeaderElector
from loghub_operator.leader.fencing import FencedKube, WriteFence, fenced_connect, unfenced
from loghub_operator.leader.leader_label import LeaderLabel
from loghub_operator.leader.lease import LeaseTimings
from loghub_operator.leader.namespace_claims import ClaimedObjects, NamespaceClaims, claim_duration_s
from loghub_operator.logservice.access import LogServiceAccess, LogServiceUnavailable, insecure_endpoint
from loghub_operator.logservice.secret_credentials import SecretCredentials
from loghub_operator.metrics.operator_metrics import metered_connect
from loghub_operator.observe.drift_detector import DriftDetector
from loghub_operator.observe.group_index import GroupIndex
from loghub_operator.observe.observer import Observer
from loghub_operator.settings import Settings

LEASE_LOST = 3  # the exit code, apart from 1 of an error and 2 of wrong arguments
DEPENDENCIES_EVERY = 3  # resync periods between two comparisons of the StatefulSet's dependencies
FORBIDDEN_TRIES = 5  # an API server that has just started rejects requests that it later allows
log = structlog.get_logger()


class LeaseLostError(Exception):
    """Another operator is, or may become, the leader."""


def end_now(why: str) -> None:
    """Ends the process without clean-up, which might block."""
    log.error("lease lost", why=why)
    os._exit(LEASE_LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConnections:
    """How the operator reaches the API server, by our client and by Kopf, and the log services."""

    kube: Kube
    login: KopfLogin
    connect: Connect


class Operator:
    """All parts of the operator process, connected to each other."""

    def __init__(
        self,
        settings: Settings,
        *,
        connections: OperatorConnections,
        clock: Clock,
        timings: LeaseTimings,
        exporters: Exporters,
    ) -> None:
        kube = connections.kube
        self._settings = settings
        self._clock = clock
        self._kube = kube
        self._login = connections.login
        self._exporters = exporters
        self._instance = settings.pod_name or socket.gethostname()
        self._leading, self._listed = settings.lease is None, False
        fence = unfenced(clock) if settings.lease is None else WriteFence(clock)
        self._leader = self._candidate(kube, fence, timings)
        self._writer = writer = FencedKube(kube, fence)
        self._log_services = LogServicePool(
            fenced_connect(metered_connect(connections.connect, exporters.operator_metrics), fence)
        )
        self._group_index = GroupIndex(settings)
        exporters.store.follow(self._existing_groups)
        drift = DriftDetector(kube=writer, clock=clock, every_s=DEPENDENCIES_EVERY * settings.resync_s)
        log_service = LogServiceAccess(
            pool=self._log_services,
            endpoint=self._endpoint,
            credentials=SecretCredentials(writer),
            clock=clock,
        )
        observer = Observer(
            kube=writer,
            log_service=log_service,
            group_index=self._group_index,
            drift=drift,
            settings=settings,
            clock=clock,
        )
        events = EventRecorder(kube=writer, clock=clock, instance=self._instance)
        wrote = drift.wrote
        applier = Applier(
            kube=writer, log_service=log_service, wrote=wrote, events=events, settings=settings, clock=clock
        )
        self._reconciler = Reconciler(
            kube=self._claimed_objects(),
            observer=observer,
            applier=applier,
            clock=clock,
            intervals=Intervals(resync_s=settings.resync_s, numbers_every_s=settings.status_interval_s),
            listener=exporters,
        )
        self._project_services = self._services_of_projects(log_service)
        self._watch_check = WatchCheck(
            kube=writer,
            namespaces=settings.namespaces,
            group_index=self._group_index,
            enqueue=lambda name: self._reconciler.enqueue(Key(*name)),
        )

    def _services_of_projects(self, log_service: LogServiceAccess) -> ProjectServices | None:
        namespace = self._settings.project_namespace
        if namespace is None:
            return None
        return ProjectServices(
            kube=self._writer,
            log_service=log_service,
            group_index=self._group_index,
            namespace=namespace,
            endpoint=self._settings.embedded_endpoint,
        )

    def _claimed_objects(self) -> ClaimedObjects:
        """To other operators, this operator is its Lease, which all processes of a release share."""
        lease, bound_s = self._settings.lease, liveness.bound_s(self._settings.resync_s)
        identity = self._instance if lease is None else f"{lease.namespace}/{lease.name}"
        duration_s = claim_duration_s(bound_s)
        claims = NamespaceClaims(self._writer, self._clock, identity=identity, duration_s=duration_s)
        return ClaimedObjects(self._writer, claims)

    def _candidate(self, kube: Kube, fence: WriteFence, timings: LeaseTimings) -> LeaderElector | None:
        if self._settings.lease is None:
            return None
        identity = f"{self._instance}_{uuid.uuid4()}"
        return LeaderElector(
            kube=kube,
            fence=fence,
            clock=self._clock,
            lease=self._settings.lease,
            identity=identity,
            timings=timings,
        )

    def _endpoint(self, resource: LogHubConsumerGroup) -> str:
        """The URL of a group's log service; the administrator chooses the URL of the embedded service."""
        endpoint, settings = resource.spec.endpoint, self._settings
        remedy = "ask the administrator of the operator to add the host to allowedHttpHosts in the chart"
        if endpoint != EMBEDDED and (
            why := insecure_endpoint(endpoint, settings.allowed_http_hosts, remedy=remedy)
        ):
            raise LogServiceUnavailable(why)
        return settings.endpoint(endpoint)

    def _existing_groups(self, namespace: str) -> frozenset[str] | None:
        return self._group_index.names(namespace) if self._listed else None

    def routes(self) -> dict[str, Route]:
        """The HTTP routes. A follower that waits for the Lease is ready, because it can take over."""
        return {"/healthz": self._health, "/readyz": self._ready, "/metrics": self._exporters.metrics}

    def _ready(self) -> Response:
        if self._leading and not self._listed:
            return text("the consumer groups have not been listed yet", status=503)
        return self._health()

    def _health(self) -> Response:
        inputs = liveness.HealthInputs(
            leading=self._leading,
            lease_checked_s=None if self._leader is None else self._leader.last_attempt_s,
            reconcile_ended_s=self._reconciler.ended_s,
            tasks=self._reconciler.tasks(),
            unreported=tuple("/".join(known[:2]) for known in self._watch_check.unreported),
        )
        bound_s = liveness.bound_s(self._settings.resync_s)
        problems = liveness.problems(inputs, now=self._clock.monotonic_s(), bound_s=bound_s)
        role = "leader" if self._leading else "waiting for the lease"
        return text("\n".join(problems), status=503) if problems else text(f"ok, {role}")

    async def run(self, stop: asyncio.Event, *, end: Callable[[str], None]) -> None:
        """Runs until ``stop`` is set. ``end`` is called when the Lease is lost, and need not return."""
        try:
            if self._leader is None or await _before(stop, self._acquire(self._leader)):
                self._leading = True
                self._exporters.operator_metrics.leading()
                await self._act(stop, end)
        finally:
            await self._reconciler.close()
            self._log_services.close()
            if self._leader is not None:
                await self._leader.release()

    def _label(self, kube: Kube) -> LeaderLabel | None:
        lease = self._settings.lease
        pod = self._settings.pod_name
        return LeaderLabel(kube=kube, lease=lease, pod=pod) if lease and pod else None

    async def _acquire(self, leader: LeaderElector) -> None:
        """Waits for leadership. The label of its own pod is the only thing that a follower writes."""
        if (label := self._label(self._kube)) is not None:
            await label.remove_stale()
        await leader.acquire()

    async def _act(self, stop: asyncio.Event, end: Callable[[str], None]) -> None:
        """Runs all parts of the leader. None of them ends by itself, so the first that does ends all."""
        parts = [self._watch(stop), self._watch_check.run(), *self._exporters.parts(self._writer)]
        if self._project_services is not None:
            parts.append(self._project_services.run())
        if self._leader is not None:
            parts.append(_hold(self._leader, end))
        if (label := self._label(self._writer)) is not None:
            parts.append(label.take())
        await _first_of(parts)

    async def _list_groups(self) -> None:
        """Fills the group index before the watch starts, so that no group is reconciled before all objects
        that refer to it are known. A namespace that still cannot be listed, for example because it was
        deleted together with our Role, does not block the others."""
        for tried, pause_s in enumerate(handlers.Backoffs(), 1):
            try:
                forbidden = await self._group_index.initial_list(self._kube)
            except KubeError as error:
                log.warning("objects not listed", error=str(error))
            else:
                for namespace, reason in forbidden.items():
                    log.error("namespace not watched", namespace=namespace, error=str(reason))
                if not forbidden or tried >= FORBIDDEN_TRIES:
                    self._listed = True
                    return
            await asyncio.sleep(pause_s)

    async def _watch(self, stop: asyncio.Event) -> None:
        if not await _before(stop, self._list_groups()):
            return
        registry = kopf.OperatorRegistry()
        handlers.register(registry, self._login)
        await kopf.operator(
            registry=registry,
            settings=handlers.settings(),
            memo=kopf.Memo(
                reconciler=self._reconciler, watch_check=self._watch_check, group_index=self._group_index
            ),
            standalone=True,
            clusterwide=not self._settings.namespaces,
            namespaces=self._settings.namespaces,
            stop_flag=stop,
        )


async def _hold(leader: LeaderElector, end: Callable[[str], None]) -> None:
    why = await leader.hold()
    end(why)
    raise LeaseLostError(why)


async def _first_of(parts: list[Coroutine[Any, Any, None]]) -> None:
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await _cancelled(tasks)


async def _before(stop: asyncio.Event, part: Coroutine[Any, Any, None]) -> bool:
    """Whether the part ended before ``stop`` was set."""
    tasks = [asyncio.create_task(part), asyncio.create_task(stop.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            return False
        await tasks[0]
        return True
    finally:
        await _cancelled(tasks)


async def _cancelled(tasks: "list[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def run(
    settings: Settings,
    stop: asyncio.Event,
    *,
    connect: Connect | None = None,
    kube: Kube | None = None,
    end: Callable[[str], None] = end_now,
    timings: LeaseTimings | None = None,
) -> None:
    """Runs the operator until ``stop`` is set. The defaults of ``kube`` and ``connect`` are an `AioKube` and
    `connector`. Kopf and the `AioKube` share one configuration, which comes from the environment."""
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        exporters = Exporters(settings, clock)
        configuration = await configured(clock=clock)
        if kube is None:
            client = AioKube(configuration, on_response=exporters.operator_metrics.count_kubernetes_request)
            kube = await stack.enter_async_context(client)
        operator = Operator(
            settings,
            connections=OperatorConnections(
                kube=kube,
                login=KopfLogin(partial(connection, configuration), clock),
                connect=connect or connector(settings.uses_sdk, settings.address_of),
            ),
            clock=clock,
            timings=timings or LeaseTimings(),
            exporters=exporters,
        )
        if settings.http_address:
            await stack.enter_async_context(serving(settings.http_address, operator.routes()))
        await operator.run(stop, end=end)
