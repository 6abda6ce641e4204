"""Fetch: record batches from an offset on, and a long poll while there are none.

One log group becomes one record batch. The first partition that has anything gets a whole batch, however
small the client's limits are, since it could not go on otherwise; of the others comes only what fits. Fetch
sessions are not offered: the session id in the answer is 0, and clients go on naming every partition.
"""

import asyncio
from dataclasses import dataclass
from functools import partial

from loghub.kafka.broker.calls import Call
from loghub.kafka.broker.forms import encode_group
from loghub.kafka.broker.reply import Reply, nothing
from loghub.kafka.broker.requests import PAUSE_EVERY, check_bounded
from loghub.kafka.broker.store import Access, Arriving, Bounds, Partition, StoreError
from loghub.kafka.records.record_form import RecordForm
from loghub.kafka.wire.error_codes import ErrorCode
from loghub.kafka.wire.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from loghub.pauses import Pauses

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


async def fetch(call: Call, body: FetchRequest) -> Reply:
    limits = call.broker.limits
    check_bounded(
        limits, topics=len(body.topics), partitions=sum(len(topic.partitions) for topic in body.topics)
    )
    pauses = Pauses(PAUSE_EVERY)
    wanted: list[tuple[str, list[_Wanted]]] = []
    for topic in body.topics:
        wanted.append((topic.topic, []))
        for asked in topic.partitions:
            wanted[-1][1].append(_wanted(call, topic, asked))
            await pauses.step()
    loop = asyncio.get_running_loop()
    end_s = loop.time() + min(max(body.max_wait_ms, 0) / 1000, limits.fetch_wait_s)
    watched = [one.partition for _, ones in wanted for one in ones if one.partition is not None]
    with call.broker.service.watched(watched) as arrived:
        while True:
            before, look = arrived.bytes, _Round(room=_room(call, body), wanted=body.max_bytes)
            found = await _look(call, wanted, look, pauses)
            left_s = end_s - loop.time()
            if look.size >= body.min_bytes or look.is_full or look.is_final or left_s <= 0:
                return _reply(call, found, look.size)
            if look.size == 0 and look.room <= 0:
                call.broker.stalled.end_oldest()
                left_s = min(left_s, _NO_ROOM_WAIT_S)
            # Each look reads and encodes everything, so there is none before half of what is missing has
            # come: a log group is about as large as its records, and the next looks are closer.
            arrived.expect(before + max((body.min_bytes - look.size) // 2, 1))
            await _wait(call, arrived, left_s)


def _wanted(call: Call, topic: FetchTopic, asked: FetchPartition) -> _Wanted:
    try:
        named = call.topic(topic.topic, Access.READ)
    except StoreError as error:
        return _Wanted(asked=asked, partition=None, refusal=error.code)
    partition = named.topic.partition(asked.partition)
    if partition is None:
        return _Wanted(asked=asked, partition=None, refusal=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _Wanted(asked=asked, partition=partition, form=named.form)


def _room(call: Call, body: FetchRequest) -> int:
    """How much the answer may have by our limits, and by what is left for all answers."""
    asked = sum(max(one.partition_max_bytes, 1) for topic in body.topics for one in topic.partitions)
    budget = call.broker.answer_budget
    return min(call.broker.limits.fetch_bytes, asked, budget.limit - budget.used)


async def _look(
    call: Call, wanted: list[tuple[str, list[_Wanted]]], look: _Round, pauses: Pauses
) -> list[FetchableTopicResponse]:
    """Read what the partitions have. The whole room is reserved meanwhile: others read at the same time."""
    budget, reserved = call.broker.answer_budget, max(look.room, 0)
    budget.used += reserved
    try:
        found = []
        for name, ones in wanted:
            partitions = []
            for one in ones:
                partitions.append(await _read(call, one, look))
                await pauses.step()
            found.append(FetchableTopicResponse(topic=name, partitions=tuple(partitions)))
        return found
    finally:
        budget.used -= reserved


async def _wait(call: Call, arrived: Arriving, seconds: float) -> None:
    with call.waiting():
        try:
            async with asyncio.timeout(seconds):
                await arrived.wait()
        except TimeoutError:
            return


def _reply(call: Call, found: list[FetchableTopicResponse], size: int) -> Reply:
    response = FetchResponse(responses=tuple(found))
    if not size:
        return Reply(response, nothing)
    budget = call.broker.answer_budget
    budget.used += size

    def sent() -> None:
        budget.used -= size

    return Reply(response, sent)


async def _read(call: Call, one: _Wanted, look: _Round) -> PartitionData:
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
    most = min(one.asked.partition_max_bytes, look.wanted, look.room)
    if offset >= bounds.end:
        return _data(one, bounds)
    if look.room <= 0 or (most <= 0 and not first):
        look.is_full = not first
        return _data(one, bounds)
    try:
        batches = await one.partition.read(
            offset, max_bytes=max(most, 0), encode=partial(encode_group, one.form)
        )
    except StoreError as error:
        look.is_final = True
        return _refused(call, one, bounds, error.code)
    size = sum(map(len, batches.data))
    if not first and size > most:
        look.is_full = True
        return _data(one, bounds)
    # A partition that is full by its own limit leaves room for others.
    look.is_full |= batches.is_full and most < one.asked.partition_max_bytes
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
    call: Call, one: _Wanted, bounds: Bounds | None = None, error: ErrorCode | None = None
) -> PartitionData:
    return PartitionData(
        partition_index=one.asked.partition,
        error_code=call.counted(one.refusal if error is None else error),
        high_watermark=-1 if bounds is None else bounds.end,
        log_start_offset=-1 if bounds is None else bounds.start,
    )
