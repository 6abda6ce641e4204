"""Runs the server of ``external.metrics.k8s.io`` with the current certificate and front proxy.

The server reads the front proxy's configuration, reads or generates a serving certificate, writes it into
the APIService, and restarts when any of these changes.

Without a folder of certificates, each start generates a certificate. Its key never leaves the process, and
the leader writes the certificate into the APIService (``caBundle``), so that the API server trusts no other
certificate. An APIService that refers to another Service belongs to another metrics server, for example
KEDA's, and is not changed: a cluster can have only one APIService for this API.
"""

import asyncio
import base64
from dataclasses import dataclass

import structlog

from loghub.clock import Clock
from loghub_operator.autoscaling.external_metrics.documents import GROUP, VERSION
from loghub_operator.autoscaling.external_metrics.request_header_auth import (
    AUTHENTICATION_CONFIG_MAP,
    FrontProxy,
    NotAggregatedError,
    front_proxy_of,
)
from loghub_operator.autoscaling.external_metrics.server import AccessReviewer, ExternalMetrics
from loghub_operator.autoscaling.tls.key_pair import KeyFolder, KeyPair, server_context
from loghub_operator.autoscaling.tls.self_signed import self_signed
from loghub_operator.clients.kube import API_SERVICE, CONFIG_MAP, Kube, KubeError
from loghub_operator.http_server import serving_application
from loghub_operator.metrics.store import MetricsStore

log = structlog.get_logger()

NAME = f"{VERSION}.{GROUP}"
CHECK_INTERVAL_S = 60.0
RETRY_S = 10.0
RENEW_AFTER_S = 30 * 86_400.0


class NotOursError(Exception):
    """The APIService refers to another Service or does not exist; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEndpoint:
    """How clients reach the server: its listening address, and the Service that routes to it."""

    address: str
    namespace: str
    service: str
    keys: KeyFolder | None = None

    @property
    def host(self) -> str:
        """The host name that the aggregation layer expects in the serving certificate."""
        return f"{self.service}.{self.namespace}.svc"


class ExternalMetricsServer:
    """The server of external metrics, which runs while this process is the leader."""

    def __init__(self, endpoint: ServingEndpoint, *, store: MetricsStore, kube: Kube, clock: Clock) -> None:
        self._endpoint = endpoint
        self._store = store
        self._kube = kube
        self._clock = clock
        self._reviewer = AccessReviewer(kube, clock)

    async def run(self) -> None:
        """Serve forever. An error is logged, and serving is retried after `RETRY_S`."""
        while True:
            try:
                await self._serve(await self._proxy(), *self._pair())
            except (KubeError, NotAggregatedError, NotOursError, OSError) as error:
                log.error("external metrics not served", error=str(error))
                await asyncio.sleep(RETRY_S)

    async def _serve(self, proxy: FrontProxy, pair: KeyPair, read_s: float) -> None:
        """Serve until the front proxy or the certificate changes, or a generated certificate is due for
        renewal."""
        application = ExternalMetrics(self._store, self._reviewer, proxy).application()
        context = server_context(pair, clients_ca=proxy.ca)
        async with serving_application(self._endpoint.address, application, context) as address:
            log.info("external metrics served", address=address)
            await self._publish_certificate(pair)
            while True:
                await asyncio.sleep(CHECK_INTERVAL_S)
                if await self._changed(proxy, pair, read_s):
                    return

    def _pair(self) -> tuple[KeyPair, float]:
        keys, now_s = self._endpoint.keys, self._clock.monotonic_s()
        if keys is not None:
            return keys.read(), now_s
        return self_signed(self._endpoint.host, now_unix_s=self._clock.unix_s()), now_s

    async def _proxy(self) -> FrontProxy:
        found = await self._kube.get(CONFIG_MAP, *AUTHENTICATION_CONFIG_MAP)
        if found is None:
            raise NotAggregatedError("there is no ConfigMap {}/{}".format(*AUTHENTICATION_CONFIG_MAP))
        return front_proxy_of(found)

    async def _changed(self, proxy: FrontProxy, pair: KeyPair, read_s: float) -> bool:
        """Whether the server must restart. While the API server is unavailable, nothing counts as changed."""
        keys = self._endpoint.keys
        if keys is None and self._clock.monotonic_s() - read_s > RENEW_AFTER_S:
            return True
        if keys is not None and keys.read() != pair:
            return True
        try:
            await self._publish_certificate(pair)
            return await self._proxy() != proxy
        except KubeError as error:
            log.warning("front proxy not looked up", error=str(error))
            return False

    async def _publish_certificate(self, pair: KeyPair) -> None:
        """Write a generated certificate into the APIService if it differs. For certificates from a folder,
        their provider sets ``caBundle``. Raises `NotOursError`, `KubeError`."""
        if self._endpoint.keys is not None:
            return
        found = await self._kube.get(API_SERVICE, "", NAME)
        spec = (found or {}).get("spec", {})
        ours = {"namespace": self._endpoint.namespace, "name": self._endpoint.service}
        leads_to = {key: (spec.get("service") or {}).get(key) for key in ours}
        if leads_to != ours:
            raise NotOursError(
                f"APIService {NAME} leads to {leads_to}, and not to {ours}"
                if found
                else f"no APIService {NAME}"
            )
        bundle = base64.b64encode(pair.certificate).decode()
        if spec.get("caBundle") != bundle:
            await self._kube.patch(API_SERVICE, "", NAME, {"spec": {"caBundle": bundle}})
