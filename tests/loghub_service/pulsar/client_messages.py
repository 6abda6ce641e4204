"""Messages as a producer sends them and as a consumer gets them; the broker has the other halves."""

import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cramjam
import lz4.block
import zstandard
from msgspec import Struct
from msgspec.structs import replace

from loghub.wire.loggroup import raw_logs
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.origin import PulsarOrigin
from loghub_service.pulsar.records.entries import EntryToSend, GroupToSend
from loghub_service.pulsar.records.sends import SendSource, SentGroup, open_send, read_send
from loghub_service.pulsar.wire.codec import FieldBudget, decode_part, encode
from loghub_service.pulsar.wire.frames import LENGTH_BYTES, decode_entry, encode_entry, encode_frame
from loghub_service.pulsar.wire.producers import (
    CommandSend,
    CompressionType,
    MessageMetadata,
    SingleMessageMetadata,
)
from loghub_service.pulsar.wire.values import KeyValue

PUBLISHED_MS, RECEIVED_MS, ORDINAL = 1_700_000_000_123, 1_700_000_005_000, 77
MAX_BYTES = 10_000_000
CODECS = {
    CompressionType.NONE: bytes,
    CompressionType.LZ4: lambda raw: lz4.block.compress(raw, store_size=False),
    CompressionType.ZLIB: zlib.compress,
    CompressionType.ZSTD: zstandard.ZstdCompressor().compress,
    CompressionType.SNAPPY: lambda raw: bytes(cramjam.snappy.compress_raw(raw)),
}


@dataclass(frozen=True, kw_only=True)
class TestMessage:
    """A message as a program sees it."""

    __test__ = False

    value: bytes | None = b"value"
    key: str | bytes | None = None
    ordering_key: bytes | None = None
    properties: Sequence[tuple[str, str]] = ()
    event_ms: int | None = None


def fields_of(message: TestMessage) -> dict[str, Any]:
    """The metadata of a message. Bytes as the key are sent as base64."""
    key = message.key
    return {
        "properties": tuple(KeyValue(key=name, value=value) for name, value in message.properties),
        "partition_key": b64encode(key).decode() if isinstance(key, bytes) else key,
        "partition_key_b64_encoded": True if isinstance(key, bytes) else None,
        "ordering_key": message.ordering_key,
        "event_time": message.event_ms,
        "null_value": True if message.value is None else None,
    }


def metadata_of(sequence: int = 5, **fields: Any) -> MessageMetadata:
    common = {"producer_name": "producer", "sequence_id": sequence, "publish_time": PUBLISHED_MS}
    return MessageMetadata(**{**common, **fields})


def entry_of(metadata: MessageMetadata, payload: bytes, how: CompressionType = CompressionType.NONE) -> bytes:
    compressed = replace(metadata, compression=int(how), uncompressed_size=len(payload))
    return encode_entry(encode(compressed), CODECS[how](payload))


def alone(message: TestMessage, how: CompressionType = CompressionType.NONE, **fields: Any) -> bytes:
    """The entry of a message that is no batch."""
    return entry_of(metadata_of(**fields_of(message), **fields), message.value or b"", how)


def batch(
    messages: Sequence[TestMessage], how: CompressionType = CompressionType.NONE, **fields: Any
) -> bytes:
    """The entry of a batch."""
    payload = bytearray()
    for number, message in enumerate(messages):
        value = message.value or b""
        single = encode(
            SingleMessageMetadata(payload_size=len(value), sequence_id=5 + number, **fields_of(message))
        )
        payload += len(single).to_bytes(4, "big") + single + value
    return entry_of(metadata_of(num_messages_in_batch=len(messages), **fields), bytes(payload), how)


def sent(
    entry: bytes,
    form: RecordForm = RecordForm.RAW,
    *,
    messages: int = 1,
    max_bytes: int = MAX_BYTES,
    **fields: Any,
) -> SentGroup:
    """What the broker makes of an entry."""
    command = CommandSend(
        producer_id=1, sequence_id=5, num_messages=messages, highest_sequence_id=4 + messages, **fields
    )
    source = SendSource(producer="producer", is_named=True, partition=3, form=form, max_bytes=max_bytes)
    return read_send(command, open_send(command, entry), source)


def stored(group: bytes, origin: PulsarOrigin | None, *, raw: bool = True) -> GroupToSend:
    return GroupToSend(ORDINAL, group, origin, RECEIVED_MS, raw, logs=sum(1 for _ in raw_logs(group)))


@dataclass(frozen=True, kw_only=True)
class Received:
    """What a consumer gets of a message; ``position`` is the entry of its id plus the index in the batch."""

    message: TestMessage
    position: int
    batch_index: int
    sequence: int
    publish_ms: int


def received(entry: EntryToSend) -> list[Received]:
    """The messages of an entry, as a client reads them."""
    assert entry.data is not None
    metadata, payload = decode_entry(entry.data)
    assert metadata.producer_name
    if metadata.compression == CompressionType.ZSTD:
        payload = zstandard.ZstdDecompressor().decompress(payload)
        assert len(payload) == metadata.uncompressed_size
    if metadata.num_messages_in_batch is None:
        assert entry.batch_size is None
        message = _message(metadata, payload)
        return [
            Received(
                message=message,
                position=entry.first,
                batch_index=-1,
                sequence=metadata.sequence_id,
                publish_ms=metadata.publish_time,
            )
        ]
    assert entry.batch_size == entry.messages == metadata.num_messages_in_batch
    found, at = [], 0
    for index in range(entry.messages):
        start = at + 4
        end = start + int.from_bytes(payload[at:start], "big")
        single = decode_part(SingleMessageMetadata, payload, start, end, FieldBudget())
        at = end + single.payload_size
        assert single.sequence_id == metadata.sequence_id + index
        message = _message(single, payload[end:at])
        found.append(
            Received(
                message=message,
                position=entry.first + index,
                batch_index=index,
                sequence=single.sequence_id,
                publish_ms=metadata.publish_time,
            )
        )
    assert at == len(payload)
    assert metadata.highest_sequence_id == found[-1].sequence
    return found


def _message(metadata: MessageMetadata | SingleMessageMetadata, payload: bytes) -> TestMessage:
    key: str | bytes | None = metadata.partition_key
    if metadata.partition_key_b64_encoded:
        assert metadata.partition_key is not None
        key = b64decode(metadata.partition_key)
    return TestMessage(
        value=None if metadata.null_value else payload,
        key=key,
        ordering_key=metadata.ordering_key,
        properties=tuple((each.key, each.value) for each in metadata.properties),
        event_ms=metadata.event_time,
    )


def entry_frame(command: Struct, entry: bytes) -> bytes:
    """The frame of a command with an entry that `encode_entry` has made."""
    frame = encode_frame(command)
    return struct.pack(">I", len(frame) - LENGTH_BYTES + len(entry)) + frame[LENGTH_BYTES:] + entry
