"""A stored log group as what MESSAGE carries, in two forms.

The ordered form, for one consumer of the whole shard: the group is one entry, a batch or a single message as
it was produced. The single form, for several consumers: each log is an entry of its own, so that
acknowledgements, permits and keys are exact for each log. The ids of both name the same log: the ledger is
the ordinal of the group, and the entry and the index in the batch together are the index of the log.

A group that is too large for one frame is cut into runs, by a rule that depends on the group and the limit
alone: an id that was acknowledged means the same log after a restart. A log that is larger than a frame is
compressed. One that no frame can carry even so has an entry without data, so that a sender of entries can
count it and continue.

The native part makes the entries of usual groups, and Python the entries of all others, or all: there the
fields of the metadata are written one after the other instead of by `wire.codec`, which takes three times as
long. Tests compare all three.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap
from typing import NamedTuple

import cramjam
from msgspec import Struct
from msgspec.structs import replace

from loghub.domain.shards import MAX_GROUP_LOGS
from loghub.wire import native
from loghub.wire.loggroup import raw_logs
from loghub.wire.protobuf import BYTES, VARINT, delimited, tag, varint
from loghub_service.pulsar.origin import BASE64_KEY, EVENT_TIME, MessageChunk, PulsarOrigin
from loghub_service.pulsar.records.messages import Message, message_of
from loghub_service.pulsar.wire.codec import encode
from loghub_service.pulsar.wire.frames import FRAME_MARGIN_BYTES, encode_entry
from loghub_service.pulsar.wire.producers import CompressionType, MessageMetadata

# As the producer of logs that no producer of Pulsar has sent.
NO_PRODUCER = "loghub"
# What a frame has besides the metadata and the payload: sizes, checksum, and a command with its ids.
_COMMAND_BYTES = 256


@dataclass(frozen=True)
class GroupToSend:
    """A stored log group with its place, its origin and the number of its logs; ``raw`` if its logstore has
    the form raw."""

    ordinal: int
    group: bytes
    origin: PulsarOrigin | None
    received_ms: int
    raw: bool
    logs: int

    @cached_property
    def messages(self) -> list[Message]:
        """Its logs as messages, which keys and entries are made of. Raises MalformedLogGroup."""
        # Kept, since reading the logs takes as long as making the entries.
        return [message_of(log, raw=self.raw) for log in raw_logs(self.group)]


class EntryToSend(Struct, frozen=True, gc=False):
    """An entry from the log ``first`` on, with this many messages. ``batch_size`` is None if it is no batch,
    and ``data`` is None if the log is larger than a frame. The collector of garbage does not look at entries:
    hundreds of thousands wait in the cache."""

    ordinal: int
    first: int
    messages: int
    batch_size: int | None
    data: bytes | None


def ordered_entries(group: GroupToSend, *, max_message_bytes: int) -> list[EntryToSend]:
    """The group as one entry, or as several if it is too large for one. Raises MalformedLogGroup."""
    is_batch = group.logs > 1 if group.origin is None else group.origin.is_batch
    encoder = EntryEncoder(group, max_message_bytes)
    return encoder.all(in_batches=is_batch)


def single_entries(
    group: GroupToSend, indexes: Iterable[int] | None = None, *, max_message_bytes: int
) -> Iterator[EntryToSend]:
    """An entry for each of these logs, in their order, or for all. Raises MalformedLogGroup, and IndexError
    for a log that the group does not have."""
    encoder = EntryEncoder(group, max_message_bytes)
    return iter(encoder.all(in_batches=False)) if indexes is None else map(encoder.single, indexes)


def keys_of(group: GroupToSend) -> list[bytes]:
    """By what each log is given to a consumer of Key_Shared: its ordering key, else its key, else what makes
    the logs of a producer spread; all chunks of a message have the same. Raises MalformedLogGroup."""
    chunk = None if group.origin is None else group.origin.chunk
    producer, first = numbering(group)
    found: list[bytes] = []
    for index, message in enumerate(group.messages):
        key = message.key if message.ordering_key is None else message.ordering_key
        if key is None:
            key = (f"{producer}-{first + index}" if chunk is None else chunk.uuid).encode()
        found.append(key)
    return found


def numbering(group: GroupToSend) -> tuple[str, int]:
    """The producer and the sequence id of the first log. A log that no producer of Pulsar has sent has its
    position as its sequence id."""
    if group.origin is None:
        return NO_PRODUCER, group.ordinal * MAX_GROUP_LOGS
    return group.origin.producer, group.origin.sequence


class _Tags(NamedTuple):
    """The tags of what a message alone and a message of a batch both have."""

    properties: bytes
    key: bytes
    event_time: bytes
    is_base64: bytes
    ordering_key: bytes
    sequence: bytes
    null_value: bytes

    @classmethod
    def of(cls, *numbers: int) -> "_Tags":
        properties, key, event_time, is_base64, ordering_key, sequence, null_value = numbers
        return cls(
            tag(properties, BYTES),
            tag(key, BYTES),
            tag(event_time, VARINT),
            tag(is_base64, VARINT) + b"\1",
            tag(ordering_key, BYTES),
            tag(sequence, VARINT),
            tag(null_value, VARINT) + b"\1",
        )


_ALONE = _Tags.of(4, 6, 12, 17, 18, 2, 25)  # of MessageMetadata
_IN_BATCH = _Tags.of(1, 2, 5, 6, 7, 8, 9)  # of SingleMessageMetadata
_BATCH_SIZE, _HIGHEST_SEQUENCE = tag(11, VARINT), tag(24, VARINT)
_PAYLOAD_SIZE = tag(3, VARINT)
_COMPRESSION, _RAW_SIZE = tag(8, VARINT), tag(9, VARINT)
_NAME, _VALUE = tag(1, BYTES), tag(2, BYTES)
_EVENT_TIME_OF_ALL = bytes((EVENT_TIME,))


class EntryEncoder:
    """Makes the entries of one group."""

    def __init__(self, group: GroupToSend, max_message_bytes: int) -> None:
        self._group = group
        self._max_payload_bytes = max_message_bytes
        self._max_bytes = max_message_bytes + FRAME_MARGIN_BYTES - _COMMAND_BYTES
        self._producer, self._first = numbering(group)
        origin = group.origin
        common = MessageMetadata(
            producer_name=self._producer,
            sequence_id=0,
            publish_time=group.received_ms if origin is None else origin.publish_ms,
            schema_version=None if origin is None else origin.schema_version or None,
            deliver_at_time=None if origin is None else origin.deliver_at_ms,
        )
        self._is_chunk = origin is not None and origin.chunk is not None
        if origin is not None and origin.chunk is not None:
            common = _with_chunk(common, origin.chunk)
        # The sequence id follows, and of a field that occurs twice the last value counts.
        self._common = encode(common)

    def all(self, *, in_batches: bool) -> list[EntryToSend]:
        """The entries of all logs, in batches or one for each."""
        made = self._by_native_part(in_batches=in_batches)
        return self.all_in_python(in_batches=in_batches) if made is None else made

    def _by_native_part(self, *, in_batches: bool) -> list[EntryToSend] | None:
        group, origin = self._group, self._group.origin
        if origin is not None and origin.late_event_ms is not None:
            return None
        made = native.entries_of(
            group.group,
            group.raw,
            in_batches,
            self._common,
            (group.ordinal, self._first),
            _EVENT_TIME_OF_ALL if origin is None else origin.flags,
            (self._max_payload_bytes, self._max_bytes),
        )
        return None if made is None else list(starmap(EntryToSend, made))

    def all_in_python(self, *, in_batches: bool) -> list[EntryToSend]:
        """The entries of all logs, made without the native part."""
        return self._runs() if in_batches else list(map(self.single, range(len(self._group.messages))))

    def single(self, index: int) -> EntryToSend:
        """The entry of one log."""
        message = self._group.messages[index]
        payload = message.payload or b""
        out = [self._common]
        self._append(out, _ALONE, index, message)
        return self._entry(index, 1, None, b"".join(out), payload)

    def _runs(self) -> list[EntryToSend]:
        """The logs in batches, as few as possible."""
        entries: list[EntryToSend] = []
        run: list[bytes] = []
        begin = size = 0
        for index, message in enumerate(self._group.messages):
            content = self._in_batch(index, message)
            if run and size + len(content) > self._max_payload_bytes:
                entries.append(self._batch(begin, run))
                run, begin, size = [], index, 0
            run.append(content)
            size += len(content)
        if run:
            entries.append(self._batch(begin, run))
        return entries

    def _batch(self, begin: int, run: list[bytes]) -> EntryToSend:
        count, sequence = len(run), self._first + begin
        numbers = (
            _ALONE.sequence + varint(sequence),
            _BATCH_SIZE + varint(count),
            _HIGHEST_SEQUENCE + varint(sequence + count - 1),
        )
        return self._entry(begin, count, count, b"".join((self._common, *numbers)), b"".join(run))

    def _in_batch(self, index: int, message: Message) -> bytes:
        payload = message.payload or b""
        out = [_PAYLOAD_SIZE, varint(len(payload))]
        self._append(out, _IN_BATCH, index, message)
        metadata = b"".join(out)
        return b"".join((len(metadata).to_bytes(4, "big"), metadata, payload))

    def _append(self, out: list[bytes], tags: _Tags, index: int, message: Message) -> None:
        """The fields of a message. Without an origin the time of the log is its event time."""
        payload, key, ordering_key, properties, time_ms = message
        origin = self._group.origin
        flags = EVENT_TIME if origin is None else origin.flags_of(index)
        if origin is not None and origin.late_event_ms is not None:
            time_ms = origin.late_event_ms.get(index, time_ms)
        out += (tags.sequence, varint(self._first + index))
        for name, value in properties:
            pair = delimited(_NAME, name) + delimited(_VALUE, value)
            out += (tags.properties, varint(len(pair)), pair)
        if key is not None:
            if flags & BASE64_KEY or not _is_text(key):
                key = b64encode(key)
                out.append(tags.is_base64)
            out += (tags.key, varint(len(key)), key)
        if flags & EVENT_TIME:
            out += (tags.event_time, varint(time_ms))
        if ordering_key is not None:
            out += (tags.ordering_key, varint(len(ordering_key)), ordering_key)
        if payload is None:
            out.append(tags.null_value)

    def _entry(
        self, first: int, count: int, batch_size: int | None, metadata: bytes, payload: bytes
    ) -> EntryToSend:
        if count == 1 and not self._is_chunk and self._is_too_large(metadata, payload):
            # Clients bound what arrives, and so a message that was sent compressed may be larger.
            metadata += _COMPRESSION + varint(CompressionType.ZSTD) + _RAW_SIZE + varint(len(payload))
            payload = bytes(cramjam.zstd.compress(payload))
        data = None if self._is_too_large(metadata, payload) else encode_entry(metadata, payload)
        return EntryToSend(self._group.ordinal, first, count, batch_size, data)

    def _is_too_large(self, metadata: bytes, payload: bytes) -> bool:
        size = len(metadata) + len(payload)
        return len(payload) > self._max_payload_bytes or size > self._max_bytes


def _with_chunk(metadata: MessageMetadata, chunk: MessageChunk) -> MessageMetadata:
    return replace(
        metadata,
        uuid=chunk.uuid,
        chunk_id=chunk.number,
        num_chunks_from_msg=chunk.count,
        total_chunk_msg_size=chunk.total_size,
        compression=chunk.compression,
        uncompressed_size=chunk.uncompressed_size,
    )


def _is_text(key: bytes) -> bool:
    if key.isascii():
        return True
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True
