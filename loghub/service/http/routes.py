"""All paths of the service: the action that serves each of them, the right that it requires, and its name.

The frequent requests (PutLogs, PullLogs and heartbeat) are matched directly, which is faster than Starlette's
routes; these match all others.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.routing import Match, Route

from loghub.service.access import Right
from loghub.service.api import cursors, extensions, groups, logstores, projects, pull_logs, put_logs, shards
from loghub.service.engine import Engine
from loghub.service.messages import Head, Request, ServiceResponse

ApiAction = Callable[..., Awaitable[ServiceResponse]]
_PULL_TYPES = ("log", "logs")  # the Python and Java clients send log, the Go client sends logs
_GROUP = "/logstores/{ls}/consumergroups/{cg}"
_EXTENSION = "/_loghub/v1" + _GROUP
PUT_LOGS, _PULL_LOGS, _HEARTBEAT = "PutLogs", "PullLogs", "HeartBeat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What serves a request. ``name`` is that of the API in SLS, for metrics."""

    name: str
    action: ApiAction
    right: Right
    arguments: Mapping[str, str] = field(default_factory=dict)

    async def serve(self, engine: Engine, request: Request) -> ServiceResponse:
        return await self.action(engine, request, **self.arguments)


def find(head: Head) -> Target | None:
    """The target of a request; None if no API has this method and path."""
    return _find_frequent(head) or _find_other(head)


def _find_frequent(head: Head) -> Target | None:
    match head.method, head.parts:
        case "POST", ("logstores", ls, "shards", ("lb" | "route") as how):
            return _put_logs(ls, how)
        case "POST", ("logstores", ls) if ls:  # balanced PutLogs of the Go client
            return _put_logs(ls, put_logs.BALANCED)
        case "GET", ("logstores", ls, "shards", shard) if head.query.get("type") in _PULL_TYPES:
            return Target(
                name=_PULL_LOGS,
                action=pull_logs.pull_logs,
                right=Right.READ,
                arguments={"ls": ls, "shard": shard},
            )
        case "POST", ("logstores", ls, "consumergroups", cg) if head.query.get("type") == "heartbeat":
            return Target(
                name=_HEARTBEAT,
                action=groups.heartbeat,
                right=Right.READ,
                arguments={"ls": ls, "cg": cg},
            )
    return None


def _put_logs(ls: str, how: str) -> Target:
    return Target(
        name=PUT_LOGS, action=put_logs.put_logs, right=Right.WRITE, arguments={"ls": ls, "how": how}
    )


def _route(right: Right, method: str, path: str, action: ApiAction, name: str) -> tuple[Route, Target]:
    return Route(path, endpoint=_never_called, methods=[method], name=name), Target(
        name=name, action=action, right=right
    )


async def _never_called(*_: object) -> None:
    """A route only matches; its target serves the request."""


# A consumer library creates and updates its group itself (docs/sls-protocol.md 2.1), so that takes no more
# than the right to read. Whatever deletes, or changes what others write or read, requires admin.
_READ, _ADMIN = Right.READ, Right.ADMIN
_OTHERS = (
    _route(_READ, "GET", "/", projects.get_project, "GetProject"),
    _route(_ADMIN, "POST", "/", projects.create_project, "CreateProject"),
    _route(_ADMIN, "PUT", "/", projects.update_project, "UpdateProject"),
    _route(_ADMIN, "DELETE", "/", projects.delete_project, "DeleteProject"),
    _route(_READ, "GET", "/logstores", logstores.list_logstores, "ListLogStores"),
    _route(_ADMIN, "POST", "/logstores", logstores.create_logstore, "CreateLogStore"),
    _route(_READ, "GET", "/logstores/{ls}", logstores.get_logstore, "GetLogStore"),
    _route(_ADMIN, "PUT", "/logstores/{ls}", logstores.update_logstore, "UpdateLogStore"),
    _route(_ADMIN, "DELETE", "/logstores/{ls}", logstores.delete_logstore, "DeleteLogStore"),
    _route(_READ, "GET", "/logstores/{ls}/logs", logstores.refuse_query, "GetLogs"),
    _route(_READ, "POST", "/logstores/{ls}/logs", logstores.refuse_query, "GetLogs"),
    _route(_READ, "GET", "/logstores/{ls}/index", logstores.get_index, "GetIndex"),
    _route(_READ, "GET", "/logstores/{ls}/shards", shards.list_shards, "ListShards"),
    _route(_READ, "GET", "/logstores/{ls}/shards/{shard}", cursors.get_shard, "GetCursor"),
    _route(_ADMIN, "POST", "/logstores/{ls}/shards/{shard}", shards.change_shard, "SplitOrMergeShard"),
    _route(_ADMIN, "DELETE", "/logstores/{ls}/shards/{shard}", shards.delete_shard, "DeleteShard"),
    _route(_READ, "GET", "/logstores/{ls}/consumergroups", groups.list_groups, "ListConsumerGroup"),
    _route(_READ, "POST", "/logstores/{ls}/consumergroups", groups.create_group, "CreateConsumerGroup"),
    _route(_READ, "GET", _GROUP, groups.get_checkpoints, "GetCheckPoint"),
    _route(_READ, "POST", _GROUP, groups.update_checkpoint, "UpdateCheckPoint"),
    _route(_READ, "PUT", _GROUP, groups.update_group, "UpdateConsumerGroup"),
    _route(_ADMIN, "DELETE", _GROUP, groups.delete_group, "DeleteConsumerGroup"),
    _route(_READ, "GET", _EXTENSION, extensions.group_status, "GetGroupStatus"),
    _route(_READ, "POST", _EXTENSION + "/leave", extensions.leave, "LeaveGroup"),
)


def _find_other(head: Head) -> Target | None:
    scope = {"type": "http", "method": head.method, "path": "/" + "/".join(head.parts)}
    for route, target in _OTHERS:
        match, found = route.matches(scope)
        if match is Match.FULL:
            return Target(
                name=target.name,
                action=target.action,
                right=target.right,
                arguments=found["path_params"],
            )
    return None


NAMES = frozenset({PUT_LOGS, _PULL_LOGS, _HEARTBEAT, *(target.name for _, target in _OTHERS)})

# Served without Host rules and without authentication.
OPEN: dict[tuple[str, str], Callable[[Engine], Awaitable[ServiceResponse]]] = {
    ("GET", "/healthz"): extensions.health,
    ("GET", "/_loghub/v1/info"): extensions.info,
}
