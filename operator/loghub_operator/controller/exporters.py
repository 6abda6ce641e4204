"""Connects everything through which the operator exports metrics.

`Exporters` holds the metrics store, the operator's own metrics, the route of ``/metrics``, and the servers
for external autoscalers, which `loghub_operator.controller.app` runs while this process leads.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import structlog

from loghub.clock import Clock
from loghub_operator.api.status import Condition
from loghub_operator.autoscaling.certificates import KeyFolder
from loghub_operator.clients.kube import Kube
from loghub_operator.http_server import Response
from loghub_operator.metrics.collector import CONTENT_TYPE, OperatorExposition
from loghub_operator.metrics.operator_metrics import OperatorMetrics
from loghub_operator.metrics.store import MetricsReporter, MetricsStore, fresh_s
from loghub_operator.model.group_metrics import GroupMetrics
from loghub_operator.settings import Settings

log = structlog.get_logger()

RETRY_S = 10.0  # an address in use is free again once the predecessor's connections have closed
Part = Coroutine[Any, Any, None]


class Exporters(MetricsReporter):
    """The operator's metrics exports; receives the results of reconciles."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.operator_metrics = OperatorMetrics()
        self.store = MetricsStore(clock, fresh_s=fresh_s(settings.resync_s))
        self._text = OperatorExposition(
            self.operator_metrics, self.store, max_shard_series=settings.max_shard_series
        )
        self._render_lock = asyncio.Lock()

    def observed(self, metrics: GroupMetrics, conditions: tuple[Condition, ...]) -> None:
        """Stores the group's metrics."""
        self.store.update(metrics, conditions)

    def unobserved(self, namespace: str, name: str, conditions: tuple[Condition, ...]) -> None:
        """Stores that the group exists, and its conditions."""
        self.store.update_unobserved(namespace, name, conditions)

    def deleted(self, namespace: str, name: str) -> None:
        """Removes the group's metrics."""
        self.store.remove(namespace, name)

    def managed_elsewhere(self, namespace: str, name: str, operator: str) -> None:
        """Replaces the group's metrics by who has them."""
        self.store.update_elsewhere(namespace, name, operator)

    def group_left_behind(self) -> None:
        """Counts it."""
        self.operator_metrics.count_group_left_behind()

    def reconciled(self, result: str, seconds: float) -> None:
        """Counts a reconcile."""
        self.operator_metrics.reconciled(result, seconds)

    async def metrics(self) -> Response:
        """Serves ``/metrics``; renders in a thread, because the text of many groups takes a while."""
        async with self._render_lock:
            return Response(body=await asyncio.to_thread(self._text.text), content_type=CONTENT_TYPE)

    def parts(self, kube: Kube) -> list[Part]:
        """The servers that the settings enable; each runs until cancelled. The libraries of disabled servers
        are not loaded."""
        parts: list[Part] = []
        if self._settings.keda_address:
            parts.append(self._keda(self._settings.keda_address))
        if self._settings.external_metrics_address:
            parts.append(self._external(self._settings.external_metrics_address, kube))
        return parts

    async def _keda(self, address: str) -> None:
        from loghub_operator.autoscaling.keda import serving_keda

        keys = _folder(self._settings.keda_certs)
        while True:
            try:
                async with serving_keda(address, self.store, keys=keys) as real:
                    log.info("external scaler served", address=real)
                    await asyncio.Event().wait()
            except OSError as error:
                log.error("external scaler not served", error=str(error))
                await asyncio.sleep(RETRY_S)

    async def _external(self, address: str, kube: Kube) -> None:
        from loghub_operator.autoscaling.external_metrics_server import ExternalMetricsServer, ServingEndpoint

        namespace, _, service = self._settings.external_metrics_service.partition("/")
        keys = _folder(self._settings.external_metrics_certs)
        endpoint = ServingEndpoint(address=address, namespace=namespace, service=service, keys=keys)
        await ExternalMetricsServer(endpoint, store=self.store, kube=kube, clock=self._clock).run()


def _folder(path: str | None) -> KeyFolder | None:
    return KeyFolder(Path(path)) if path else None
