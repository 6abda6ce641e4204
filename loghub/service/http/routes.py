"""All paths of the service, and the action that serves each of them.

The frequent requests (PutLogs, PullLogs and heartbeat) are matched directly, which is faster than Starlette's
router; the router serves all others.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router

from loghub.service.api import cursors, extensions, groups, logstores, projects, pull_logs, put_logs, shards
from loghub.service.api_errors import failure
from loghub.service.engine import Engine
from loghub.service.messages import Request, ServiceResponse
from loghub.wire.errors import Code

ApiAction = Callable[..., Awaitable[ServiceResponse]]
_PULL_TYPES = ("log", "logs")  # the Python and Java clients send log, the Go client sends logs
_GROUP = "/logstores/{ls}/consumergroups/{cg}"
_EXTENSION = "/_loghub/v1" + _GROUP


async def hot(engine: Engine, request: Request) -> ServiceResponse | None:
    """Serve PutLogs, PullLogs and heartbeat; None if the request is none of them."""
    match request.method, request.parts:
        case "POST", ("logstores", ls, "shards", ("lb" | "route") as how):
            return await put_logs.put_logs(engine, request, ls=ls, how=how)
        case "POST", ("logstores", ls) if ls:  # balanced PutLogs of the Go client
            return await put_logs.put_logs(engine, request, ls=ls)
        case "GET", ("logstores", ls, "shards", shard) if request.query.get("type") in _PULL_TYPES:
            return await pull_logs.pull_logs(engine, request, ls=ls, shard=shard)
        case "POST", ("logstores", ls, "consumergroups", cg) if request.query.get("type") == "heartbeat":
            return await groups.heartbeat(engine, request, ls=ls, cg=cg)
    return None


class _Endpoint:
    """An action as an ASGI application that stores its response in the scope, where `rest` reads it."""

    def __init__(self, action: ApiAction) -> None:
        self._action = action

    async def __call__(self, scope: MutableMapping[str, Any], _receive: object, _send: object) -> None:
        scope["loghub.answer"] = await self._action(
            scope["loghub.engine"], scope["loghub.request"], **scope["path_params"]
        )


def _route(method: str, path: str, action: ApiAction) -> Route:
    return Route(path, endpoint=_Endpoint(action), methods=[method])


_ROUTER = Router(
    redirect_slashes=False,
    routes=[
        _route("GET", "/", projects.get_project),
        _route("POST", "/", projects.create_project),
        _route("PUT", "/", projects.update_project),
        _route("DELETE", "/", projects.delete_project),
        _route("GET", "/logstores", logstores.list_logstores),
        _route("POST", "/logstores", logstores.create_logstore),
        _route("GET", "/logstores/{ls}", logstores.get_logstore),
        _route("PUT", "/logstores/{ls}", logstores.update_logstore),
        _route("DELETE", "/logstores/{ls}", logstores.delete_logstore),
        _route("GET", "/logstores/{ls}/logs", logstores.refuse_query),
        _route("POST", "/logstores/{ls}/logs", logstores.refuse_query),
        _route("GET", "/logstores/{ls}/shards", shards.list_shards),
        _route("GET", "/logstores/{ls}/shards/{shard}", cursors.get_shard),
        _route("POST", "/logstores/{ls}/shards/{shard}", shards.change_shard),
        _route("DELETE", "/logstores/{ls}/shards/{shard}", shards.delete_shard),
        _route("GET", "/logstores/{ls}/consumergroups", groups.list_groups),
        _route("POST", "/logstores/{ls}/consumergroups", groups.create_group),
        _route("GET", _GROUP, groups.get_checkpoints),
        _route("POST", _GROUP, groups.post_to_group),
        _route("PUT", _GROUP, groups.update_group),
        _route("DELETE", _GROUP, groups.delete_group),
        _route("GET", _EXTENSION, extensions.group_status),
        _route("POST", _EXTENSION + "/leave", extensions.leave),
    ],
)

# Served without Host rules and without authentication.
OPEN: dict[tuple[str, str], Callable[[], Awaitable[ServiceResponse]]] = {
    ("GET", "/healthz"): extensions.health,
    ("GET", "/_loghub/v1/info"): extensions.info,
}


async def rest(engine: Engine, request: Request, *, root_path: str = "") -> ServiceResponse:
    """Serve any other request. Raises LogHubError InvalidMethod if no action matches."""
    scope: dict[str, Any] = {
        "type": "http",
        "method": request.method,
        "path": "/" + "/".join(request.parts),
        "root_path": root_path,
        "headers": [],
        "app": _ROUTER,  # makes the router raise instead of sending its own response
        "loghub.engine": engine,
        "loghub.request": request,
    }
    try:
        await _ROUTER(scope, _no_receive, _no_send)
    except HTTPException as error:
        message = f"{request.method} {request.path[:256]} is not an API of this service"
        raise failure(Code.INVALID_METHOD, message) from error
    response = scope["loghub.answer"]
    assert isinstance(response, ServiceResponse)
    return response


async def _no_receive() -> MutableMapping[str, Any]:
    raise RuntimeError("the body was received already")


async def _no_send(message: MutableMapping[str, Any]) -> None:
    raise RuntimeError(f"an action must not send a message: {message['type']}")
