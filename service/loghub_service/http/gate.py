"""The ASGI application of the whole process, which answers while the data is still being recovered, and the
admin port with ``/metrics`` for Prometheus and ``/healthz`` for the kubelet.

A recovery may take long. Meanwhile `/healthz` reports the progress with status 503, so that a probe waits for
it and nothing is routed to the service; every other request gets ServerBusy, which clients repeat.

The admin port needs no authentication. It is a port of its own, so that a NetworkPolicy can restrict the
metrics, that probes need no TLS, and that a flood of connections on the API's port reaches neither.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from loghub.wire.errors import Code
from loghub_service.errors import failure
from loghub_service.http.body import Receive
from loghub_service.http.failures import new_id
from loghub_service.http.metrics import ServiceExposition
from loghub_service.http.responses import ResponsesInFlight, Send, send_response
from loghub_service.messages import ServiceResponse, error_response
from loghub_service.ports import Random, usage_of
from loghub_service.settings import Limits

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEALTH_PATH = "/healthz"


class StartGate:
    """Passes requests on once `open` was called; until then ``progress`` describes the recovery in words."""

    def __init__(self, *, progress: Callable[[], str], limits: Limits, random: Random) -> None:
        self._progress = progress
        self._random = random
        self._responses = ResponsesInFlight(limits)
        self._application: Application | None = None

    def open(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._application is not None:
            await self._application(scope, receive, send)
        elif scope["type"] == "http":
            # The body is not read: uvicorn closes the connection of a request that sends one.
            await self._responses.send(
                send,
                self._answer(scope["path"]),
                method=scope["method"],
                request_id=new_id(self._random),
            )

    def _answer(self, path: str) -> ServiceResponse:
        progress = self._progress()
        if path == _HEALTH_PATH:
            body = msgspec.json.encode({"status": "recovering", "message": progress})
            return ServiceResponse(status=503, body=body)
        return error_response(failure(Code.SERVER_BUSY, f"the service is {progress}"))


Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


class AdminApplication:
    """The ASGI application of the admin port; ``api`` is the application of the API's port, which answers
    ``/healthz`` itself."""

    def __init__(self, exposition: ServiceExposition, *, data: str, api: Asgi) -> None:
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
