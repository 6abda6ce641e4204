"""The ASGI application: authenticates a request, receives it, calls the action, and sends the response
(`loghub_service.http.responses`).

Everything that all requests and responses have in common (docs/sls-protocol.md 1.7) is implemented in this
module; `loghub_service.http.routes` chooses the action. A request is authenticated and authorized by its
head, before anything of its body is read. PutLogs has a budget of memory of its own, so that no flood of
large bodies stops the heartbeats and checkpoints, on which every consumer's shards depend.
"""

import contextlib
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from urllib.parse import unquote, unquote_plus

import structlog

from loghub.wire import names
from loghub.wire.errors import Code, LogHubError
from loghub_service.access_keys import AccessKey
from loghub_service.engine import Engine
from loghub_service.errors import failure
from loghub_service.http import routes
from loghub_service.http.auth import FindKey, authenticate, authorize
from loghub_service.http.body import BodyLimits, ClientGone, Receive, read_body
from loghub_service.http.direct_calls import DirectCalls
from loghub_service.http.direct_put_logs import DirectPuts
from loghub_service.http.failures import failed, new_id
from loghub_service.http.metrics import UNAUTHENTICATED, RequestMetrics
from loghub_service.http.protocol import ARRIVED, AUTHENTICATED, GONE, PARKED, Direct
from loghub_service.http.responses import ResponsesInFlight, Send
from loghub_service.messages import Head, MemoryBudget, Request, ServiceResponse

Scope = MutableMapping[str, Any]

_log = structlog.get_logger("loghub_service.http")
_LOOPBACK = ("127.0.0.1", "[::1]", "localhost")
_MAX_PARAMETERS = 64  # the longest query of the API has eight; a parser's time grows with them
_HOSTS_KEPT = 256  # clients send few different hosts; bounded, since any client may send any host
# Instead of an API's name, for metrics.
_OPEN = "open"
_UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True)
class _Call:
    """A request in progress; ``action`` is the API, for metrics."""

    request_id: str
    action: str = UNAUTHENTICATED


