"""Varints of record batches: zigzag, so that small negative numbers are short as well.

https://kafka.apache.org/documentation/#record refers to protobuf's encoding. Lengths and deltas of records
are nearly always below 2^17, and a table is several times faster than computing each of them.
"""

from functools import cache

from loghub.kafka.wire.error_codes import ErrorCode
from loghub.kafka.wire.errors import BadBatch

TABLE_SIZE = 1 << 17
_MAX_BYTES = 10


def zigzag(value: int) -> bytes:
    """A signed integer of at most 64 bits as a varint."""
    left = value << 1 if value >= 0 else (-value << 1) - 1
    if 1 << 14 <= left < 1 << 21:  # as the times of logs that lie minutes apart
        return bytes((left & 0x7F | 0x80, left >> 7 & 0x7F | 0x80, left >> 14))
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


@cache
def zigzag_table() -> tuple[bytes, ...]:
    """The varints of 0 to TABLE_SIZE - 1; 6 MB, made when the first batch is."""
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
