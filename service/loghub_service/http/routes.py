"""All paths of the service: the action that serves each of them, the right that it requires, and its name.

Some requests with the same method and path are calls of different APIs, which a parameter distinguishes;
these come first. All others are matched by their path, segment by segment.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from loghub_service.access_keys import Right
from loghub_service.api import (
    exchange,
    extensions,
    groups,
    kafka_groups,
    logs,
    logstores,
    projects,
    shards,
    subscriptions,
)
from loghub_service.api import extensions as long_polls
from loghub_service.engine import Engine
from loghub_service.messages import Head, Request, ServiceResponse

ApiAction = Callable[..., Awaitable[ServiceResponse]]
_PULL_TYPES = ("log", "logs")  # the Python and Java clients send log, the Go client sends logs
_GROUP = "/logstores/{ls}/consumergroups/{cg}"
_EXTENSION = "/_loghub/v1" + _GROUP
_SUBSCRIPTIONS = "/_loghub/v1/logstores/{ls}/subscriptions"
_SUBSCRIPTION = _SUBSCRIPTIONS + "/{sub}"
PUT_LOGS, _PULL_LOGS, EXCHANGE = "PutLogs", "PullLogs", "Exchange"
HEARTBEAT, UPDATE_CHECKPOINT, GET_CURSOR = "HeartBeat", "UpdateCheckPoint", "GetCursor"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTarget:
    """The action for a request. ``name`` is the name of the API in SLS, for metrics."""

    name: str
    action: ApiAction
    right: Right
    arguments: Mapping[str, str] = field(default_factory=dict)

    async def serve(self, engine: Engine, request: Request) -> ServiceResponse:
        return await self.action(engine, request, **self.arguments)


def find(head: Head) -> RouteTarget | None:
    """The target of a request; None if no API has this method and path."""
    return _find_by_parameter(head) or _find_by_path(head)


def _find_by_parameter(head: Head) -> RouteTarget | None:
    match head.method, head.parts:
        case "POST", ("logstores", ls, "shards", "lb" | "route"):
            return _put_logs(ls)
        case "POST", ("logstores", ls) if ls:  # balanced PutLogs of the Go client
            return _put_logs(ls)
        case "GET", ("logstores", ls, "shards", shard) if head.query.get("type") in _PULL_TYPES:
            return RouteTarget(
                name=_PULL_LOGS,
                action=logs.pull_logs,
                right=Right.READ,
                arguments={"ls": ls, "shard": shard},
            )
        case "POST", ("logstores", ls, "consumergroups", cg) if head.query.get("type") == "heartbeat":
            return RouteTarget(
                name=HEARTBEAT,
                action=groups.heartbeat,
                right=Right.READ,
                arguments={"ls": ls, "cg": cg},
            )
    return None


def _put_logs(ls: str) -> RouteTarget:
    return RouteTarget(name=PUT_LOGS, action=logs.put_logs, right=Right.WRITE, arguments={"ls": ls})


@dataclass(frozen=True, slots=True)
class _Route:
    """A method, and the segments of a path; a segment like ``{ls}`` is an argument of the action."""

    method: str
    segments: tuple[str, ...]
    target: RouteTarget

    def match(self, parts: tuple[str, ...]) -> RouteTarget | None:
        """The target for a path with the same number of segments; None if it is of another API."""
        arguments = {}
        for expected, part in zip(self.segments, parts, strict=True):
            if expected.startswith("{") and part:
                arguments[expected[1:-1]] = part
            elif expected != part:
                return None
        return replace(self.target, arguments=arguments)


def _route(right: Right, method: str, path: str, action: ApiAction, name: str) -> _Route:
    return _Route(method, tuple(path.split("/")[1:]), RouteTarget(name=name, action=action, right=right))


# A consumer library creates and updates its group itself (docs/sls-protocol.md 2.1), so that requires only
# the right to read. Deleting, and changing what other clients write or read, requires admin.
_READ, _ADMIN = Right.READ, Right.ADMIN
_ROUTES = (
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
    _route(_READ, "GET", "/logstores/{ls}/shards/{shard}", logs.get_shard, GET_CURSOR),
    _route(_ADMIN, "POST", "/logstores/{ls}/shards/{shard}", shards.change_shard, "SplitOrMergeShard"),
    _route(_ADMIN, "DELETE", "/logstores/{ls}/shards/{shard}", shards.delete_shard, "DeleteShard"),
    _route(_READ, "GET", "/logstores/{ls}/consumergroups", groups.list_groups, "ListConsumerGroup"),
    _route(_READ, "POST", "/logstores/{ls}/consumergroups", groups.create_group, "CreateConsumerGroup"),
    _route(_READ, "GET", _GROUP, groups.get_checkpoints, "GetCheckPoint"),
    _route(_READ, "POST", _GROUP, groups.update_checkpoint, UPDATE_CHECKPOINT),
    _route(_READ, "PUT", _GROUP, groups.update_group, "UpdateConsumerGroup"),
    _route(_ADMIN, "DELETE", _GROUP, groups.delete_group, "DeleteConsumerGroup"),
    _route(_READ, "GET", _EXTENSION, extensions.group_status, "GetGroupStatus"),
    _route(_READ, "GET", "/_loghub/v1/kafka/groups", kafka_groups.list_kafka_groups, "ListKafkaGroups"),
    _route(_READ, "POST", _EXTENSION + "/leave", extensions.leave, "LeaveGroup"),
    _route(_READ, "POST", _EXTENSION + "/checkpoints", groups.save_checkpoints, "SaveCheckPoints"),
    _route(_READ, "GET", _EXTENSION + "/revision", long_polls.await_group, "AwaitGroup"),
    _route(_READ, "POST", "/_loghub/v1/logstores/{ls}/ends", long_polls.await_ends, "AwaitEnds"),
    _route(_READ, "GET", _SUBSCRIPTIONS, subscriptions.list_subscriptions, "ListSubscriptions"),
    _route(_READ, "PUT", _SUBSCRIPTION, subscriptions.create_subscription, "CreateSubscription"),
    _route(_READ, "GET", _SUBSCRIPTION, subscriptions.subscription_status, "GetSubscription"),
    _route(_ADMIN, "DELETE", _SUBSCRIPTION, subscriptions.delete_subscription, "DeleteSubscription"),
    _route(_READ, "POST", _SUBSCRIPTION + "/seek", subscriptions.seek_subscription, "SeekSubscription"),
    _route(_READ, "POST", _SUBSCRIPTION + "/skip", subscriptions.skip_logs, "SkipLogs"),
    _route(_READ, "POST", _SUBSCRIPTION + "/exchange", exchange.exchange, EXCHANGE),
)


_BY_SHAPE: dict[tuple[str, int], list[_Route]] = {}
for _one in _ROUTES:
    _BY_SHAPE.setdefault((_one.method, len(_one.segments)), []).append(_one)


def _find_by_path(head: Head) -> RouteTarget | None:
    method = "GET" if head.method == "HEAD" else head.method
    for route in _BY_SHAPE.get((method, len(head.parts)), ()):
        if (target := route.match(head.parts)) is not None:
            return target
    return None


NAMES = frozenset({PUT_LOGS, _PULL_LOGS, HEARTBEAT, *(route.target.name for route in _ROUTES)})

# Served without Host rules and without authentication.
OPEN: dict[tuple[str, str], Callable[[Engine], Awaitable[ServiceResponse]]] = {
    ("GET", "/healthz"): extensions.health,
    ("GET", "/_loghub/v1/info"): extensions.info,
}
