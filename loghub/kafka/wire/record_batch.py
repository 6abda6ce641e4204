"""Record batches of format 2: building them, and the fields of their header.

https://kafka.apache.org/documentation/#recordbatch. Batches are built tight: the last offset delta is the
number of records less one, so that offsets may leave gaps between batches and none inside
(docs/kafka-protocol.md 4). The checksum begins after the base offset, which can be changed without it.
`record_batch_reader` reads the batches of producers.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import google_crc32c
from msgspec import Struct

from loghub.kafka.wire.batch_compression import BatchCompression
from loghub.kafka.wire.errors import UnencodableValue
from loghub.kafka.wire.reader import Buffer
from loghub.kafka.wire.varint import TABLE_SIZE

MAGIC = 2
# Base offset, length, leader epoch, magic, checksum; then, covered by the checksum: attributes, last offset
# delta, base and maximum timestamp, producer id and epoch, base sequence, number of records.
_PREFIX, _COVERED = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
HEADER_BYTES = _PREFIX.size + _COVERED.size
# The length counts what follows it.
LENGTH_END = 12
CHECKSUM_END = _PREFIX.size
# As many records as one log group can number (docs/kafka-protocol.md 4).
MAX_RECORDS = TABLE_SIZE
# Of one record, headers or members of an object: far more than people use, and few enough for the memory that
# reading the record may take.
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
    """The fields before the records. ``size`` is that of the whole batch in bytes, header included."""

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
    """The header of a batch; nothing is checked but that it is whole. Raises UnencodableValue."""
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

    ``times`` are those of the first and of the youngest record in ms. Raises UnencodableValue.
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
