"""Fetch: record batches from an offset on, and a long poll while there are none.

One log group becomes one record batch. The first partition that has anything gets a whole batch, however
small the client's limits are, since it could not go on otherwise; of the others comes only what fits. Which
partitions are looked at is in `fetch_session`.

ListOffsets: the first offset, the end, or the offset for a time.

A time is compared with when a log group was received, as for a cursor of SLS, since only that is in the order
of the offsets; the time of a log is the producer's own.
"""

import asyncio
from dataclasses import dataclass
from functools import partial

from loghub_service.connections.turns import Pauses
from loghub_service.kafka.broker.answer import PAUSE_EVERY, Answer, check_bounded
from loghub_service.kafka.broker.call import KafkaCall
from loghub_service.kafka.broker.fetch_session import Begun, FetchSession, Key
from loghub_service.kafka.broker.forms import encode_group
from loghub_service.kafka.broker.store import Access, Bounds, Partition, StoreError, Watch
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.logs import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    PartitionData,
)


async def list_offsets(call: KafkaCall, body: ListOffsetsRequest) -> Answer:
    check_bounded(
        call.broker.limits,
        topics=len(body.topics),
        partitions=sum(len(topic.partitions) for topic in body.topics),
    )
    pauses, topics = Pauses(PAUSE_EVERY), []
    for topic in body.topics:
        found = []
        for one in topic.partitions:
            found.append(await _find(call, topic.name, one))
            await pauses.step()
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(found)))
    return call.answer(ListOffsetsResponse(topics=tuple(topics)))


async def _find(call: KafkaCall, name: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    number = asked.partition_index
    try:
        return await _found(call, name, asked)
    except StoreError as error:
        return ListOffsetsPartitionResponse(partition_index=number, error_code=call.counted(error.code))


async def _found(call: KafkaCall, name: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    """Raises StoreError."""
    number = asked.partition_index
    partition = call.topic(name, Access.READ).topic.partition(number)
    if partition is None:
        raise StoreError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name[:100]!r} has no such partition")
    if asked.timestamp in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP):
        bounds = await partition.bounds()
        offset = bounds.end if asked.timestamp == LATEST_TIMESTAMP else bounds.start
        return ListOffsetsPartitionResponse(partition_index=number, offset=offset)
    if asked.timestamp < 0:  # newer clients have more of them, and ask in a newer version
        raise StoreError(ErrorCode.INVALID_REQUEST, f"the time {asked.timestamp} is not known")
    found = await partition.offset_at(asked.timestamp)
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=number)
    return ListOffsetsPartitionResponse(partition_index=number, offset=found.offset, timestamp=found.unix_ms)


_NO_ROOM_WAIT_S = 0.05  # until memory for answers is free


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """One partition of the request; ``partition`` is None if ``refusal`` is the answer."""

    asked: FetchPartition
    partition: Partition | None
    form: RecordForm = RecordForm.PLAIN
    refusal: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class _Round:
    """What one look at all partitions has found."""

    room: int  # bytes that may still be added, as far as memory for answers goes
    wanted: int  # the same, as far as the client goes
    size: int = 0
    is_full: bool = False  # the answer has no room for what else there is
    is_final: bool = False  # an error is answered at once


async def fetch(call: KafkaCall, body: FetchRequest) -> Answer:
    _check(call, body)
    begun = call.fetch_sessions.begin(body)
    if not isinstance(begun, Begun):
        return call.answer(FetchResponse(error_code=call.counted(begun), responses=()))
    try:
        return await _fetch(call, body, begun)
    finally:
        if not begun.kept:
            begun.session.watch.close()


def _check(call: KafkaCall, body: FetchRequest) -> None:
    named = sum(len(topic.partitions) for topic in body.topics)
    forgotten = sum(len(topic.partitions) for topic in body.forgotten_topics_data)
    check_bounded(call.broker.limits, topics=len(body.topics), partitions=max(named, forgotten))


