"""Subscriptions: list, create, status, delete, seek and skip (docs/subscriptions-protocol.md 1).

The exchange of their consumers is `loghub_service.api.exchange`.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from loghub.domain.log_position import group_end, index_of, ordinal_of, position_of
from loghub.domain.subscription import SubscriptionType, worst_state
from loghub.wire import cursor as wire_cursor
from loghub.wire import names
from loghub.wire.cursor import Position
from loghub.wire.errors import Code
from loghub.wire.subscriptions import (
    MAX_KEY_FIELD_CHARS,
    MAX_KEY_FIELDS,
    SkippedLogs,
    SubscribedShardStatus,
    SubscriptionConsumer,
    SubscriptionSeek,
    SubscriptionSkip,
    SubscriptionSpec,
    SubscriptionStatus,
    SubscriptionSummary,
)
from loghub_service.api import parse as lookup
from loghub_service.api.logs import check_cursor
from loghub_service.dispatch.driver import Dispatch
from loghub_service.dispatch.ports import Unreadable
from loghub_service.dispatch.sessions import LeasedConsumer
from loghub_service.engine import Engine
from loghub_service.errors import failure
from loghub_service.kafka.shard_bounds import known_place, logs_after, logs_between
from loghub_service.messages import EMPTY, Request, ServiceResponse, json_response
from loghub_service.pulsar.records.entries import GroupToSend
from loghub_service.storage.shardlog import ShardLog, cursor_of
from loghub_service.storage.shardlog import ordinal_of as ordinal_at
from loghub_service.subscribed_logs import SubscribedLogstore
from loghub_service.subscription.events import Ack, ChangeSettings, Expired, SeekTo, ShardStart
from loghub_service.subscription.keyed import KeyedQueue
from loghub_service.subscription.ordered import OrderedQueue
from loghub_service.subscription.state import Cursor, SubscriptionSettings
from loghub_service.subscription_registry import RegisteredSubscription, TooManySubscriptions

T = TypeVar("T")
_MAX_UNIX_S = 1 << 40  # as in GetCursor
_SKIP_LOGS = 1_000  # that are read at once to be skipped
_SKIP_BYTES = 1 << 20  # of the log groups that are read for it


@dataclass(frozen=True, slots=True)
class FoundSubscription:
    """A subscription with the logs of its logstore."""

    logs: SubscribedLogstore
    saved: RegisteredSubscription


def find(engine: Engine, request: Request, ls: str, name: str) -> FoundSubscription:
    """A durable subscription: others belong to one client of Pulsar. Raises SubscriptionNotExist."""
    store = lookup.logstore(engine, request, ls)
    saved = engine.subscriptions.of(store.saved.id).get(name)
    if saved is None or not saved.state.settings.is_durable:
        raise failure(Code.SUBSCRIPTION_NOT_EXIST, f"logstore {ls} has no subscription {name[:128]}")
    return FoundSubscription(SubscribedLogstore(engine, store), saved)


@contextmanager
def opened(engine: Engine, found: FoundSubscription) -> Iterator[Dispatch]:
    """The subscription as it is now, though it may have no consumer."""
    dispatch = engine.dispatches.of(found.logs, found.saved)
    with dispatch.kept_open():
        yield dispatch


async def list_subscriptions(engine: Engine, request: Request, *, ls: str) -> ServiceResponse:
    store = lookup.logstore(engine, request, ls)
    subscriptions = engine.subscriptions.of(store.saved.id)
    return json_response(
        [
            _summary(name, one.state.settings)
            for name, one in sorted(subscriptions.items())
            if one.state.settings.is_durable
        ]
    )


def _summary(name: str, settings: SubscriptionSettings) -> SubscriptionSummary:
    return SubscriptionSummary(
        name=name, type=settings.type, in_order=settings.in_order, key=settings.key_in_use
    )


async def create_subscription(engine: Engine, request: Request, *, ls: str, sub: str) -> ServiceResponse:
    spec = _decoded(request, SubscriptionSpec)
    names.SUBSCRIPTION.check(sub)
    _check_key(spec)
    store = lookup.logstore(engine, request, ls)
    logs = SubscribedLogstore(engine, store)
    settings = SubscriptionSettings(type=spec.type, in_order=spec.in_order, key=spec.key)
    saved = engine.subscriptions.of(logs.id).get(sub)
    if saved is None:
        starts = await _starts(engine, logs, spec)
        lookup.logstore(engine, request, ls)  # it may be deleted meanwhile
        saved = engine.subscriptions.of(logs.id).get(sub)  # another request may have created it
    if saved is None:
        try:
            saved = engine.subscriptions.create(logs.id, sub, settings, starts)
        except TooManySubscriptions as error:
            raise failure(Code.SUBSCRIPTION_QUOTA_EXCEED, str(error)) from error
    elif spec.must_be_new:
        raise failure(Code.SUBSCRIPTION_ALREADY_EXIST, f"logstore {ls} has the subscription {sub} already")
    elif saved.state.settings != settings:
        _change(engine, FoundSubscription(logs, saved), settings)
    await saved.durable()
    return EMPTY


def _check_key(spec: SubscriptionSpec) -> None:
    if spec.key and spec.type is not SubscriptionType.KEY_SHARED:
        raise failure(Code.PARAMETER_INVALID, f"key needs the type KeyShared, not {spec.type.value}")
    if len(spec.key) > MAX_KEY_FIELDS or not all(0 < len(name) <= MAX_KEY_FIELD_CHARS for name in spec.key):
        raise failure(
            Code.PARAMETER_INVALID,
            f"key has at most {MAX_KEY_FIELDS} names of 1 to {MAX_KEY_FIELD_CHARS} characters",
        )


def _change(engine: Engine, found: FoundSubscription, settings: SubscriptionSettings) -> None:
    if not found.saved.state.settings.is_durable:
        raise failure(
            Code.SUBSCRIPTION_BUSY, f"{found.saved.name} belongs to a reader of a client: use another name"
        )
    with opened(engine, found) as dispatch:
        change = ChangeSettings(type=settings.type, in_order=settings.in_order, key=settings.key)
        if dispatch.consumers or dispatch.apply(change).refusal is not None:
            raise failure(
                Code.SUBSCRIPTION_BUSY,
                f"subscription {found.saved.name} has {len(dispatch.consumers)} consumers: its settings "
                "change while it has none",
            )


async def _starts(engine: Engine, logs: SubscribedLogstore, spec: SubscriptionSpec) -> dict[int, ShardStart]:
    marks = {shard: _mark(engine, logs, shard, text) for shard, text in spec.marks.items()}
    for shard in logs.shards():
        if shard not in marks:
            marks[shard] = await _position(logs, shard, spec.start)
    return {
        shard: replace(start, mark=min(max(marks.get(shard, start.mark), start.mark), start.end))
        for shard, start in logs.shards().items()
    }


def _mark(engine: Engine, logs: SubscribedLogstore, shard: int, text: str) -> int:
    log = engine.logs.get((logs.id, shard))
    if log is None:
        raise failure(Code.SHARD_NOT_EXIST, f"shard {shard} does not exist")
    return position_of(ordinal_at(log, check_cursor(log, text)))


async def _position(logs: SubscribedLogstore, shard: int, position: Position) -> int:
    start = logs.shard(shard)
    if start is None:
        return 0
    if position == "begin":
        return start.mark
    if position == "end":
        return start.end
    if not isinstance(position, int) or not 0 <= position <= _MAX_UNIX_S:
        raise failure(Code.PARAMETER_INVALID, "a position is begin, end or unix seconds")
    with readable_logs():
        return await logs.position_at(shard, position * 1000)


@contextmanager
def readable_logs() -> Iterator[None]:
    """An answer in words for logs that are damaged."""
    try:
        yield
    except Unreadable as error:
        raise failure(Code.INTERNAL_SERVER_ERROR, f"log data cannot be read: {error}") from error


async def delete_subscription(engine: Engine, request: Request, *, ls: str, sub: str) -> ServiceResponse:
    found = find(engine, request, ls, sub)
    engine.subscriptions.delete(found.logs.id, sub)
    dispatch = engine.dispatches.get(found.logs.id, sub)
    if dispatch is not None:
        dispatch.close_all(dispatch.consumers)
        dispatch.end()
    await found.saved.durable()
    return EMPTY


async def seek_subscription(engine: Engine, request: Request, *, ls: str, sub: str) -> ServiceResponse:
    seek = _decoded(request, SubscriptionSeek)
    found = find(engine, request, ls, sub)
    if (seek.position is None) is not bool(seek.marks):
        raise failure(Code.PARAMETER_INVALID, "a seek has a position or marks")
    targets = {shard: _mark(engine, found.logs, shard, text) for shard, text in seek.marks.items()}
    if seek.position is not None:
        for shard in found.logs.shards():
            targets[shard] = await _position(found.logs, shard, seek.position)
        found = find(engine, request, ls, sub)  # it may be deleted meanwhile
    with opened(engine, found) as dispatch:
        dispatch.refresh()
        for shard, position in targets.items():
            start = found.logs.shard(shard)
            if start is not None:
                within = min(max(position, start.mark), start.end)
                dispatch.apply(SeekTo(shard=shard, position=within))
    await found.saved.durable()
    return EMPTY


async def skip_logs(engine: Engine, request: Request, *, ls: str, sub: str) -> ServiceResponse:
    skip = _decoded(request, SubscriptionSkip)
    found = find(engine, request, ls, sub)
    if skip.logs is not None and skip.logs < 0:
        raise failure(Code.PARAMETER_INVALID, "logs must be 0 or more, or null for all")
    with opened(engine, found) as dispatch:
        dispatch.refresh()
        cursor = found.saved.state.shards.get(skip.shard)
        if cursor is None:
            raise failure(Code.SHARD_NOT_EXIST, f"shard {skip.shard} does not exist")
        log = engine.logs[found.logs.id, skip.shard]
        if skip.logs is None:
            skipped = await _skip_all(engine, dispatch, log, cursor)
        else:
            with readable_logs():
                skipped = await _skip_oldest(dispatch, found.logs, cursor, skip.logs)
    await found.saved.durable()
    return json_response(SkippedLogs(skipped))


async def _skip_all(engine: Engine, dispatch: Dispatch, log: ShardLog, cursor: Cursor) -> int:
    """What is there now. What arrives or is acknowledged while the logs are counted does not count."""
    end, (position, left), acknowledged = cursor.end, cursor.backlog, cursor.acknowledged
    unread = await asyncio.to_thread(logs_between, log, position, end, now_us=engine.now_us())
    acknowledged = cursor.acknowledged - acknowledged
    dispatch.apply(Expired(shard=cursor.shard, position=end))
    return 0 if unread is None else max(0, left + unread - acknowledged)


async def _skip_oldest(dispatch: Dispatch, logs: SubscribedLogstore, cursor: Cursor, wanted: int) -> int:
    """Group by group, as their numbers of logs are known by reading only."""
    skipped, position, end = 0, cursor.acked.mark, cursor.end
    while skipped < wanted and position < end:
        groups, after = await logs.read(
            cursor.shard, position, max_logs=_SKIP_LOGS, max_bytes=_SKIP_BYTES, make=_size_of
        )
        for ordinal, size in groups:
            runs = []
            begin = position_of(ordinal)
            for first, stop in list(cursor.acked.gaps(begin, begin + size)):
                stop = min(stop, first + wanted - skipped)
                if first < stop:
                    skipped += stop - first
                    runs.append((first, stop))
                    if stop == begin + size:
                        runs.append((stop, group_end(begin)))
            if runs:
                dispatch.apply(Ack(shard=cursor.shard, runs=runs))
        if after <= position:
            break
        position = after
    return skipped


def _size_of(group: GroupToSend) -> tuple[int, int]:
    return group.ordinal, group.logs


def _decoded(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(request.body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise failure(Code.JSON_INFO_INVALID, f"the body is not as expected: {error}") from error


# Status


async def subscription_status(engine: Engine, request: Request, *, ls: str, sub: str) -> ServiceResponse:
    found = find(engine, request, ls, sub)
    with opened(engine, found) as dispatch:
        dispatch.refresh()
        await found.saved.durable()
        return json_response(await _status(engine, found, dispatch))


async def _status(engine: Engine, found: FoundSubscription, dispatch: Dispatch) -> SubscriptionStatus:
    state, now_us = found.saved.state, engine.now_us()
    settings = state.settings
    logs = {
        shard: log for shard in state.shards if (log := engine.logs.get((found.logs.id, shard))) is not None
    }
    cursors = [(state.shards[shard], log) for shard, log in sorted(logs.items())]
    marks = [(cursor.acked.mark, cursor.backlog) for cursor, _ in cursors]
    places = await asyncio.to_thread(
        lambda: [
            _counted(log, mark, backlog, now_us)
            for (_, log), (mark, backlog) in zip(cursors, marks, strict=True)
        ]
    )
    shards = [
        _shard_status(cursor, log, mark, place, dispatch)
        for (cursor, log), (mark, _), place in zip(cursors, marks, places, strict=True)
    ]
    queues = [cursor.queue for cursor, _ in cursors]
    ages = [one.oldest_unacked_s for one in shards if one.oldest_unacked_s is not None]
    known = [one.backlog_logs for one in shards if one.backlog_logs is not None]
    return SubscriptionStatus(
        name=found.saved.name,
        type=settings.type,
        in_order=settings.in_order,
        key=settings.key_in_use,
        state=worst_state(one.state for one in shards),
        consumers=tuple(_consumers(dispatch, engine.clock.monotonic_s())),
        shards=tuple(shards),
        backlog_logs=sum(known) if len(known) == len(shards) else None,
        unacked_logs=sum(one.unacked_logs for one in shards),
        acknowledged_logs=sum(cursor.acknowledged for cursor, _ in cursors),
        redelivered_logs=found.saved.redelivered_logs,
        oldest_unacked_s=max(ages, default=None),
        held_slots=sum(len(queue.held) for queue in queues if isinstance(queue, KeyedQueue)),
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    """``acked`` logs from the mark's log group on are acknowledged, and it is ``age_s`` old."""

    backlog: int | None
    acked: int | None
    age_s: float | None


