"""Fetch: record batches from an offset on, and a long poll while there are none. ListOffsets: the first
offset, the end, or the offset for a time.

One log group becomes one record batch. The first partition with records gets a whole batch, however small the
client's limits are, since the client could not go on otherwise; the other partitions get the batches that
fit. `fetch_session` chooses the partitions to read.

The time of ListOffsets is compared with the receive times of log groups, as for a cursor of SLS, since only
these are in the order of the offsets; the time of a log is the producer's own.
"""

import asyncio
from dataclasses import dataclass
from functools import partial

from loghub_service.connections.service_ports import Access, Watch
from loghub_service.connections.turns import Pauses
from loghub_service.kafka.broker.answer import PAUSE_EVERY, Answer, check_bounded
from loghub_service.kafka.broker.call import KafkaCall
from loghub_service.kafka.broker.fetch_session import Begun, FetchSession, Key
from loghub_service.kafka.broker.forms import encode_group
from loghub_service.kafka.broker.store import Bounds, Partition, StoreError
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
        answers = []
        for partition in topic.partitions:
            answers.append(await _list_offset(call, topic.name, partition))
            await pauses.step()
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(answers)))
    return call.answer(ListOffsetsResponse(topics=tuple(topics)))


async def _list_offset(
    call: KafkaCall, name: str, request: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    number = request.partition_index
    try:
        return await _offset_of(call, name, request)
    except StoreError as error:
        return ListOffsetsPartitionResponse(partition_index=number, error_code=call.count_error(error.code))


async def _offset_of(
    call: KafkaCall, name: str, request: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    """Raises StoreError."""
    number = request.partition_index
    partition = call.topic(name, Access.READ).topic.partition(number)
    if partition is None:
        raise StoreError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name[:100]!r} has no such partition")
    if request.timestamp in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP):
        bounds = await partition.bounds()
        offset = bounds.end if request.timestamp == LATEST_TIMESTAMP else bounds.start
        return ListOffsetsPartitionResponse(partition_index=number, offset=offset)
    if request.timestamp < 0:  # newer clients know more of them, and use them in a newer version
        raise StoreError(ErrorCode.INVALID_REQUEST, f"the time {request.timestamp} is not known")
    place = await partition.offset_at(request.timestamp)
    if place is None:
        return ListOffsetsPartitionResponse(partition_index=number)
    return ListOffsetsPartitionResponse(partition_index=number, offset=place.offset, timestamp=place.unix_ms)


# Between two passes without memory for answers, which clients free by reading them, within milliseconds.
_NO_ROOM_WAIT_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _RequestedPartition:
    """One partition of the request; invariant: ``partition`` is None if and only if ``refusal`` is an
    error."""

    request: FetchPartition
    partition: Partition | None
    form: RecordForm = RecordForm.PLAIN
    refusal: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class _FetchPass:
    """One pass over the partitions, with the room that is left."""

    room: int  # bytes that may still be added by the memory for answers
    wanted: int  # bytes that may still be added by the client's limit
    size: int = 0
    is_full: bool = False  # the answer has no room for the other records
    is_final: bool = False  # an error is answered at once


