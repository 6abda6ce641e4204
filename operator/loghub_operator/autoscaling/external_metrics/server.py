"""``external.metrics.k8s.io`` over HTTPS, only for the API server's aggregation layer.

HPAs with metrics of type External read the metrics of a consumer group from it.

TLS requires a client certificate of the front proxy's CA. The API server authorizes each request before it
forwards it. As the Kubernetes documentation requires, this server authorizes it again with a
SubjectAccessReview, whose result it caches for `CACHE_S` seconds.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from loghub.clock import Clock
from loghub_operator.autoscaling.external_metrics import documents
from loghub_operator.autoscaling.external_metrics.documents import (
    GROUP,
    GROUP_VERSION,
    VERSION,
    UnknownMetricError,
)
from loghub_operator.autoscaling.external_metrics.label_selector import BadSelectorError
from loghub_operator.autoscaling.external_metrics.request_header_auth import (
    FrontProxy,
    User,
    is_front_proxy,
    user_of,
)
from loghub_operator.clients.kube import SUBJECT_ACCESS_REVIEW, Document, Kube, KubeError
from loghub_operator.metrics.store import MetricsStore, UnknownGroupError, UnknownValueError

log = structlog.get_logger()

MAX_CACHED_REVIEWS = 1024
CACHE_S = 10.0
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
                web.get("/apis", _fixed(documents.group_list())),
                web.get(f"/apis/{GROUP}", _fixed(documents.group())),
                web.get(base, _fixed(documents.resource_list())),
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
            values = documents.value_list(self._store, namespace=namespace, metric=metric, selector=selector)
        except tuple(_STATUS) as error:
            return _failed(_STATUS[type(error)], str(error))
        return web.json_response(values)


def _fixed(document: Document) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(document)

    return answer


def _failed(status: int, message: str) -> web.Response:
    return web.json_response(documents.failure(status, message), status=status)
