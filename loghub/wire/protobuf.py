"""The few parts of the protobuf encoding that LogHub's messages need.

A codec written by hand is small, has no generated code, and need not agree on a version with the vendor
SDK's protobuf. It supports only the wire types 0, 1, 2 and 5, because Java's reader knows no others
(docs/sls-protocol.md 3).
"""

from collections.abc import Iterator

from loghub.wire.errors import MalformedLogGroup

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # the wire types of the encoding

Buffer = bytes | memoryview

_ONE_BYTE = tuple(bytes((n,)) for n in range(0x80))
_MAX_VARINT_BYTES = 10  # 64 bits, 7 in each byte
_MAX_FIELD = 2**29 - 1  # 32 bits of a tag, less 3 for the wire type


def varint(value: int) -> bytes:
    """A non-negative integer as a varint."""
    if value < len(_ONE_BYTE):
        return _ONE_BYTE[value]
    if value < 0x4000:  # most lengths
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(field: int, wire_type: int) -> bytes:
    """The key that precedes a field."""
    return varint(field << 3 | wire_type)


def delimited(key: bytes, value: Buffer) -> bytes:
    """A field of wire type 2: key, length, bytes."""
    return b"".join((key, varint(len(value)), value))


def read_varint(body: Buffer, at: int, end: int) -> tuple[int, int]:
    """The varint at ``at`` and the position where it ends, at most ``end``.

    Raises MalformedLogGroup for a varint that is truncated or longer than 64 bits.
    """
    if at < end and body[at] < 0x80:  # most tags and lengths
        return body[at], at + 1
    value = shift = 0
    for i in range(at, min(end, at + _MAX_VARINT_BYTES)):
        byte = body[i]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, i + 1
        shift += 7
    raise MalformedLogGroup(f"a varint at byte {at} is truncated or longer than 64 bits")


def read_field(body: Buffer, at: int, end: int) -> tuple[int, int, int, int]:
    """The field at ``at``: its number, its wire type, where its value begins, and where the field ends.

    The value of a varint must still be read at the third position; a length-delimited value is the
    bytes between the third and the fourth. Raises MalformedLogGroup.
    """
    key, start = read_varint(body, at, end)
    number, wire_type = key >> 3, key & 7
    if not 1 <= number <= _MAX_FIELD:
        raise MalformedLogGroup(f"field number {number} at byte {at}")
    if wire_type == BYTES:
        length, start = read_varint(body, start, end)
        stop = start + length
    elif wire_type == VARINT:
        _, stop = read_varint(body, start, end)
    elif wire_type in (FIXED32, FIXED64):
        stop = start + (4 if wire_type == FIXED32 else 8)
    else:
        raise MalformedLogGroup(f"wire type {wire_type} at byte {at}")
    if stop > end:
        raise MalformedLogGroup(f"field {number} at byte {at} passes the end of its message")
    return number, wire_type, start, stop


def fields(body: Buffer, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """All fields between two positions, in order, as `read_field` returns them."""
    while at < end:
        field = read_field(body, at, end)
        yield field
        at = field[3]
