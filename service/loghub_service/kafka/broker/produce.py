"""Produce and InitProducerId: record batches become log groups.

Every acknowledgement means durable, so ``acks`` 1 and -1 are the same, and 0 only omits the answer. The order
of batches is settled while a request begins; the rest is waiting for the disk. A batch for a shard that
accepts no writes goes to another shard.
"""

import asyncio
from dataclasses import dataclass
from functools import partial

import structlog

from loghub_service.connections.service_ports import Access
from loghub_service.connections.turns import Pauses
from loghub_service.kafka.broker.answer import PAUSE_EVERY, Answer, Complete, check_bounded
from loghub_service.kafka.broker.call import KafkaCall, NamedTopic
from loghub_service.kafka.broker.forms import BatchSource, NewBatch
from loghub_service.kafka.broker.store import StoreError
from loghub_service.kafka.producers import BatchOrigin, OutOfSequence, ProducerKey
from loghub_service.kafka.wire.errors import BadBatch, ErrorCode
from loghub_service.kafka.wire.logs import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

_log = structlog.get_logger("loghub_service.kafka")
_ALL_ACKS, _ONE_ACK, _NO_ACKS = -1, 1, 0
_MANY_BATCHES = 500  # in one request: such a request waits for its turn among requests as large


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ordered:
    """A batch of the request: its place once that is durable, or the error."""

    index: int
    stored: "asyncio.Future[int] | None" = None
    refusal: ErrorCode = ErrorCode.NONE


async def order(call: KafkaCall, body: ProduceRequest) -> Complete:
    """Settle the order of all batches; the result waits until they are durable."""
    check_bounded(
        call.broker.limits,
        topics=len(body.topic_data),
        partitions=sum(len(topic.partition_data) for topic in body.topic_data),
    )
    refusal = _refusal(body)
    pauses, ordered = Pauses(PAUSE_EVERY), list[tuple[str, list[_Ordered]]]()
    large = sum(len(topic.partition_data) for topic in body.topic_data) > _MANY_BATCHES
    async with call.broker.in_turn(large=large):
        for topic in body.topic_data:
            ordered.append((topic.name, []))
            for data in topic.partition_data:
                ordered[-1][1].append(await _order_batch(call, topic.name, data, refusal))
                await pauses.step()

    async def finish() -> Answer:
        topics = []
        async with call.broker.in_turn(large=large):
            for name, batches in ordered:
                outcomes = []
                for batch in batches:
                    outcomes.append(await _outcome(call, batch))
                    await pauses.step()
                topics.append(TopicProduceResponse(name=name, partition_responses=tuple(outcomes)))
        return call.answer(None if body.acks == _NO_ACKS else ProduceResponse(responses=tuple(topics)))

    return finish


def _refusal(body: ProduceRequest) -> ErrorCode:
    """Why nothing of the request is stored; NONE if it may be."""
    if body.acks not in (_ALL_ACKS, _ONE_ACK, _NO_ACKS):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if body.transactional_id is not None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def _order_batch(
    call: KafkaCall, name: str, data: PartitionProduceData, refusal: ErrorCode
) -> _Ordered:
    if refusal:
        return _Ordered(index=data.index, refusal=refusal)
    try:
        named = call.topic(name, Access.WRITE)
        if not 0 <= data.index < named.topic.partitions:
            return _Ordered(index=data.index, refusal=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _Ordered(index=data.index, stored=await _store(call, named, data))
    except (BadBatch, OutOfSequence, StoreError) as error:
        _log.info("record batch refused", topic=name[:249], partition=data.index, reason=str(error))
        return _Ordered(index=data.index, refusal=error.code)


async def _outcome(call: KafkaCall, ordered: _Ordered) -> PartitionProduceResponse:
    error, offset = ordered.refusal, -1
    if ordered.stored is not None:
        try:
            offset = await asyncio.shield(ordered.stored)
        except StoreError as failed:
            error = failed.code
    call.count_error(error)
    return PartitionProduceResponse(index=ordered.index, error_code=error, base_offset=offset)


async def _store(call: KafkaCall, named: NamedTopic, data: PartitionProduceData) -> "asyncio.Future[int]":
    """Append the batch, or find it among the batches that were sent before."""
    batch = await _decode(call, named, data)
    give_back = partial(call.broker.decoding.release, len(batch.group))
    try:
        stored, appended = await _append(call, named, data, batch)
    except BaseException:
        give_back()
        raise
    if appended is None:
        give_back()
    else:
        appended.add_done_callback(lambda _: give_back())
    return stored


async def _append(
    call: KafkaCall, named: NamedTopic, data: PartitionProduceData, batch: NewBatch
) -> "tuple[asyncio.Future[int], asyncio.Future[int] | None]":
    """The future of the batch's place, and the append unless the batch was sent before."""
    origin: BatchOrigin | None = None
    stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    if batch.sequence is not None:
        addressed = named.addressed(data.index)
        key = ProducerKey(batch.producer_id, named.topic.id, addressed)
        repeated = call.broker.producers.repeated(key, batch.sequence)
        if repeated is not None:
            return repeated, None
        call.broker.producers.sent(key, batch.sequence, stored)
        origin = BatchOrigin(batch.producer_id, batch.sequence.epoch, addressed, batch.sequence.first)
    try:
        appended = await named.topic.append(data.index, batch.group, logs=batch.logs, origin=origin)
    except BaseException as error:
        _fail(stored, error if isinstance(error, StoreError) else _not_appended())
        raise
    appended.add_done_callback(lambda appended: _settle(stored, appended))
    call.broker.counts.produced_logs += batch.logs
    return stored, appended


def _settle(stored: "asyncio.Future[int]", appended: "asyncio.Future[int]") -> None:
    error = _not_appended() if appended.cancelled() else appended.exception()
    if error is None:
        stored.set_result(appended.result())
    else:
        _fail(stored, error)


def _not_appended() -> StoreError:
    """The error for an append that was cancelled: clients send the batch again. Each failure gets an error of
    its own, because an error keeps a reference to the frames that raised it."""
    return StoreError(ErrorCode.KAFKA_STORAGE_ERROR, "the connection ended before the batch was ordered")


def _fail(stored: "asyncio.Future[int]", error: BaseException) -> None:
    """Another connection that has sent the same batch again may wait for it, and must be answered: a future
    that is cancelled would end its task."""
    stored.set_exception(error)
    stored.exception()  # marks the error as seen, because perhaps no connection waits for it


async def _decode(call: KafkaCall, named: NamedTopic, data: PartitionProduceData) -> NewBatch:
    now_ms = int(call.broker.clock.unix_s() * 1000)
    source = BatchSource(api_version=call.version, form=named.form, now_ms=now_ms)
    return await call.broker.decoding.decode(source, data.records, call.broker.limits)


async def init_producer_id(call: KafkaCall, body: InitProducerIdRequest) -> Answer:
    error = ErrorCode.NONE
    if body.transactional_id is not None:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not call.login.may(Access.WRITE):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    call.count_error(error)
    if error:
        return call.answer(InitProducerIdResponse(error_code=error))
    return call.answer(
        InitProducerIdResponse(producer_id=call.broker.service.new_producer_id(), producer_epoch=0)
    )
