"""The commands of producers: PRODUCER, SEND and CLOSE_PRODUCER.

What a SEND carries becomes a log group, and the receipt is sent once that is durable. The order of messages
is settled while the commands begin, one after the other; the answers of a producer have the same order, since
Java's client takes another one for an error. A message that a producer with a name sends again is not stored
again (`loghub_service.pulsar.sequences`): its receipt has an id that stands for no message.

Most clients answer an error by sending the same message again at once. So errors are delayed, which also
holds back the receipts behind them. A producer with a message that was refused stores nothing more and is
closed with the error: its client sends whatever it has no receipt for over the next one, in its order.

What the client hears first decides how often it does so. Go's client connects the producer again for either
of the two, and sends all of it again each time: a producer without a name then stores it twice. A client that
has heard first that the producer is closed takes the error for none of this producer. Java's client ignores
the error then, but needs the error that says what is wrong with a message. Go's client gets stuck by that
error, and does not hear it (`PulsarSession.refuse`).
"""

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import TypeAlias

import structlog

from loghub.domain.subscription import SubscriptionType
from loghub_service.append_series import AppendSeries
from loghub_service.connections.service_ports import Access
from loghub_service.connections.turns import Need
from loghub_service.kafka.records.record_forms import addressed
from loghub_service.kafka.wire.record_batch import MAX_FIELDS
from loghub_service.pulsar.broker.connection import Complete
from loghub_service.pulsar.broker.names import check_subscription
from loghub_service.pulsar.broker.producer import PulsarProducer
from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.broker.schemas import version_bytes, version_of
from loghub_service.pulsar.broker.session import AddressedTopic, PulsarSession
from loghub_service.pulsar.records.sends import SendSource, open_send, read_send
from loghub_service.pulsar.sequences import NamedProducer, number_of
from loghub_service.pulsar.wire.errors import RefusedMessage, ServerError
from loghub_service.pulsar.wire.frames import MessageEntry
from loghub_service.pulsar.wire.producers import (
    CommandCloseProducer,
    CommandProducer,
    CommandSend,
    CommandSendReceipt,
    CompressionType,
)
from loghub_service.pulsar.wire.session import CommandSuccess
from loghub_service.pulsar.wire.values import EARLIEST, MessageIdData
from loghub_service.subscription.state import SubscriptionSettings

Stored: TypeAlias = asyncio.Future[int | None]  # the ordinal of the log group; None: stored before
Outcome: TypeAlias = Stored | RefusedCommand
_log = structlog.get_logger("loghub_service.pulsar")
_MAX_NAME = 256  # characters of a producer's name
# Wrong with the message itself, so that Java's client looks for the message at its producer.
_OF_MESSAGES = (ServerError.CHECKSUM_ERROR, ServerError.NOT_ALLOWED_ERROR)
# The id in the receipt of a message that was stored before: it stands for none.
_NO_ID = MessageIdData(ledger_id=EARLIEST, entry_id=EARLIEST)
# What is decoded on the event loop takes some milliseconds: as many messages, and as many bytes of them.
_ON_LOOP_MESSAGES, _ON_LOOP_BYTES = 300, 64 << 10
_PROPERTY_BYTES, _MIN_PROPERTY_BYTES = 700, 6  # of a property while its message is read, and in the payload
_LOG_BYTES = 64  # more than a log has besides the fields of its message: time, lengths, names


async def create_producer(session: PulsarSession, command: CommandProducer) -> Complete | None:
    session.check_may(Access.WRITE)
    known = session.producers.get(command.producer_id)
    if known is not None and not known.has_failed:
        # A client that takes it for disconnected asks again on the same connection.
        known.request_id = command.request_id
        return _created(known, None)
    if known is not None:
        known.close()
    _check(command)
    session.check_room()
    named = await session.topic_or_new(command.topic)
    name = command.producer_name or session.broker.service.new_producer_name()
    topic, shard = named.topic, named.shard()
    key = NamedProducer(topic.id, addressed(named.suffix, shard), name)
    producer = PulsarProducer(session, command, topic, shard, key)
    if command.schema is not None:
        producer.schema_version = version_bytes(await version_of(producer.topic, command.schema))
    if command.initial_subscription_name:
        await _subscribe(session, named, command.initial_subscription_name)
    return _created(producer, session.topic_producers.join(producer))