async def _fetch(call: KafkaCall, body: FetchRequest, begun: Begun) -> Answer:
    loop, session, arrived = asyncio.get_running_loop(), begun.session, begun.session.watch
    check_bounded(call.broker.limits, topics=0, partitions=len(session.asked))
    end_s = loop.time() + min(max(body.max_wait_ms, 0) / 1000, call.broker.limits.fetch_wait_s)
    found: dict[Key, PartitionData] = {}
    while True:
        before, due = arrived.bytes, session.take_due()
        look = _Round(room=_room(call, session, due), wanted=body.max_bytes)
        found |= await _look(call, session, due, look)
        left_s = end_s - loop.time()
        if look.size >= body.min_bytes or look.is_full or look.is_final or left_s <= 0:
            return _answer(call, begun, found, look.size)
        if look.size == 0 and look.room <= 0:
            call.broker.stalled.end_oldest()
            left_s = min(left_s, _NO_ROOM_WAIT_S)
        # Each look reads and encodes everything again, so there is none before half of what is missing has
        # come: a log group is about as large as its records, and the next looks are closer.
        arrived.expect(before + max((body.min_bytes - look.size) // 2, 1))
        await _wait(call, arrived, left_s)


def _wanted(call: KafkaCall, key: Key, session: FetchSession) -> _Wanted:
    asked = session.asked[key]
    try:
        named = call.topic(key[0], Access.READ)
    except StoreError as error:
        return _Wanted(asked=asked, partition=None, refusal=error.code)
    partition = named.topic.partition(asked.partition)
    if partition is None:
        return _Wanted(asked=asked, partition=None, refusal=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    session.watch.add(partition.key, key)  # before it is read: what comes meanwhile is noticed
    return _Wanted(asked=asked, partition=partition, form=named.form)


def _room(call: KafkaCall, session: FetchSession, due: list[Key]) -> int:
    """How much the answer may have by our limits, and by what is left for all answers."""
    asked = sum(max(session.asked[key].partition_max_bytes, 1) for key in due)
    budget = call.broker.answer_budget
    return min(call.broker.limits.fetch_bytes, max(asked, 1), budget.limit - budget.used)


async def _look(
    call: KafkaCall, session: FetchSession, due: list[Key], look: _Round
) -> dict[Key, PartitionData]:
    """Read what the partitions have. The whole room is reserved meanwhile: others read at the same time."""
    pauses = Pauses(PAUSE_EVERY)
    budget, reserved = call.broker.answer_budget, max(look.room, 0)
    budget.used += reserved
    found: dict[Key, PartitionData] = {}
    try:
        for key in due:
            found[key] = await _read(call, _wanted(call, key, session), look)
            await pauses.step()
    finally:
        budget.used -= reserved
    session.looked(found.items())
    return found


async def _wait(call: KafkaCall, arrived: Watch, seconds: float) -> None:
    with call.waiting():
        try:
            async with asyncio.timeout(seconds):
                await arrived.wait()
        except TimeoutError:
            return


def _answer(call: KafkaCall, begun: Begun, found: dict[Key, PartitionData], size: int) -> Answer:
    session = begun.session
    news = {key: found[key] for key in session.asked} if begun.whole else session.changed(found)
    session.answered(news)
    topics: dict[str, list[PartitionData]] = {}
    for (topic, _), data in news.items():
        topics.setdefault(topic, []).append(data)
    response = FetchResponse(
        session_id=session.id,
        responses=tuple(
            FetchableTopicResponse(topic=topic, partitions=tuple(data)) for topic, data in topics.items()
        ),
    )
    if not size:
        return call.answer(response)
    budget = call.broker.answer_budget
    budget.used += size

    def sent() -> None:
        budget.used -= size

    return call.answer(response, sent)


async def _read(call: KafkaCall, one: _Wanted, look: _Round) -> PartitionData:
    if one.partition is None:
        look.is_final = True
        return _refused(call, one)
    bounds = await one.partition.bounds()
    offset = one.asked.fetch_offset
    # Up to the begin of the next group: a position between two groups may come from a native cursor.
    if not bounds.start <= offset <= bounds.next:
        look.is_final = True
        return _refused(call, one, bounds, ErrorCode.OFFSET_OUT_OF_RANGE)
    first = look.size == 0
    maximum = min(one.asked.partition_max_bytes, look.wanted, look.room)
    if offset >= bounds.end:
        return _data(one, bounds)
    if look.room <= 0 or (maximum <= 0 and not first):
        look.is_full = not first
        return _data(one, bounds)
    try:
        batches = await one.partition.read(
            offset, max_bytes=max(maximum, 0), encode=partial(encode_group, one.form)
        )
    except StoreError as error:
        look.is_final = True
        return _refused(call, one, bounds, error.code)
    size = sum(map(len, batches.data))
    if not first and size > maximum:
        look.is_full = True
        return _data(one, bounds)
    # A partition that is full by its own limit leaves room for others.
    look.is_full |= batches.is_full and maximum < one.asked.partition_max_bytes
    look.size += size
    look.room -= size
    look.wanted -= size
    call.broker.counts.fetched_logs += batches.records
    return _data(one, bounds, batches.data)


def _data(one: _Wanted, bounds: Bounds, batches: tuple[bytes, ...] = ()) -> PartitionData:
    return PartitionData(
        partition_index=one.asked.partition,
        high_watermark=bounds.end,
        last_stable_offset=bounds.end,
        log_start_offset=bounds.start,
        records=batches[0] if len(batches) == 1 else b"".join(batches),
    )


def _refused(
    call: KafkaCall, one: _Wanted, bounds: Bounds | None = None, error: ErrorCode | None = None
) -> PartitionData:
    return PartitionData(
        partition_index=one.asked.partition,
        error_code=call.counted(one.refusal if error is None else error),
        high_watermark=-1 if bounds is None else bounds.end,
        log_start_offset=-1 if bounds is None else bounds.start,
    )
