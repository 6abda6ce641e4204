"""Record batches of format 2: building them, and reading the batches of producers, checked, decompressed
within bounds, record by record.

https://kafka.apache.org/documentation/#recordbatch. Batches are built without gaps: the last offset delta is
the number of records less one, so that offsets may have gaps between batches and none inside
(docs/kafka-protocol.md 4). The checksum begins after the base offset, which can be changed without it. Each
error code is the one that a Kafka broker returns in that case, since producers decide by it whether they send
the batch again, split it, or give up.

Varints are zigzag, so that small negative numbers are short as well
(https://kafka.apache.org/documentation/#record refers to protobuf's encoding). Lengths and deltas of records
are nearly always below 2^17, and a table is several times faster than computing each of them.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import google_crc32c
from msgspec import Struct

from loghub_service.kafka.wire.batch_compression import BatchCompression, decompress
from loghub_service.kafka.wire.codec import Buffer
from loghub_service.kafka.wire.errors import BadBatch, ErrorCode, UnencodableValue

TABLE_SIZE = 1 << 17  # offset deltas and lengths of a batch are below it, see MAX_RECORDS
_MAX_BYTES = 10  # of a varint of 64 bits


def zigzag(value: int) -> bytes:
    """A signed integer of at most 64 bits as a varint."""
    left = value << 1 if value >= 0 else (-value << 1) - 1
    if 1 << 14 <= left < 1 << 21:  # the times of logs that lie minutes apart
        return bytes((left & 0x7F | 0x80, left >> 7 & 0x7F | 0x80, left >> 14))
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


@cache
def zigzag_table() -> tuple[bytes, ...]:
    """The varints of 0 to TABLE_SIZE - 1; 6 MB, so they are made with the first batch."""
    return tuple(map(zigzag, range(TABLE_SIZE)))


def read_zigzag(body: bytes, at: int) -> tuple[int, int]:
    """The signed integer at ``at``, and the position after it. Raises BadBatch."""
    if at + 1 < len(body):
        # One or two bytes are usual: lengths of up to 8 kB.
        first, second = body[at], body[at + 1]
        if first < 0x80:
            return first >> 1 ^ -(first & 1), at + 1
        if second < 0x80:
            short = first & 0x7F | second << 7
            return short >> 1 ^ -(short & 1), at + 2
    raw = shift = 0
    for i in range(at, min(len(body), at + _MAX_BYTES)):
        byte = body[i]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw >> 1 ^ -(raw & 1), i + 1
        shift += 7
    raise BadBatch(ErrorCode.INVALID_RECORD, f"a varint at byte {at} is truncated or longer than 64 bits")


MAGIC = 2  # the only format that clients of Kafka 0.11 and newer write
# Base offset, length, leader epoch, magic, checksum; then, covered by the checksum: attributes, last offset
# delta, base and maximum timestamp, producer id and epoch, base sequence, number of records.
_PREFIX, _COVERED = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
HEADER_BYTES = _PREFIX.size + _COVERED.size
# The length counts the bytes that follow it.
LENGTH_END = 12
CHECKSUM_END = _PREFIX.size
# The maximum of logs that a log group can number (docs/kafka-protocol.md 4).
MAX_RECORDS = TABLE_SIZE
# Headers, or members of an object, of one record: far more than people use, and few enough for the memory
# that reading the record may take.
MAX_FIELDS = 10_000
NO_TIMESTAMP = NO_PRODUCER_ID = NO_EPOCH = NO_SEQUENCE = -1

_COMPRESSION, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20


class Record(NamedTuple):
    """One record; ``timestamp`` is in ms. A null key or value is None, which differs from an empty one."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int


class BatchHeader(Struct, frozen=True, kw_only=True):
    """The fields before the records. ``size`` is the size of the whole batch in bytes, header included."""

    base_offset: int
    size: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def compression(self) -> int:
        """A value of BatchCompression, or one that is not known."""
        return self.attributes & _COMPRESSION

    @property
    def is_log_append_time(self) -> bool:
        """Whether ``max_timestamp`` is the time of every record."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the records are marks of a transaction."""
        return bool(self.attributes & _CONTROL)


def read_header(batch: Buffer) -> BatchHeader:
    """The header of a batch, of which only the length is checked. Raises UnencodableValue."""
    if len(batch) < HEADER_BYTES:
        raise UnencodableValue(f"{len(batch)} bytes are no record batch")
    base_offset, length, epoch, magic, crc = _PREFIX.unpack_from(batch)
    covered = _COVERED.unpack_from(batch, _PREFIX.size)
    attributes, last_offset_delta, base_timestamp, max_timestamp = covered[:4]
    return BatchHeader(
        base_offset=base_offset,
        size=length + LENGTH_END,
        partition_leader_epoch=epoch,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=covered[4],
        producer_epoch=covered[5],
        base_sequence=covered[6],
        record_count=covered[7],
    )


def finish_batch(parts: list[bytes], *, base_offset: int, times: tuple[int, int], count: int) -> bytes:
    """A batch of ``count`` encoded records, ``parts[1:]``; the first part is empty, for the header.

    ``times`` are the times of the first and of the youngest record in ms. Raises UnencodableValue.
    """
    if not count:
        raise UnencodableValue("a batch has at least one record")
    try:
        covered = _COVERED.pack(
            BatchCompression.NONE, count - 1, *times, NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE, count
        )
    except struct.error as error:
        raise UnencodableValue(f"times from {times[0]} to {times[1]} are not of 64 bits") from error
    parts[0] = covered
    body = b"".join(parts)
    length = CHECKSUM_END - LENGTH_END + len(body)
    prefix = _PREFIX.pack(base_offset, length, NO_EPOCH, MAGIC, google_crc32c.value(body))
    return prefix + body


