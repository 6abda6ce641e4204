"""Serves ``external.metrics.k8s.io`` over HTTPS, only to the API server's aggregation layer.

HPAs with metrics of type External read the metrics of a consumer group from it. TLS requires a client
certificate of the front proxy's CA. The API server authorizes each request before it forwards it. As the
Kubernetes documentation requires, this server authorizes it again with a SubjectAccessReview, whose result it
caches for `CACHE_S` seconds.

The server reads the front proxy's configuration, reads or generates a serving certificate, writes it into the
APIService, and restarts when any of these changes. Without a folder of certificates, each start generates a
certificate. Its key never leaves the process, and the leader writes the certificate into the APIService
(``caBundle``), so that the API server trusts no other certificate. An APIService that refers to another
Service belongs to another metrics server, for example KEDA's, and is not changed: a cluster can have only one
APIService for this API.
"""

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
from aiohttp import web

from loghub.clock import Clock
from loghub_operator.autoscaling import external_metrics
from loghub_operator.autoscaling.certificates import KeyFolder, KeyPair, self_signed, server_context
from loghub_operator.autoscaling.external_metrics import (
    AUTHENTICATION_CONFIG_MAP,
    GROUP,
    GROUP_VERSION,
    VERSION,
    BadSelectorError,
    FrontProxy,
    NotAggregatedError,
    UnknownMetricError,
    User,
    front_proxy_of,
    is_front_proxy,
    user_of,
)
from loghub_operator.clients.kube import (
    API_SERVICE,
    CONFIG_MAP,
    SUBJECT_ACCESS_REVIEW,
    Document,
    Kube,
    KubeError,
)
from loghub_operator.http_server import serving_application
from loghub_operator.metrics.store import MetricsStore, UnknownGroupError, UnknownValueError

log = structlog.get_logger()


MAX_CACHED_REVIEWS = 1024  # one for each metric of a few hundred HPAs; an evicted one costs a call
CACHE_S = 10.0  # less than an HPA's period of 15 s: a revoked right ends with the next read
_STATUS = {
    UnknownMetricError: 404,
    UnknownGroupError: 404,
    BadSelectorError: 400,
    UnknownValueError: 503,
}
AccessQuery = tuple[User, str, str]  # user, namespace, metric


class AccessReviewer:
    """Checks whether a user may read a metric, by SubjectAccessReviews that are cached for `CACHE_S`."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._cache: OrderedDict[AccessQuery, tuple[bool, float]] = OrderedDict()

    async def allows(self, user: User, *, namespace: str, metric: str) -> bool:
        """Whether the user may read the metric. Raises `KubeError` if the API server cannot be reached."""
        query, now = (user, namespace, metric), self._clock.monotonic_s()
        cached = self._cache.get(query)
        if cached is not None and now - cached[1] < CACHE_S:
            return cached[0]
        answer = await self._kube.create(_review(user, namespace=namespace, metric=metric))
        allowed = bool(answer.get("status", {}).get("allowed", False))
        self._cache[query] = (allowed, now)
        self._cache.move_to_end(query)
        if len(self._cache) > MAX_CACHED_REVIEWS:
            self._cache.popitem(last=False)
        return allowed


def _review(user: User, *, namespace: str, metric: str) -> Document:
    attributes = {
        "namespace": namespace,
        "verb": "list",
        "group": GROUP,
        "version": VERSION,
        "resource": metric,
    }
    spec = {
        "user": user.name,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra},
        "resourceAttributes": attributes,
    }
    kind = SUBJECT_ACCESS_REVIEW
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"namespace": ""}, "spec": spec}


class ExternalMetrics:
    """The HTTP handlers of the API."""

    def __init__(self, store: MetricsStore, reviewer: AccessReviewer, proxy: FrontProxy) -> None:
        self._store = store
        self._reviewer = reviewer
        self._proxy = proxy

    def application(self) -> web.Application:
        """The application, for a server that requires client certificates."""
        application = web.Application(client_max_size=1024, middlewares=[self._require_front_proxy])
        base = f"/apis/{GROUP_VERSION}"
        application.add_routes(
            [
                web.get("/apis", _fixed(external_metrics.group_list())),
                web.get(f"/apis/{GROUP}", _fixed(external_metrics.group())),
                web.get(base, _fixed(external_metrics.resource_list())),
                web.get(f"{base}/namespaces/{{namespace}}/{{metric}}", self._values),
            ]
        )
        return application

    @web.middleware
    async def _require_front_proxy(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        if not is_front_proxy(self._proxy, certificate):
            return _failed(403, "only requests from the API server's front proxy are accepted")
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return _failed(404, "path not found")

    async def _values(self, request: web.Request) -> web.Response:
        namespace, metric = request.match_info["namespace"], request.match_info["metric"]
        user = user_of(self._proxy, request.headers.items())
        if user is None:
            return _failed(403, "the request has no user header")
        try:
            if not await self._reviewer.allows(user, namespace=namespace, metric=metric):
                reason = f'User "{user.name}" cannot list resource "{metric}" in API group "{GROUP}"'
                return _failed(403, f'{reason} in the namespace "{namespace}"')
        except KubeError as error:
            log.warning("access not reviewed", error=str(error))
            return _failed(503, "the API server could not be asked to authorize the request")
        return self._answer(namespace, metric, request.query.get("labelSelector", ""))

    def _answer(self, namespace: str, metric: str, selector: str) -> web.Response:
        try:
            values = external_metrics.value_list(
                self._store, namespace=namespace, metric=metric, selector=selector
            )
        except tuple(_STATUS) as error:
            return _failed(_STATUS[type(error)], str(error))
        return web.json_response(values)


def _fixed(document: Document) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(document)

    return answer


def _failed(status: int, message: str) -> web.Response:
    return web.json_response(external_metrics.failure(status, message), status=status)


NAME = f"{VERSION}.{GROUP}"
CHECK_INTERVAL_S = 60.0  # a rotated certificate stays valid long after its successor is written
RETRY_S = 10.0  # less than an HPA's period of 15 s
RENEW_AFTER_S = 30 * 86_400.0  # a twelfth of the validity: a failed renewal has months to be retried


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
        config_map = await self._kube.get(CONFIG_MAP, *AUTHENTICATION_CONFIG_MAP)
        if config_map is None:
            raise NotAggregatedError("there is no ConfigMap {}/{}".format(*AUTHENTICATION_CONFIG_MAP))
        return front_proxy_of(config_map)

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
        registered = await self._kube.get(API_SERVICE, "", NAME)
        spec = (registered or {}).get("spec", {})
        ours = {"namespace": self._endpoint.namespace, "name": self._endpoint.service}
        leads_to = {key: (spec.get("service") or {}).get(key) for key in ours}
        if leads_to != ours:
            raise NotOursError(
                f"APIService {NAME} leads to {leads_to}, and not to {ours}"
                if registered
                else f"no APIService {NAME}"
            )
        bundle = base64.b64encode(pair.certificate).decode()
        if spec.get("caBundle") != bundle:
            await self._kube.patch(API_SERVICE, "", NAME, {"spec": {"caBundle": bundle}})