def backlog_of(log: ShardLog, backlog: tuple[int, int], now_us: int) -> int | None:
    """The logs without an acknowledgment, by `Cursor.backlog`. Blocks."""
    after = logs_after(log, backlog[0], now_us=now_us)
    return None if after is None else after + backlog[1]


def _counted(log: ShardLog, mark: int, backlog: tuple[int, int], now_us: int) -> _Counted:
    left = backlog_of(log, backlog, now_us)
    from_mark = logs_between(log, position_of(ordinal_of(mark)), backlog[0], now_us=now_us)
    acked = None if left is None or from_mark is None else max(0, from_mark - backlog[1])
    place = known_place(log, cursor_of(log, ordinal_of(mark)), now_us=now_us) if left else None
    age_s = None
    if place is not None and place.received_us is not None:
        age_s = max(0.0, (now_us - place.received_us) / 1_000_000)
    return _Counted(left, acked, age_s)


def _shard_status(
    cursor: Cursor, log: ShardLog, mark: int, counted: _Counted, dispatch: Dispatch
) -> SubscribedShardStatus:
    queue = cursor.queue
    active = queue.active if isinstance(queue, OrderedQueue) else None
    members = cursor.members.values() if active is None else [active]
    if isinstance(queue, OrderedQueue) and active is None:
        members = []
    assert cursor.state is not None
    return SubscribedShardStatus(
        shard=cursor.shard,
        state=cursor.state,
        mark=wire_cursor.encode(cursor_of(log, ordinal_of(mark))),
        mark_index=index_of(mark),
        acked_ranges=len(cursor.acked.starts),
        acked_logs=counted.acked,
        backlog_logs=counted.backlog,
        unacked_logs=queue.unacked,
        oldest_unacked_s=counted.age_s,
        consumers=tuple(sorted({member.name for member in members if member.number in dispatch.consumers})),
        end_cursor=wire_cursor.encode(log.extent.end_cursor),
        read_only=cursor.is_closed,
        parents=cursor.parents,
    )


def _consumers(dispatch: Dispatch, now_s: float) -> Iterator[SubscriptionConsumer]:
    state = dispatch.saved.state
    for number, receiver in dispatch.consumers.items():
        known = state.consumers.get(number)
        if known is not None:
            is_session = isinstance(receiver, LeasedConsumer)
            yield SubscriptionConsumer(
                name=known.name,
                priority=known.priority,
                permits=max(0, known.permits),
                unacked_logs=known.unacked,
                shards=active_shards(state.shards, number),
                endpoint="http" if is_session else "pulsar",
                last_exchange_age_s=max(0.0, now_s - receiver.seen_s)
                if isinstance(receiver, LeasedConsumer)
                else None,
            )


def active_shards(shards: Mapping[int, Cursor], number: int) -> tuple[int, ...]:
    """The shards of which a consumer gets logs."""
    found = []
    for shard, cursor in shards.items():
        queue = cursor.queue
        if isinstance(queue, OrderedQueue):
            if queue.active is not None and queue.active.number == number:
                found.append(shard)
        elif number in cursor.members:
            found.append(shard)
    return tuple(sorted(found))