# The place of the magic byte in every format, and the size of the shortest batch that has one.
_MAGIC_AT = 16
# Length, attributes, two deltas, null key, null value, no headers: a byte each.
_MIN_RECORD_BYTES = 7
# zstd came with version 7 of Produce (KIP-110).
_ZSTD_SINCE = 7


class ProducedBatch(NamedTuple):
    """A batch whose header passed every check. Its records are checked as they are read, one by one: a list
    of them would take fifty times the memory of small records."""

    header: BatchHeader
    records: Iterator[Record]


def read_produced(records: Buffer | None, *, api_version: int, max_bytes: int) -> ProducedBatch:
    """The one batch of a partition of a Produce request, with its records.

    ``max_bytes`` bounds the decompressed records. Raises BadBatch with the code for the answer, as reading
    its records does.
    """
    header = check_header(records, api_version=api_version)
    assert records is not None
    body = bytes(memoryview(records)[HEADER_BYTES:])
    raw = decompress(body, BatchCompression(header.compression), max_bytes=max_bytes)
    if header.record_count * _MIN_RECORD_BYTES > len(raw):
        raise _invalid(f"{len(raw)} bytes cannot be {header.record_count} records")
    return ProducedBatch(header, read_records(header, raw))


def check_header(records: Buffer | None, *, api_version: int) -> BatchHeader:
    """Check everything that can be known without decompressing, including the checksum. Raises BadBatch."""
    if not records:
        raise _invalid("no record batch")
    if len(records) > _MAGIC_AT and records[_MAGIC_AT] != MAGIC:
        raise _invalid(f"records of format {records[_MAGIC_AT]}; only format 2 is accepted")
    if len(records) < HEADER_BYTES:
        raise BadBatch(ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes are no record batch")
    header = read_header(records)
    if HEADER_BYTES <= header.size < len(records):
        raise _invalid("more than one record batch for a partition")
    if header.size != len(records):
        raise BadBatch(ErrorCode.CORRUPT_MESSAGE, f"a batch of {header.size} bytes in {len(records)}")
    if google_crc32c.value(bytes(memoryview(records)[CHECKSUM_END:])) != header.crc:
        raise BadBatch(ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch is wrong")
    if header.compression > max(BatchCompression):
        raise BadBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression {header.compression}")
    if header.compression == BatchCompression.ZSTD and api_version < _ZSTD_SINCE:
        raise BadBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd in version {api_version} of Produce")
    _check_kind(header)
    return header


def _check_kind(header: BatchHeader) -> None:
    if header.is_control:
        raise _invalid("a control batch, which only brokers write")
    if header.is_transactional:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        raise BadBatch(code, "a batch of a transaction; transactions are not offered")
    if header.record_count > MAX_RECORDS:
        raise BadBatch(ErrorCode.MESSAGE_TOO_LARGE, f"{header.record_count} records in one batch")
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise _invalid(f"{header.record_count} records end at offset delta {header.last_offset_delta}")
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise _invalid("a producer id without an epoch or a sequence number")


def _invalid(message: str) -> BadBatch:
    return BadBatch(ErrorCode.INVALID_RECORD, message)


def read_records(header: BatchHeader, raw: bytes) -> Iterator[Record]:
    """The records in decompressed bytes. Raises BadBatch unless they fill them and number from 0 on."""
    at, base = 0, header.base_timestamp
    for number in range(header.record_count):
        size, at = read_zigzag(raw, at)
        end = at + size
        if size < 0 or end > len(raw):
            raise _invalid(f"record {number} passes the end of the batch")
        # The attributes of a record have no meaning yet.
        timestamp_delta, at = read_zigzag(raw, at + 1)
        offset_delta, at = read_zigzag(raw, at)
        if offset_delta != number:
            raise _invalid(f"record {number} has the offset delta {offset_delta}")
        key, at = _bytes(raw, at, end)
        value, at = _bytes(raw, at, end)
        headers, at = _headers(raw, at, end)
        if at != end:
            raise _invalid(f"record {number} has not the size that it begins with")
        time = header.max_timestamp if header.is_log_append_time else base + timestamp_delta
        yield Record(key, value, headers, time)
    if at != len(raw):
        raise _invalid(f"{len(raw) - at} bytes follow the last record")


def _bytes(raw: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Bytes with their length; null is -1."""
    size, at = read_zigzag(raw, at)
    if size == -1:
        return None, at
    stop = at + size
    if size < 0 or stop > end:
        raise _invalid(f"{size} bytes at byte {at} pass the end of their record")
    return raw[at:stop], stop


def _headers(raw: bytes, at: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = read_zigzag(raw, at)
    if count == 0:
        return (), at
    # A header has two bytes at least.
    if count < 0 or count * 2 > end - at:
        raise _invalid(f"{count} headers at byte {at} pass the end of their record")
    if count > MAX_FIELDS:
        raise _invalid(f"a record has {count} headers; at most {MAX_FIELDS} are accepted")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _bytes(raw, at, end)
        value, at = _bytes(raw, at, end)
        if name is None:
            raise _invalid("a header without a name")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise _invalid("the name of a header is not UTF-8") from error
    return tuple(headers), at
