"""The service's extensions that wait for news: of the ends of shards, and of a consumer group.

An idle consumer has one request of each under way instead of one for each shard and interval. Neither is a
heartbeat, and neither has log groups: those are pulled once there are some. With ``wait_ms`` 0 they answer
at once. `loghub.service.polls` bounds how many wait.
"""

from collections.abc import Mapping
from dataclasses import replace

from loghub.service.api import lookup, parse
from loghub.service.engine import Engine
from loghub.service.messages import EMPTY, Request, ServiceResponse, json_response
from loghub.service.polls import wait_for_news
from loghub.service.storage.shardlog import ShardLog
from loghub.wire import cursor as wire_cursor
from loghub.wire import names

_MAX_REVISION = 1 << 53
_POLL = replace(names.CONSUMER, kind="poll")


async def await_ends(engine: Engine, request: Request, *, ls: str) -> ServiceResponse:
    """The first and the end cursors of the shards that the body names with the ends that the client knows.

    It waits until one of the ends is another one. A shard that does not exist is not in the answer, and is
    a reason to answer at once. Raises LogStoreNotExist, also if the logstore is deleted meanwhile.
    """
    known = _known_ends(request)

    def present() -> dict[int, ShardLog]:
        store = lookup.logstore(engine, request, ls)
        return {
            shard: engine.logs[store.saved.id, shard]
            for shard in known
            if (store.saved.id, shard) in engine.logs and shard in store.shards
        }

    def is_news() -> bool:
        logs = present()
        return logs.keys() != known.keys() or any(
            log.extent.end_cursor != known[shard] for shard, log in logs.items()
        )

    wait_s = _wait_s(engine, request)
    watched = present().values()
    with (
        engine.arrivals.watched(watched) as arrived,
        engine.polls.place(request, _name(request), watched=len(watched), wake=arrived.set) as poll,
    ):
        await wait_for_news(request, poll, arrived, wait_s=wait_s, is_news=is_news)
    if request.is_gone():
        return EMPTY
    return json_response([_cursors(shard, log) for shard, log in sorted(present().items())])


async def await_group(engine: Engine, request: Request, *, ls: str, cg: str) -> ServiceResponse:
    """The revision of a group, and the shards that are assigned to the consumer.

    It waits until the revision is another one than that which the client knows. Raises ConsumerGroupNotExist
    or LogStoreNotExist, also if either is deleted meanwhile.
    """
    known = parse.number_query(request, "revision", least=0, most=_MAX_REVISION, default=0)
    consumer = parse.consumer(request)
    wait_s = _wait_s(engine, request)
    group = lookup.group(engine, request, ls, cg)

    def is_news() -> bool:
        return lookup.group(engine, request, ls, cg).revision != known

    with (
        engine.groups.changes.watched([group]) as changed,
        engine.polls.place(request, _name(request), watched=1, wake=changed.set) as poll,
    ):
        await wait_for_news(request, poll, changed, wait_s=wait_s, is_news=is_news)
    if request.is_gone():
        return EMPTY
    group = lookup.group(engine, request, ls, cg)
    revision, assigned = group.revision, group.state.owned_by(consumer)
    await group.durable()
    return json_response({"revision": revision, "assigned": assigned})


def _wait_s(engine: Engine, request: Request) -> float:
    most_ms = engine.settings.limits.poll_s * 1000
    return parse.number_query(request, "wait_ms", least=0, most=most_ms, default=0) / 1000


def _name(request: Request) -> str:
    """The poll's name: one poll of a key and a name waits at a time, and the last one counts."""
    return _POLL.check(request.query.get("poll", ""))


def _known_ends(request: Request) -> Mapping[int, int | None]:
    """Shard -> the end that the client knows; None if it knows none."""
    texts = parse.cursors_of_shards(request)
    return {shard: wire_cursor.decode(text) if text else None for shard, text in texts.items()}


def _cursors(shard: int, log: ShardLog) -> dict[str, object]:
    extent = log.extent
    return {
        "shard": shard,
        "begin": wire_cursor.encode(extent.oldest_cursor),
        "end": wire_cursor.encode(extent.end_cursor),
    }