class Application:
    """Serves one engine; ``find_key`` returns the access key with an id, as it is valid at that moment."""

    def __init__(self, engine: Engine, *, find_key: FindKey, metrics: RequestMetrics) -> None:
        self._engine = engine
        self._find_key = find_key
        self._metrics = metrics
        self._project_of = lru_cache(_HOSTS_KEPT)(self._find_project)
        limits = engine.settings.limits
        self._log_memory = MemoryBudget("put_logs", limit=limits.log_bytes)
        self._json_memory = MemoryBudget(
            "json", limit=limits.json_total_bytes, free_bytes=limits.json_free_bytes
        )
        self._responses = ResponsesInFlight(limits)
        puts = DirectPuts(
            engine,
            find_key=find_key,
            project_of=self._project_of,
            memory=self._log_memory,
            metrics=metrics,
        )
        calls = DirectCalls(
            engine,
            find_key=find_key,
            project_of=self._project_of,
            memory=self._json_memory,
            responses=self._responses,
            metrics=metrics,
        )
        self.direct = Direct(puts, calls)
        self._json_limits = BodyLimits(max_bytes=limits.json_bytes, timeout_s=limits.json_timeout_s)
        self._limits = {
            routes.PUT_LOGS: BodyLimits(max_bytes=limits.body_bytes, timeout_s=limits.body_timeout_s),
            routes.EXCHANGE: BodyLimits(max_bytes=limits.exchange_bytes, timeout_s=limits.json_timeout_s),
        }

    @property
    def budgets(self) -> tuple[MemoryBudget, MemoryBudget, ResponsesInFlight, MemoryBudget]:
        return self._log_memory, self._json_memory, self._responses, self._engine.polls.budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        call = _Call(request_id=new_id(self._engine.random))
        with contextlib.suppress(ClientGone):
            status, size = await self._responses.send(
                send,
                # Without a variable, which would keep a replaced body in memory.
                await self._respond(scope, receive, call),
                method=scope["method"],
                request_id=call.request_id,
            )
            self._metrics.responded(call.action, status, size)

    async def _respond(self, scope: Scope, receive: Receive, call: "_Call") -> ServiceResponse:
        try:
            return await self._serve(scope, receive, call)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - a failed request must not stop the service
            return failed(error, call.request_id, scope["path"])

    async def _serve(self, scope: Scope, receive: Receive, call: "_Call") -> ServiceResponse:
        open_action = routes.OPEN.get((scope["method"], scope["path"]))
        if open_action is not None:
            call.action = _OPEN
            return await open_action(self._engine)
        head = self._head(scope)
        key = self._authenticate(scope, head)
        connection = scope.get("state", {})
        authenticated = connection.get(AUTHENTICATED, lambda _: True)
        if not authenticated(key.key_id):
            raise failure(Code.SERVER_BUSY, f"access key {key.key_id!r} has too many requests in progress")
        target = routes.find(head)
        if target is None:
            call.action = _UNKNOWN
            message = f"{head.method} {head.path[:256]} is not an API of this service"
            raise failure(Code.INVALID_METHOD, message)
        call.action = target.name
        authorize(key, target.right, head.project)
        large = target.name == routes.PUT_LOGS
        body_limits = self._limits.get(target.name, self._json_limits)
        with (self._log_memory if large else self._json_memory).reservation() as memory:
            body = await read_body(
                receive,
                head.headers,
                limits=body_limits,
                memory=memory,
                has_arrived=connection.get(ARRIVED, lambda: False)(),
            )
            self._metrics.received(len(body))
            request = Request(
                head=head,
                key=key,
                body=body,
                memory=memory,
                is_gone=connection.get(GONE, lambda: False),
                gone=partial(_gone, receive),
                parked=connection.get(PARKED, contextlib.nullcontext),
            )
            return await target.serve(self._engine, request)

    def _authenticate(self, scope: Scope, head: Head) -> AccessKey:
        try:
            return authenticate(head, self._find_key, now_s=self._engine.clock.unix_s())
        except LogHubError as error:
            peer, _ = scope.get("client") or ("", 0)
            project = (head.project or "")[:128]
            _log.warning("login refused", peer=peer, project=project, reason=error.message)
            raise

    def _head(self, scope: Scope) -> Head:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["raw_path"].decode("latin-1")
        parts = path.split("/")[1:]
        return Head(
            method=scope["method"],
            path=path,
            parts=tuple(map(unquote, parts) if "%" in path else parts),
            query=_query(scope["query_string"].decode("latin-1")),
            headers=headers,
            project=self._project_of(headers.get("host", "")),
        )

    def _find_project(self, host: str) -> str | None:
        """The project that Host names under one of the known base names; without any, its first label."""
        settings = self._engine.settings
        host_names = (*settings.base_names, names.bracketed(settings.host), *_LOOPBACK)
        name = names.strip_port(host)
        if not settings.base_names and not _ends_in(name, host_names):
            first, _, base = name.partition(".")
            if first and base and not names.is_address(name):
                return names.project_of(name, (base,))
        return names.project_of(host, host_names)


async def _gone(receive: Receive) -> None:
    """Return once the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _query(text: str) -> dict[str, str]:
    """The parameters; the last value of a repeated parameter. `parse_qsl` takes several times as long."""
    pairs = text.split("&")
    if len(pairs) > _MAX_PARAMETERS:
        raise failure(Code.PARAMETER_INVALID, f"a query may have at most {_MAX_PARAMETERS} parameters")
    split = (pair.partition("=") for pair in pairs if pair)
    if "%" in text or "+" in text:
        return {unquote_plus(name): unquote_plus(value) for name, _, value in split}
    return {name: value for name, _, value in split}


def _ends_in(name: str, bases: tuple[str, ...]) -> bool:
    return any(name == base or name.endswith("." + base) for base in bases)
