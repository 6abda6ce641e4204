"""The types of the protocol's fields, and from which version to which a field exists.

A message is a msgspec struct whose annotations are its description: the order of the fields is their order
on the wire, and each annotation names the type and, if it is not in all versions, the versions
(https://kafka.apache.org/protocol.html#protocol_types). ``Annotated[Int32, since(9)] = -1`` is an int32
that versions before 9 lack, and that is -1 when it is decoded from one of them.
"""

from enum import Enum
from typing import Annotated, NamedTuple

from loghub.kafka.wire.reader import Buffer


class WireType(Enum):
    """How a field is written; for numbers the format character of Python's `struct`."""

    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    BOOL = "?"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"


class Versions(NamedTuple):
    """The versions in which a field exists, both ends included."""

    first: int = 0
    last: int = 0x7FFF


class NullSince(NamedTuple):
    """The first version in which a field may be null; without it, one whose type has None always may be."""

    version: int


def since(version: int) -> Versions:
    """A field that was added in ``version``."""
    return Versions(first=version)


def until(version: int) -> Versions:
    """A field that ``version`` is the last to have."""
    return Versions(last=version)


def between(first: int, last: int) -> Versions:
    """A field that ``first`` added and that ``last`` is the last to have."""
    return Versions(first, last)


Int8 = Annotated[int, WireType.INT8]
Int16 = Annotated[int, WireType.INT16]
Int32 = Annotated[int, WireType.INT32]
Int64 = Annotated[int, WireType.INT64]
Bool = Annotated[bool, WireType.BOOL]
# At most 32,767 bytes of UTF-8.
String = Annotated[str, WireType.STRING]
NullableString = Annotated[str | None, WireType.STRING]
Bytes = Annotated[bytes, WireType.BYTES]
# Record batches one after the other. A decoded message has a view of the frame, so nothing is copied.
Records = Annotated[Buffer | None, WireType.RECORDS]
