"""Heartbeats, checkpoints and GetCursor without ASGI: a request that arrives in one piece is read and
verified by the native part, and served by the same function as otherwise.

Like `loghub_service.http.direct_put_logs`, which has the reasons, this module decides nothing of its own: it
leaves whatever is unusual or refused to the application, before anything has happened. Without the native
part, everything is left to the application.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from loghub.wire import native
from loghub.wire.errors import LogHubError
from loghub_service.access_keys import Right
from loghub_service.api import groups, logs
from loghub_service.engine import Engine
from loghub_service.http import routes
from loghub_service.http.auth import FindKey, authorize, check_date
from loghub_service.http.direct_put_logs import needs_token
from loghub_service.http.failures import failed, new_id
from loghub_service.http.metrics import RequestMetrics
from loghub_service.http.responses import ResponsesInFlight
from loghub_service.messages import Head, MemoryBudget, Request, ServiceResponse

Waiting = asyncio.Future[ServiceResponse]
# Arguments: engine, request, and the names of a logstore and of one of its groups or shards. None: refused,
# and nothing has happened.
Serve = Callable[[Engine, Request, str, str], "ServiceResponse | Waiting | None"]


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was accepted: its response, or the future of it."""

    head: Head
    action: str
    outcome: "ServiceResponse | Waiting"


class DirectCalls:
    """Serves one engine."""

    def __init__(
        self,
        engine: Engine,
        *,
        find_key: FindKey,
        project_of: Callable[[str], str | None],
        memory: MemoryBudget,
        responses: ResponsesInFlight,
        metrics: RequestMetrics,
    ) -> None:
        self._engine = engine
        self._find_key = find_key
        self._project_of = project_of
        self._memory = memory
        self._responses = responses
        self._metrics = metrics
        self._limits = limits = engine.settings.limits
        # These bytes never count in the budget.
        self._body_bytes = min(limits.json_bytes, limits.json_free_bytes)

    def begin(self, data: bytes, authenticated: Callable[[str], bool]) -> Call | None:
        """Serve the request in ``data``; None if it is left to the application. ``authenticated`` tells the
        connection the id of the key, and refuses one request too many."""
        try:
            return self._begin(data, authenticated)
        except Exception:  # noqa: BLE001 - the application fails in the same way, and says why
            return None

    def _begin(self, data: bytes, authenticated: Callable[[str], bool]) -> Call | None:
        engine = self._engine
        request = native.call_request(data, self._limits.headers, self._limits.head_bytes)
        if request is None:
            return None
        query, body = request.query, request.body
        action, serve = _ACTIONS.get((request.method, query.get("type", "")), ("", None))
        key = self._find_key(request.key_id)
        if serve is None or len(body) > self._body_bytes or key is None or needs_token(key):
            return None
        check_date(request.date, engine.clock.unix_s())
        project = self._project_of(request.host)
        if project is None or not request.is_signed(key.secret):
            return None
        authorize(key, Right.READ, project)
        if not authenticated(key.key_id):
            return None
        parts = request.parts
        head = Head(
            method=request.method, path=request.path, parts=parts, query=query, headers={}, project=project
        )
        received = Request(head=head, key=key, body=body, memory=self._memory.reservation())
        outcome = serve(engine, received, parts[1], parts[3])
        if outcome is None:
            return None
        self._metrics.received(len(body))
        return Call(head, action, outcome)

    def finish(self, call: Call) -> tuple[ServiceResponse, str]:
        """The response to a request whose outcome is known, and the id of the request."""
        request_id = new_id(self._engine.random)
        outcome = call.outcome
        if isinstance(outcome, asyncio.Future):
            error = outcome.exception()
            outcome = outcome.result() if error is None else failed(error, request_id, call.head.path)
        response = self._responses.admitted(outcome, method=call.head.method)
        self._metrics.responded(call.action, response.status, len(response.body))
        return response, request_id


def _heartbeat(engine: Engine, request: Request, ls: str, cg: str) -> "ServiceResponse | Waiting | None":
    return _once_durable(engine, groups.step_heartbeat(engine, request, ls=ls, cg=cg))


def _checkpoint(engine: Engine, request: Request, ls: str, cg: str) -> "ServiceResponse | Waiting | None":
    return _once_durable(engine, groups.step_checkpoint(engine, request, ls=ls, cg=cg))


def _once_durable(engine: Engine, stepped: groups.Stepped) -> "ServiceResponse | Waiting | None":
    group, response = stepped
    if isinstance(response, LogHubError):
        return None
    waiting: Waiting = asyncio.get_running_loop().create_future()
    engine.groups.answer(group, waiting, response)
    return response if waiting.done() else waiting


def _cursor(engine: Engine, request: Request, ls: str, shard: str) -> "ServiceResponse | Waiting | None":
    found = logs.find_cursor(engine, request, ls=ls, shard=shard)
    return found if isinstance(found, ServiceResponse) else asyncio.ensure_future(found)


# By the method and the parameter `type`; all need the right to read.
_ACTIONS: dict[tuple[str, str], tuple[str, Serve]] = {
    ("POST", "heartbeat"): (routes.HEARTBEAT, _heartbeat),
    ("POST", "checkpoint"): (routes.UPDATE_CHECKPOINT, _checkpoint),
    ("GET", "cursor"): (routes.GET_CURSOR, _cursor),
}
