"""The ASGI application of the whole process: it answers while the data is still being recovered.

A recovery may take long. Meanwhile `/healthz` says how far it is, with status 503, so that a probe waits for
it and nothing is routed to the service; every other request gets ServerBusy, which clients repeat.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from loghub.service.api_errors import failure
from loghub.service.http.body import Receive
from loghub.service.http.send import ResponsesInFlight, Send
from loghub.service.messages import ServiceResponse, error_response
from loghub.service.ports import Dice
from loghub.service.settings import Limits
from loghub.wire.errors import Code

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEALTH_PATH = "/healthz"
_ID_DIGITS = 24


class Gate:
    """Passes requests on once `open` was called; ``progress`` says in words what is done before that."""

    def __init__(self, *, progress: Callable[[], str], limits: Limits, dice: Dice) -> None:
        self._progress = progress
        self._dice = dice
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
                request_id=self._dice.hex(_ID_DIGITS),
            )

    def _answer(self, path: str) -> ServiceResponse:
        progress = self._progress()
        if path == _HEALTH_PATH:
            body = msgspec.json.encode({"status": "recovering", "message": progress})
            return ServiceResponse(status=503, body=body)
        return error_response(failure(Code.SERVER_BUSY, f"the service is {progress}"))
