"""What a SEND carries as one log group: a message is a log, a batch as many, and a chunk is a log as well.

The group has the form of its topic, as Kafka's records have it (`loghub_service.kafka.records`), so that
every reader finds the same logs. A message that cannot be stored is refused with NOT_ALLOWED_ERROR, which
ends the producer of most clients: what is wrong with it stays wrong when it is sent again.

The native part makes the log group of a usual batch, and Python the others, or all; both make the same bytes.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from loghub.domain.shards import MAX_GROUP_LOGS
from loghub.wire import native
from loghub.wire.loggroup import append_log
from loghub_service.kafka.records.record_forms import ORDERING_KEY_FIELD, RecordForm
from loghub_service.kafka.records.records import logs_of
from loghub_service.kafka.wire.errors import BadBatch
from loghub_service.kafka.wire.record_batch import MAX_FIELDS, Record
from loghub_service.pulsar.origin import BASE64_KEY, EVENT_TIME, MessageChunk, PulsarOrigin
from loghub_service.pulsar.records.payloads import decompressed
from loghub_service.pulsar.wire.codec import Buffer, FieldBudget, decode_part
from loghub_service.pulsar.wire.errors import MalformedCommand, RefusedMessage, ServerError
from loghub_service.pulsar.wire.frames import MessageEntry, decode_entry
from loghub_service.pulsar.wire.producers import CommandSend, MessageMetadata, SingleMessageMetadata

_SIZE_BYTES = 4  # of the length before each message of a batch
_MAX_LOG_MS = (1 << 32) * 1000 - 1  # of the time of a log, in the year 2106 (docs/sls-protocol.md 2.3)
_MAX_SEQUENCE = (1 << 63) - 1  # the database keeps no more, and no client has more
# Of the messages of a batch: eight for each, if it has as many messages as a log group can number.
_MAX_BATCH_FIELDS = 8 * MAX_GROUP_LOGS
# Of one message: three for each property, and all others. What is too much is refused before it takes memory.
_MAX_MESSAGE_FIELDS = 3 * MAX_FIELDS + 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSource:
    """Who sends, and where to: the partition that the producer addresses (`PulsarOrigin.partition`), the form
    of the topic, and the most bytes that the log group may have."""

    producer: str
    is_named: bool
    partition: int
    form: RecordForm
    max_bytes: int


class SentGroup(NamedTuple):
    """A SEND as a log group."""

    group: bytes
    logs: int
    origin: PulsarOrigin


class _Message(NamedTuple):
    """``sequence`` is its own in a batch; 0 if it has none. ``late_event_ms`` is its event time if no log can
    have it."""

    record: Record
    ordering_key: bytes | None
    flags: int
    sequence: int
    late_event_ms: int | None


class _Grouped(NamedTuple):
    """The log group of the messages, the flags of each, the highest sequence id, and the event times that no
    log can have."""

    group: bytes
    flags: bytes
    last: int
    late_event_ms: dict[int, int]


def open_send(command: CommandSend, entry: Buffer) -> MessageEntry:
    """Metadata and payload of a SEND, which `read_send` reads further. Raises RefusedMessage."""
    try:
        opened = decode_entry(entry)
    except MalformedCommand as error:
        raise _refused(f"the metadata of the message is wrong: {error}") from error
    _check(command, opened.metadata)
    return opened


def read_send(command: CommandSend, opened: MessageEntry, source: SendSource) -> SentGroup:
    """The log group of a SEND. Raises RefusedMessage."""
    metadata, payload = opened
    chunk = _chunk_of(command, metadata)
    try:
        if chunk is not None:
            grouped = _grouped(iter((_message(metadata, payload, metadata.publish_time),)), source)
        else:
            raw = decompressed(
                payload,
                metadata.compression or 0,
                size=metadata.uncompressed_size or 0,
                max_bytes=source.max_bytes,
            )
            grouped = _by_native_part(metadata, raw, source) or _grouped(_messages(metadata, raw), source)
    except MalformedCommand as error:
        raise _refused(f"the metadata of the message is wrong: {error}") from error
    except BadBatch as error:
        raise _refused(str(error)) from error
    group, flags, last, late_event_ms = grouped
    origin = PulsarOrigin(
        partition=source.partition,
        producer=source.producer,
        sequence=command.sequence_id,
        # Clients in C++ and Python say the number of the last message of a batch only there.
        highest=max(command.highest_sequence_id, command.sequence_id, last),
        publish_ms=metadata.publish_time,
        is_batch=metadata.num_messages_in_batch is not None,
        is_named=source.is_named,
        flags=flags[:1] if len(set(flags)) == 1 else flags,
        schema_version=metadata.schema_version or b"",
        deliver_at_ms=metadata.deliver_at_time,
        chunk=chunk,
        late_event_ms=late_event_ms or None,
    )
    return SentGroup(group, len(flags), origin)


def _by_native_part(metadata: MessageMetadata, batch: bytes, source: SendSource) -> _Grouped | None:
    count = metadata.num_messages_in_batch
    if count is None or not 1 <= count <= MAX_GROUP_LOGS or source.form is RecordForm.JSON:
        return None
    made = native.logs_of_batch(
        batch,
        count,
        metadata.publish_time,
        source.form is RecordForm.RAW,
        (source.max_bytes, _MAX_BATCH_FIELDS, _MAX_MESSAGE_FIELDS, MAX_FIELDS),
    )
    return None if made is None or made[2] > _MAX_SEQUENCE else _Grouped(*made, {})


def _grouped(messages: Iterator[_Message], source: SendSource) -> _Grouped:
    group, flags, last, late_event_ms = bytearray(), bytearray(), 0, dict[int, int]()
    for message in messages:
        if message.late_event_ms is not None:
            late_event_ms[len(flags)] = message.late_event_ms
        flags.append(message.flags)
        last = max(last, message.sequence)
        (log,) = logs_of((message.record,), source.form, now_ms=0)
        if message.ordering_key is not None and source.form is RecordForm.RAW:
            log = replace(log, contents=(*log.contents, (ORDERING_KEY_FIELD, message.ordering_key)))
        append_log(group, log)
        if len(group) > source.max_bytes:
            raise _refused(f"the messages become a log group of more than {source.max_bytes} bytes")
    if last > _MAX_SEQUENCE:
        raise _refused(f"the sequence id {last} is not below 2^63")
    return _Grouped(bytes(group), bytes(flags), last, late_event_ms)


def _check(command: CommandSend, metadata: MessageMetadata) -> None:
    if metadata.encryption_keys or metadata.encryption_algo:
        raise _refused(
            "an encrypted message, of which the service could make no log; send it without encryption"
        )
    has_transaction = metadata.txnid_least_bits is not None or metadata.txnid_most_bits is not None
    if has_transaction or command.txnid_least_bits or command.txnid_most_bits:
        raise _refused("a message of a transaction; transactions are not offered")
    if command.marker or metadata.marker_type is not None:
        raise _refused("a marker, which only brokers write")
    if max(command.sequence_id, command.highest_sequence_id) > _MAX_SEQUENCE:
        raise _refused(f"the sequence id {command.sequence_id} is not below 2^63")


def _chunk_of(command: CommandSend, metadata: MessageMetadata) -> MessageChunk | None:
    count = metadata.num_chunks_from_msg or 1
    if not command.is_chunk and count <= 1:
        return None
    number = metadata.chunk_id
    if not metadata.uuid or number is None or not 0 <= number < count or metadata.num_messages_in_batch:
        raise _refused(f"chunk {number} of {count} without what all chunks have")
    return MessageChunk(
        uuid=metadata.uuid,
        number=number,
        count=count,
        total_size=metadata.total_chunk_msg_size or 0,
        compression=metadata.compression or 0,
        uncompressed_size=metadata.uncompressed_size or 0,
    )


def _messages(metadata: MessageMetadata, raw: bytes) -> Iterator[_Message]:
    count = metadata.num_messages_in_batch
    if count is None:
        yield _message(metadata, raw, metadata.publish_time)
        return
    if not 1 <= count <= MAX_GROUP_LOGS:
        raise _refused(f"a batch of {count} messages; at most {MAX_GROUP_LOGS} are accepted")
    at, fields_left = 0, _MAX_BATCH_FIELDS
    for number in range(count):
        start = at + _SIZE_BYTES
        end = start + int.from_bytes(raw[at:start], "big")
        if end > len(raw):
            raise _refused(f"message {number} of {count} passes the end of the batch")
        budget = FieldBudget(min(fields_left, _MAX_MESSAGE_FIELDS))
        single = decode_part(SingleMessageMetadata, raw, start, end, budget)
        fields_left -= budget.maximum - budget.left
        at = end + single.payload_size
        if not end <= at <= len(raw):
            raise _refused(f"message {number} of {count} passes the end of the batch")
        yield _message(single, raw[end:at], metadata.publish_time)
    if at != len(raw):
        raise _refused(f"{len(raw) - at} bytes follow the last message of the batch")


def _message(metadata: MessageMetadata | SingleMessageMetadata, payload: bytes, publish_ms: int) -> _Message:
    """A message by its own metadata. Raises RefusedMessage."""
    if len(metadata.properties) > MAX_FIELDS:
        raise _refused(
            f"a message has {len(metadata.properties)} properties; at most {MAX_FIELDS} are accepted"
        )
    flags = 0
    if metadata.event_time:
        flags |= EVENT_TIME
    key: bytes | None = None
    if metadata.partition_key is not None and not metadata.null_partition_key:
        key = metadata.partition_key.encode()
        if metadata.partition_key_b64_encoded:
            flags |= BASE64_KEY
            try:
                key = b64decode(key, validate=True)
            except binascii.Error as error:
                raise _refused(f"the key is not base64: {error}") from error
    event_ms = metadata.event_time or 0
    record = Record(
        key,
        None if metadata.null_value else payload,
        [(each.key, each.value.encode()) for each in metadata.properties],
        min(event_ms or publish_ms, _MAX_LOG_MS),
    )
    # The sequence of a message alone is the number in the command.
    sequence = (metadata.sequence_id or 0) if isinstance(metadata, SingleMessageMetadata) else 0
    late_event_ms = event_ms if event_ms > _MAX_LOG_MS else None
    return _Message(record, metadata.ordering_key, flags, sequence, late_event_ms)


def _refused(message: str) -> RefusedMessage:
    return RefusedMessage(ServerError.NOT_ALLOWED_ERROR, message)