def _check(command: CommandProducer) -> None:
    if command.encrypted:
        raise RefusedCommand(
            ServerError.NOT_ALLOWED_ERROR, "encrypted messages cannot become logs; send without encryption"
        )
    if command.txn_enabled:
        raise RefusedCommand(ServerError.NOT_ALLOWED_ERROR, "transactions are not offered")
    if len(command.producer_name or "") > _MAX_NAME:
        raise RefusedCommand(
            ServerError.NOT_ALLOWED_ERROR, f"the name of a producer has at most {_MAX_NAME} characters"
        )


async def _created(producer: PulsarProducer, epoch_saved: "asyncio.Future[object] | None") -> None:
    if epoch_saved is not None:
        await asyncio.shield(epoch_saved)
    if producer.is_open:
        producer.session.send(producer.success())


async def _subscribe(session: PulsarSession, named: AddressedTopic, name: str) -> None:
    """Make a subscription before the first message, so that none is missed."""
    check_subscription(name)
    subscriptions = session.broker.service.subscriptions
    saved = subscriptions.of(named.topic.id).get(name)
    if saved is None:
        settings = SubscriptionSettings(type=SubscriptionType.EXCLUSIVE)
        saved = subscriptions.create(named.topic.id, name, settings, named.topic.shards())
    await saved.durable()


async def close_producer(session: PulsarSession, command: CommandCloseProducer) -> Complete | None:
    producer = session.producers.get(command.producer_id)
    if producer is None:
        session.send(CommandSuccess(request_id=command.request_id))
        return None
    producer.close()
    return _closed(producer, command.request_id)


async def _closed(producer: PulsarProducer, request_id: int) -> None:
    await producer.turns.all_given()
    producer.session.send(CommandSuccess(request_id=request_id))


# SEND


async def send(session: PulsarSession, sent: tuple[CommandSend, memoryview]) -> Complete | None:
    """Store a message. A producer that is not here any more has been closed: its client sends what it has no
    receipt for over the next one."""
    command, entry = sent
    producer = session.producers.get(command.producer_id)
    if producer is None or not producer.may_store:
        return None
    outcome: Outcome
    try:
        stored = await _store(producer, command, open_send(command, entry))
        if stored is None:
            return None
        outcome = stored
    except RefusedMessage as error:
        outcome = RefusedCommand(error.code, str(error))
    except RefusedCommand as error:
        outcome = error
    if isinstance(outcome, RefusedCommand):
        producer.has_failed = True
    # The turn of the answer is settled now.
    return _answer(producer, command, outcome, *producer.turns.next())


async def _answer(
    producer: PulsarProducer,
    command: CommandSend,
    outcome: Outcome,
    previous: "asyncio.Future[None] | None",
    mine: "asyncio.Future[None]",
) -> None:
    try:
        try:
            if isinstance(outcome, RefusedCommand):
                raise outcome
            ordinal = await asyncio.shield(outcome)
        except RefusedCommand as error:
            producer.has_failed = True
            await _refuse(producer, command, error, previous)
            return
        if previous is not None:
            await asyncio.shield(previous)
        producer.session.send(_receipt(producer, command, ordinal))
    finally:
        if not mine.done():
            mine.set_result(None)