async def fetch(call: KafkaCall, body: FetchRequest) -> Answer:
    _check(call, body)
    begun = call.fetch_sessions.begin(body)
    if not isinstance(begun, Begun):
        return call.answer(FetchResponse(error_code=call.count_error(begun), responses=()))
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
    loop, session, watch = asyncio.get_running_loop(), begun.session, begun.session.watch
    check_bounded(call.broker.limits, topics=0, partitions=len(session.asked))
    end_s = loop.time() + min(max(body.max_wait_ms, 0) / 1000, call.broker.limits.fetch_wait_s)
    partitions: dict[Key, PartitionData] = {}
    while True:
        before, due = watch.bytes, session.take_due()
        fetch_pass = _FetchPass(room=_room(call, session, due), wanted=body.max_bytes)
        partitions |= await _read_all(call, session, due, fetch_pass)
        left_s = end_s - loop.time()
        if fetch_pass.size >= body.min_bytes or fetch_pass.is_full or fetch_pass.is_final or left_s <= 0:
            return _answer(call, begun, partitions, fetch_pass.size)
        if fetch_pass.size == 0 and fetch_pass.room <= 0:
            call.broker.stalled.end_oldest()
            left_s = min(left_s, _NO_ROOM_WAIT_S)
        # Each pass reads and encodes everything again, so the next pass waits until half of the missing bytes
        # have arrived: a log group is about as large as its records, and later passes are closer together.
        watch.expect(before + max((body.min_bytes - fetch_pass.size) // 2, 1))
        await _wait(call, watch, left_s)


def _requested_partition(call: KafkaCall, key: Key, session: FetchSession) -> _RequestedPartition:
    request = session.asked[key]
    try:
        named = call.topic(key[0], Access.READ)
    except StoreError as error:
        return _RequestedPartition(request=request, partition=None, refusal=error.code)
    partition = named.topic.partition(request.partition)
    if partition is None:
        return _RequestedPartition(
            request=request, partition=None, refusal=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    # Before the partition is read, so that no append in between is missed.
    session.watch.add(partition.key, key)
    return _RequestedPartition(request=request, partition=partition, form=named.form)


def _room(call: KafkaCall, session: FetchSession, due: list[Key]) -> int:
    """How many bytes the answer may have by our limits, and by the memory that is left for all answers."""
    asked = sum(max(session.asked[key].partition_max_bytes, 1) for key in due)
    budget = call.broker.answer_budget
    return min(call.broker.limits.fetch_bytes, max(asked, 1), budget.limit - budget.used)


async def _read_all(
    call: KafkaCall, session: FetchSession, due: list[Key], fetch_pass: _FetchPass
) -> dict[Key, PartitionData]:
    """Read the records of the partitions. The whole room is reserved meanwhile, because other requests read
    at the same time."""
    pauses = Pauses(PAUSE_EVERY)
    budget, reserved = call.broker.answer_budget, max(fetch_pass.room, 0)
    budget.used += reserved
    partitions: dict[Key, PartitionData] = {}
    try:
        for key in due:
            partitions[key] = await _read(call, _requested_partition(call, key, session), fetch_pass)
            await pauses.step()
    finally:
        budget.used -= reserved
    session.looked(partitions.items())
    return partitions


async def _wait(call: KafkaCall, watch: Watch, seconds: float) -> None:
    with call.waiting():
        try:
            async with asyncio.timeout(seconds):
                await watch.wait()
        except TimeoutError:
            return


def _answer(call: KafkaCall, begun: Begun, partitions: dict[Key, PartitionData], size: int) -> Answer:
    session = begun.session
    everything = {key: partitions[key] for key in session.asked} if begun.whole else None
    changed = session.changed(partitions) if everything is None else everything
    session.answered(changed)
    topics: dict[str, list[PartitionData]] = {}
    for (topic, _), data in changed.items():
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


async def _read(call: KafkaCall, requested: _RequestedPartition, fetch_pass: _FetchPass) -> PartitionData:
    if requested.partition is None:
        fetch_pass.is_final = True
        return _refused(call, requested)
    bounds = await requested.partition.bounds()
    offset = requested.request.fetch_offset
    # Up to the begin of the next group, because a position between two groups may come from a native cursor.
    if not bounds.start <= offset <= bounds.next:
        fetch_pass.is_final = True
        return _refused(call, requested, bounds, ErrorCode.OFFSET_OUT_OF_RANGE)
    first = fetch_pass.size == 0
    maximum = min(requested.request.partition_max_bytes, fetch_pass.wanted, fetch_pass.room)
    if offset >= bounds.end:
        return _data(requested, bounds)
    if fetch_pass.room <= 0 or (maximum <= 0 and not first):
        fetch_pass.is_full = not first
        return _data(requested, bounds)
    try:
        batches = await requested.partition.read(
            offset, max_bytes=max(maximum, 0), encode=partial(encode_group, requested.form)
        )
    except StoreError as error:
        fetch_pass.is_final = True
        return _refused(call, requested, bounds, error.code)
    size = sum(map(len, batches.data))
    if not first and size > maximum:
        fetch_pass.is_full = True
        return _data(requested, bounds)
    # A partition that is full by its own limit leaves room for others.
    fetch_pass.is_full |= batches.is_full and maximum < requested.request.partition_max_bytes
    fetch_pass.size += size
    fetch_pass.room -= size
    fetch_pass.wanted -= size
    call.broker.counts.fetched_logs += batches.records
    return _data(requested, bounds, batches.data)


def _data(requested: _RequestedPartition, bounds: Bounds, batches: tuple[bytes, ...] = ()) -> PartitionData:
    return PartitionData(
        partition_index=requested.request.partition,
        high_watermark=bounds.end,
        last_stable_offset=bounds.end,
        log_start_offset=bounds.start,
        records=batches[0] if len(batches) == 1 else b"".join(batches),
    )


def _refused(
    call: KafkaCall,
    requested: _RequestedPartition,
    bounds: Bounds | None = None,
    error: ErrorCode | None = None,
) -> PartitionData:
    return PartitionData(
        partition_index=requested.request.partition,
        error_code=call.count_error(requested.refusal if error is None else error),
        high_watermark=-1 if bounds is None else bounds.end,
        log_start_offset=-1 if bounds is None else bounds.start,
    )
