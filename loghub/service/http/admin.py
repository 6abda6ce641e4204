"""The admin port: ``/metrics`` for Prometheus and ``/healthz`` for the kubelet, without authentication.

It is a port of its own, so that a NetworkPolicy can restrict the metrics, that probes need no TLS, and that
a flood of connections on the API's port reaches neither.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from prometheus_client.exposition import CONTENT_TYPE_LATEST

from loghub.service.disk import usage_of
from loghub.service.http.app import Scope
from loghub.service.http.body import Receive
from loghub.service.http.metrics import Exposition
from loghub.service.http.send import Send, send_response
from loghub.service.messages import ServiceResponse

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
_HEALTH_PATH = "/healthz"


class AdminApplication:
    """An ASGI application; ``api`` is that of the API's port, which answers ``/healthz`` itself."""

    def __init__(self, exposition: Exposition, *, data: str, api: Asgi) -> None:
        self._exposition = exposition
        self._data = data
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == _HEALTH_PATH:
            await self._api(scope, receive, send)
        else:
            await send_response(send, await self._response(scope))

    async def _response(self, scope: Scope) -> ServiceResponse:
        if (scope["method"], scope["path"]) != ("GET", "/metrics"):
            return ServiceResponse(
                status=HTTPStatus.NOT_FOUND, body=b"/metrics /healthz\n", content_type="text/plain"
            )
        usage = await asyncio.to_thread(usage_of, self._data)
        return ServiceResponse(body=self._exposition.text(usage), content_type=CONTENT_TYPE_LATEST)