async def _refuse(
    producer: PulsarProducer,
    command: CommandSend,
    error: RefusedCommand,
    previous: "asyncio.Future[None] | None",
) -> None:
    broker, topic = producer.session.broker, producer.topic
    if broker.refused.is_news((topic.id, error.code)):
        _log.warning("message refused", topic=topic.name, reason=str(error))
    if error.code is not ServerError.CHECKSUM_ERROR:
        await asyncio.sleep(broker.limits.send_error_delay_s)
    if previous is not None:
        await asyncio.shield(previous)
    if not producer.is_open:
        return  # the client sends the message again, over the next producer if it has connected one
    producer.close()
    if error.code in _OF_MESSAGES:
        producer.session.refuse(command, error)
        producer.say_closed()
    else:
        producer.say_closed()
        producer.session.refuse(command, error)


def _receipt(producer: PulsarProducer, command: CommandSend, ordinal: int | None) -> CommandSendReceipt:
    message_id = _NO_ID
    if ordinal is not None:
        message_id = MessageIdData(ledger_id=ordinal, entry_id=0, partition=producer.shard)
    return CommandSendReceipt(
        producer_id=command.producer_id,
        sequence_id=command.sequence_id,
        message_id=message_id,
        highest_sequence_id=command.highest_sequence_id,
    )


async def _store(producer: PulsarProducer, command: CommandSend, opened: MessageEntry) -> Stored | None:
    """Append the message, or find it among those that were sent before. The result is the ordinal of its log
    group, and None if it was stored before. No future if the producer was closed meanwhile. Raises
    RefusedCommand and RefusedMessage."""
    broker = producer.session.broker
    source = SendSource(
        producer=producer.name,
        is_named=producer.is_named,
        partition=producer.key.partition,
        form=producer.topic.form,
        max_bytes=broker.limits.group_bytes,
    )
    need = need_of(opened, max_bytes=source.max_bytes)
    work = partial(read_send, command, opened, source)
    sent = await broker.decoding.run(need, work, lambda sent: len(sent.group))
    give_back = partial(broker.decoding.release, len(sent.group))
    with ExitStack() as unless_appended:
        unless_appended.callback(give_back)
        partition = await producer.topic.open_partition(producer.shard, is_named=producer.is_named)
        if not producer.may_store:
            return None
        # Nothing is awaited between looking for the message and appending it.
        series = _series_of(producer)
        number = number_of(sent.origin)
        repeated = broker.sequences.repeated(producer.key, number) if producer.is_named else None
        if repeated is not None:
            return repeated
        stored = partition.append(sent.group, logs=sent.logs, origin=sent.origin, series=series)
        unless_appended.pop_all()
    stored.add_done_callback(lambda _: give_back())
    if producer.is_named:
        broker.sequences.sent(producer.key, number, stored, series)
    broker.counts.produced_logs += sent.logs
    return stored


def _series_of(producer: PulsarProducer) -> AppendSeries:
    if producer.series is None:
        known = producer.session.broker.sequences
        producer.series = known.series_of(producer.key) if producer.is_named else AppendSeries()
    return producer.series


def need_of(opened: MessageEntry, *, max_bytes: int) -> Need:
    """The memory that the message needs, as its metadata says. A payload in excess of that is refused before
    it is decompressed."""
    metadata, payload = opened
    is_plain = (metadata.compression or 0) == CompressionType.NONE
    raw = len(payload) if is_plain else min(metadata.uncompressed_size or 0, max_bytes)
    messages = metadata.num_messages_in_batch or 1
    logs = min(2 * raw + _LOG_BYTES * max(messages, 1), max_bytes)
    is_small = raw <= _ON_LOOP_BYTES and messages <= _ON_LOOP_MESSAGES
    properties = _PROPERTY_BYTES * min(
        raw // _MIN_PROPERTY_BYTES, MAX_FIELDS
    )  # of one message after the other
    return Need(memory=raw + 2 * logs + properties, thread=not is_small)  # the log group is copied once


def decoding_budget_bytes(group_bytes: int) -> int:
    """The size of the budget: two messages that need the most, and two log groups that wait for the disk."""
    return 2 * (3 * group_bytes + _PROPERTY_BYTES * MAX_FIELDS) + 2 * group_bytes
