"""The record batches of producers: checked, decompressed within bounds, and read record by record.

Each error code is the one that a Kafka broker answers in that case, since producers decide by it whether
they send the batch again, split it, or give up (docs/kafka-protocol.md 4).
"""

from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

from loghub.kafka.wire.batch_compression import BatchCompression, decompress
from loghub.kafka.wire.error_codes import ErrorCode
from loghub.kafka.wire.errors import BadBatch
from loghub.kafka.wire.reader import Buffer
from loghub.kafka.wire.record_batch import (
    CHECKSUM_END,
    HEADER_BYTES,
    MAGIC,
    MAX_FIELDS,
    MAX_RECORDS,
    BatchHeader,
    Record,
    read_header,
)
from loghub.kafka.wire.varint import read_zigzag

# Where the magic byte is in every format, and the shortest batch that has one.
_MAGIC_AT = 16
# Length, attributes, two deltas, null key, null value, no headers: a byte each.
_MIN_RECORD_BYTES = 7
# zstd came with version 7 of Produce (KIP-110).
_ZSTD_SINCE = 7


class ProducedBatch(NamedTuple):
    """A batch of which the header passed every check. Its records are checked as they are read, one by one:
    a list of them would take fifty times the memory of small ones."""

    header: BatchHeader
    records: Iterator[Record]


def read_produced(records: Buffer | None, *, api_version: int, max_bytes: int) -> ProducedBatch:
    """The one batch that a partition of a Produce request has, with its records.

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
    """Everything that can be known without decompressing, the checksum included. Raises BadBatch."""
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
