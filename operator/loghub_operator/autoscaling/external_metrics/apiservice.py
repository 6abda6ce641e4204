"""Keep ``external.metrics.k8s.io`` served: with the right certificate, for the right front proxy.

What for: reads who the front proxy is, makes or reads our certificate, tells the APIService which
one it is, serves, and begins anew when one of them changed. What it must not know: the answers.
Read next: `loghub_operator.autoscaling.external_metrics.server`.

Without a folder of certificates each start makes its own: the key never leaves this process, and
the one who acts writes the certificate into the APIService (``caBundle``), so that nobody else's
is believed. An APIService that leads to another Service is somebody else's (KEDA's, say: there
can be one in a cluster) and is left alone.
"""

import asyncio
import base64
from dataclasses import dataclass

import structlog

from loghub.clock import Clock
from loghub_operator.autoscaling.external_metrics.documents import GROUP, VERSION
from loghub_operator.autoscaling.external_metrics.request_header_auth import (
    PLACE,
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
LOOK_EVERY_S = 60.0
AGAIN_S = 10.0
RENEW_S = 30 * 86_400.0


class NotOursError(Exception):
    """The APIService leads to somebody else, or is not there; in a person's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Where we are reached: our listening address, and the Service before it."""

    address: str
    namespace: str
    service: str
    keys: KeyFolder | None = None

    @property
    def host(self) -> str:
        """What the aggregator expects in our certificate."""
        return f"{self.service}.{self.namespace}.svc"


class ExternalMetricsServer:
    """The part that runs while this process acts."""

    def __init__(self, front: Front, *, board: MetricsStore, kube: Kube, clock: Clock) -> None:
        self._front = front
        self._board = board
        self._kube = kube
        self._clock = clock
        self._reviewer = AccessReviewer(kube, clock)

    async def run(self) -> None:
        """For ever; what is in the way is told and tried again."""
        while True:
            try:
                await self._serve(await self._proxy(), *self._pair())
            except (KubeError, NotAggregatedError, NotOursError, OSError) as error:
                log.error("external metrics not served", error=str(error))
                await asyncio.sleep(AGAIN_S)

    async def _serve(self, proxy: FrontProxy, pair: KeyPair, made_s: float) -> None:
        """Until something changed."""
        application = ExternalMetrics(self._board, self._reviewer, proxy).application()
        context = server_context(pair, clients_ca=proxy.ca)
        async with serving_application(self._front.address, application, context) as address:
            log.info("external metrics served", address=address)
            await self._tell_certificate(pair)
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                if await self._changed(proxy, pair, made_s):
                    return

    def _pair(self) -> tuple[KeyPair, float]:
        keys, now_s = self._front.keys, self._clock.monotonic_s()
        if keys is not None:
            return keys.read(), now_s
        return self_signed(self._front.host, now_unix_s=self._clock.unix_s()), now_s

    async def _proxy(self) -> FrontProxy:
        found = await self._kube.get(CONFIG_MAP, *PLACE)
        if found is None:
            raise NotAggregatedError("there is no ConfigMap {}/{}".format(*PLACE))
        return front_proxy_of(found)

    async def _changed(self, proxy: FrontProxy, pair: KeyPair, made_s: float) -> bool:
        """An apiserver that is away changes nothing."""
        keys = self._front.keys
        if keys is None and self._clock.monotonic_s() - made_s > RENEW_S:
            return True
        if keys is not None and keys.read() != pair:
            return True
        try:
            await self._tell_certificate(pair)
            return await self._proxy() != proxy
        except KubeError as error:
            log.warning("front proxy not looked up", error=str(error))
            return False

    async def _tell_certificate(self, pair: KeyPair) -> None:
        """Written only where it differs. Given certificates are their giver's to be told of."""
        if self._front.keys is not None:
            return
        found = await self._kube.get(API_SERVICE, "", NAME)
        spec = (found or {}).get("spec", {})
        ours = {"namespace": self._front.namespace, "name": self._front.service}
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
