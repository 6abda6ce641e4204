"""The ASGI application: receives and authenticates a request, calls the action, and sends the response.

Everything that all requests and responses have in common (docs/sls-protocol.md 1.7) is implemented in this
module; `loghub.service.http.routes` chooses the action.
"""

import asyncio
import contextlib
from collections.abc import Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl, unquote

import structlog

from loghub.service.api_errors import InvalidInput, failure, refusal
from loghub.service.credentials import AccessKey
from loghub.service.engine import Engine, StorageFailed
from loghub.service.http import routes
from loghub.service.http.auth import authenticate
from loghub.service.http.body import ClientGone, InflightBudget, Receive, read_body
from loghub.service.http.send import ResponsesInFlight, Send
from loghub.service.messages import Request, ServiceResponse, error_response
from loghub.wire import hosts
from loghub.wire.errors import Code, LogHubError

Scope = MutableMapping[str, Any]

_log = structlog.get_logger("loghub.service.http")
_OFF_LOOP_BYTES = 128 << 10
_MAX_PARAMETERS = 64
_ID_DIGITS = 24


class Application:
    """Serves one engine; ``key`` returns the access key that is currently valid."""

    def __init__(self, engine: Engine, *, key: Callable[[], AccessKey]) -> None:
        self._engine = engine
        self._key = key
        self._limits = engine.settings.limits
        self._budget = InflightBudget(self._limits)
        self._responses = ResponsesInFlight(self._limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = self._engine.dice.hex(_ID_DIGITS)
        with contextlib.suppress(ClientGone):
            await self._responses.send(
                send,
                await self._respond(scope, receive, request_id),  # a variable would keep a replaced body
                method=scope["method"],
                request_id=request_id,
            )

    async def _respond(self, scope: Scope, receive: Receive, request_id: str) -> ServiceResponse:
        """The only place at which an error becomes a response."""
        try:
            return await self._serve(scope, receive, request_id)
        except LogHubError as error:
            return error_response(error)
        except InvalidInput as error:
            return error_response(refusal(error))
        except ClientGone:
            raise
        except StorageFailed:
            return error_response(failure(Code.INTERNAL_SERVER_ERROR, "storage failed, the service stops"))
        except Exception:  # noqa: BLE001 - a failed request must not stop the service
            _log.exception("request failed", request_id=request_id, path=scope["path"][:256])
            return error_response(
                failure(Code.INTERNAL_SERVER_ERROR, "the request failed because of an internal error")
            )

    async def _serve(self, scope: Scope, receive: Receive, request_id: str) -> ServiceResponse:
        open_action = routes.OPEN.get((scope["method"], scope["path"]))
        if open_action is not None:
            return await open_action()
        self._budget.enter()
        reserved = 0

        def reserve(size: int) -> None:
            nonlocal reserved
            self._budget.reserve(size)
            reserved += size

        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            body = await read_body(receive, headers, limits=self._limits, reserve=reserve)
            request = self._request(scope, headers, body, request_id)
            await self._authenticate(request)
            response = await routes.hot(self._engine, request)
            return response if response is not None else await routes.rest(self._engine, request)
        finally:
            self._budget.leave(reserved)

    def _request(self, scope: Scope, headers: dict[str, str], body: bytes, request_id: str) -> Request:
        path = scope["raw_path"].decode("latin-1")
        query = scope["query_string"].decode("latin-1")
        try:
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
        except ValueError as error:
            raise failure(
                Code.PARAMETER_INVALID, f"a query may have at most {_MAX_PARAMETERS} parameters"
            ) from error
        return Request(
            id=request_id,
            method=scope["method"],
            path=path,
            parts=tuple(map(unquote, path.split("/")[1:])),
            query=dict(pairs),
            headers=headers,
            body=body,
            project=self._project(headers.get("host", "")),
        )

    def _project(self, host: str) -> str | None:
        """The project that Host names under one of the known base names; without any, its first label."""
        settings = self._engine.settings
        known = (*settings.base_names, settings.host, "127.0.0.1", "localhost")
        name = hosts.strip_port(host)
        if not settings.base_names and not _ends_in(name, known):
            first, _, base = name.partition(".")
            if first and base and not hosts.is_address(name):
                return hosts.project_of(name, (base,))
        return hosts.project_of(host, known)

    async def _authenticate(self, request: Request) -> None:
        key, now_s = self._key(), self._engine.clock.unix_s()
        if len(request.body) > _OFF_LOOP_BYTES:
            await asyncio.to_thread(authenticate, request, key, now_s=now_s)
        else:
            authenticate(request, key, now_s=now_s)


def _ends_in(name: str, bases: tuple[str, ...]) -> bool:
    return any(name == base or name.endswith("." + base) for base in bases)
