"""PutLogs without ASGI: a request that arrives in one piece, as clients usually send it, is checked by one
call into the native part, and answered by the callback of its commit.

A task for each request, uvicorn's cycle and the messages of ASGI take half of the CPU time of a small PutLogs
(docs/performance.md 8). This module decides nothing of its own: it accepts only what the application
(`loghub_service.http.app`) would accept, and leaves whatever is unusual or refused to the application, before
anything has happened. Without the native part, everything is left to the application.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from loghub.domain.shards import MAX_GROUP_LOGS, parse_key
from loghub.wire import native
from loghub.wire.errors import LogHubError
from loghub_service.access_keys import AccessKey, Right
from loghub_service.api import logs, parse
from loghub_service.engine import Engine
from loghub_service.errors import InvalidInput, without_room
from loghub_service.http.auth import FindKey, authorize, check_date
from loghub_service.http.failures import failed, new_id
from loghub_service.http.metrics import RequestMetrics
from loghub_service.http.routes import PUT_LOGS
from loghub_service.messages import EMPTY, MemoryBudget, Reservation, ServiceResponse

if TYPE_CHECKING:
    from loghub_native import PutRequest

# Called with the response and the request's id.
Answer = Callable[[ServiceResponse, str], None]


class DirectPuts:
    """Serves one engine."""

    def __init__(
        self,
        engine: Engine,
        *,
        find_key: FindKey,
        project_of: Callable[[str], str | None],
        memory: MemoryBudget,
        metrics: RequestMetrics,
    ) -> None:
        self._engine = engine
        self._find_key = find_key
        self._project_of = project_of
        self._memory = memory
        self._metrics = metrics

    def read(self, data: bytes) -> "PutRequest | None":
        """The PutLogs in ``data``; None for what is left to the application."""
        limits = self._engine.settings.limits
        request = native.put_request(data, limits.headers, limits.head_bytes)
        if request is None or request.body_bytes > limits.body_bytes or request.raw_size > limits.raw_bytes:
            return None
        return request

    def begin(self, request: "PutRequest", authenticated: Callable[[str], bool], answer: Answer) -> bool:
        """Whether the request was accepted, so that its ``answer`` follows when the log group is durable;
        otherwise it is left to the application. ``authenticated`` tells the connection the id of the key, and
        refuses one request too many."""
        memory = self._memory.reservation()
        appended = None
        try:
            appended = self._append(request, memory, authenticated)
        except (LogHubError, *InvalidInput):
            return False  # the application refuses it, too
        finally:
            if appended is None:
                memory.release()
        if appended is None:
            return False
        self._metrics.received(request.body_bytes)
        appended.add_done_callback(partial(self._committed, memory, answer, request.logstore))
        return True

    def _append(
        self, request: "PutRequest", memory: Reservation, authenticated: Callable[[str], bool]
    ) -> "asyncio.Future[int] | None":
        """None if the request is left to the application. Raises LogHubError or `InvalidInput`."""
        engine = self._engine
        key = self._find_key(request.key_id)
        if request.raw_size > logs.ON_LOOP_NATIVELY_BYTES or key is None or needs_token(key):
            return None
        check_date(request.date, engine.clock.unix_s())
        project = self._project_of(request.host)
        if project is None:
            return None
        authorize(key, Right.WRITE, project)
        store = parse.logstore_of(parse.project_named(engine, project), request.logstore)
        hash_key = None if request.hash_key is None else parse_key(request.hash_key)
        memory.take(request.body_bytes + request.raw_size)
        checked = request.stored(key.secret, MAX_GROUP_LOGS)
        if checked is None:
            return None
        shard = logs.choose_shard(store, logs.shard_chooser(engine, hash_key))
        if (store.saved.id, shard) in engine.sealing or not authenticated(key.key_id):
            return None
        count, stored = checked
        return engine.append(engine.logs[store.saved.id, shard], stored, logs=count)

    def _committed(
        self, memory: Reservation, answer: Answer, logstore: str, appended: "asyncio.Future[int]"
    ) -> None:
        memory.release()
        if appended.cancelled():
            return  # the event loop ends
        request_id = new_id(self._engine.random)
        error = appended.exception()
        response = EMPTY
        if error is not None:
            response = failed(without_room("the log group", error), request_id, f"/logstores/{logstore}")
        self._metrics.responded(PUT_LOGS, response.status, len(response.body))
        answer(response, request_id)


def needs_token(key: AccessKey) -> bool:
    return bool(key.security_token) or key.expires_unix_s is not None
