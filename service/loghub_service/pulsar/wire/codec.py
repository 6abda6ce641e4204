"""Coders of messages, derived from the annotations of their classes, one for each class.

A message is a msgspec struct whose annotations are its description: ``Annotated[UInt64, 3]`` is a uint64 with
the field number 3 (https://protobuf.dev/programming-guides/encoding/, with the messages of
https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/). A field without a default is required. A
field that is None is not written, and every other value is, also if it is the default: Java's clients raise
an error when they read an optional field that is not set, except for the few ``UNSAID`` fields, whose default
is in Pulsar's own description.

Decoding skips fields that the class lacks, and values of an enumeration that it does not know, as protobuf
does. A message of one class inside another is never of a class around it, so that no input can deepen the
recursion. Each field takes an object or a step of the loop, so their number in one frame is bounded; the
length of a text is compared with the bytes that are left before anything is allocated.
"""

import struct
from collections.abc import Callable
from enum import Enum, IntEnum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import fields as fields_of

from loghub.wire.errors import MalformedLogGroup
from loghub.wire.protobuf import BYTES, FIXED32, FIXED64, VARINT, read_varint, tag, varint
from loghub_service.pulsar.wire.errors import MalformedCommand, UnencodableCommand

Buffer = bytes | bytearray | memoryview

# An ACK of 10,000 message ids, the most that a broker accepts, has eight fields for each. The event loop
# decodes as many in about 0.1 s, while everybody waits.
MAX_FIELDS = 1 << 17
_MAX_NUMBER = 2**29 - 1
_64_BITS = (1 << 64) - 1
_INT32_BOUNDS = -(1 << 31), (1 << 31) - 1
_DOUBLE = struct.Struct("<d")


class FieldKind(Enum):
    """How a value is written."""

    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"


class Unsaid(Enum):
    """A note of a field whose default is not written."""

    DEFAULT = "default"


UNSAID = Unsaid.DEFAULT
Int32 = Annotated[int, FieldKind.INT32]
Int64 = Annotated[int, FieldKind.INT64]
UInt32 = Annotated[int, FieldKind.UINT32]
UInt64 = Annotated[int, FieldKind.UINT64]
Bool = Annotated[bool, FieldKind.BOOL]
Double = Annotated[float, FieldKind.DOUBLE]
String = Annotated[str, FieldKind.STRING]
Bytes = Annotated[bytes, FieldKind.BYTES]

M = TypeVar("M", bound=Struct)


def encode(message: Struct) -> bytes:
    """The message in protobuf's encoding. Raises UnencodableCommand."""
    out: list[bytes] = []
    for name, write, unsaid in coder_of(type(message)).writers:
        value = getattr(message, name)
        if value is None or value == unsaid:
            continue
        try:
            write(value, out)
        except (TypeError, AttributeError, ValueError, struct.error) as error:
            raise UnencodableCommand(f"{name} of {type(message).__name__}: {error}") from error
    return b"".join(out)


def decode(message: type[M], body: bytes) -> M:
    """The message that these bytes are. Raises MalformedCommand."""
    return decode_part(message, body, 0, len(body), FieldBudget())


class FieldBudget:
    """How many fields may still come in one frame, or in one batch."""

    __slots__ = ("left", "maximum")

    def __init__(self, maximum: int = MAX_FIELDS) -> None:
        self.left = self.maximum = maximum

    def spend(self) -> None:
        """Raises MalformedCommand."""
        self.left -= 1
        if self.left < 0:
            raise self.exceeded()

    def exceeded(self) -> MalformedCommand:
        return MalformedCommand(f"more than {self.maximum} fields")


def decode_part(message: type[M], body: bytes, at: int, end: int, budget: FieldBudget) -> M:
    """The message that the bytes from ``at`` to ``end`` are. Raises MalformedCommand."""
    coder = coder_of(message)
    numbers, spans = coder.numbers, coder.spans
    values: dict[str, Any] = {}
    try:
        while at < end:
            budget.left -= 1
            if budget.left < 0:
                raise budget.exceeded()
            # Most keys and many numbers have one byte. No call is made for them, since an ACK has many.
            key = body[at]
            if key < 0x80:
                at += 1
            else:
                key, at = read_varint(body, at, end)
            if not 1 <= key >> 3 <= _MAX_NUMBER:
                raise MalformedCommand(f"field number {key >> 3} before byte {at}")
            if key & 7 == VARINT:
                number, at = read_varint(body, at, end)
                if (set_number := numbers.get(key)) is not None:
                    set_number(values, number)
                continue
            start, at = _extent(key & 7, body, at, end)
            if (set_span := spans.get(key)) is not None:
                set_span(values, body, start, at, budget)
    except MalformedLogGroup as error:  # raised by the coder of varints, which log groups share
        raise MalformedCommand(str(error)) from error
    for name in coder.required:
        if name not in values:
            raise MalformedCommand(f"{message.__name__} without {name}")
    for name in coder.repeated:
        if name in values:
            values[name] = tuple(values[name])
    return message(**values)


def _extent(wire_type: int, body: bytes, at: int, end: int) -> tuple[int, int]:
    """Where the value of a field that is no varint begins and ends."""
    if wire_type == BYTES:
        size, start = read_varint(body, at, end)
    elif wire_type in (FIXED32, FIXED64):
        size, start = (4 if wire_type == FIXED32 else 8), at
    else:
        raise MalformedCommand(f"wire type {wire_type} before byte {at}")
    if size > end - start:
        raise MalformedCommand(f"{size} bytes announced at byte {start}, and {end - start} are left")
    return start, start + size


# --- coders ----------------------------------------------------------------------------------

Values = dict[str, Any]
Write = Callable[[Any, list[bytes]], None]
SetNumber = Callable[[Values, int], None]
SetSpan = Callable[[Values, bytes, int, int, FieldBudget], None]


class MessageCoder(NamedTuple):
    """How the fields of a class are written, by name, and read, by the key that precedes each."""

    writers: list[tuple[str, Write, Any]]  # and the value that is not written
    numbers: dict[int, SetNumber]
    spans: dict[int, SetSpan]
    required: list[str]
    repeated: list[str]


class _NumberCoder(NamedTuple):
    """A type that is a varint on the wire. ``value_of`` is None for a number that is no value of it."""

    bounds: tuple[int, int]
    value_of: Callable[[int], Any]


class _SpanCoder(NamedTuple):
    """A type that is bytes on the wire, with their length unless it is a double."""

    bytes_of: Callable[[Any], bytes]
    read: Callable[[bytes, int, int, FieldBudget], Any]
    wire_type: int = BYTES


@cache
def coder_of(message: type[Struct]) -> MessageCoder:
    """The coder of a message class, made once."""
    coder = MessageCoder([], {}, {}, [], [])
    hints = get_type_hints(message, include_extras=True)
    for field in fields_of(message):
        name = field.name
        number, repeated, value = _described(hints[name])
        if field.required:
            coder.required.append(name)
        if repeated:
            coder.repeated.append(name)
        if isinstance(value, _NumberCoder):
            key = number << 3 | VARINT
            write = _number_writer(tag(number, VARINT), value.bounds)
            coder.numbers[key] = _number_setter(name, value.value_of, repeated=repeated)
            if repeated:
                coder.spans[number << 3 | BYTES] = _packed_setter(name, value.value_of)
        else:
            key = number << 3 | value.wire_type
            write = _span_writer(tag(number, value.wire_type), value)
            coder.spans[key] = _span_setter(name, value, repeated=repeated)
        unsaid = field.default if UNSAID in get_args(hints[name]) else None
        coder.writers.append((name, _for_each(write) if repeated else write, unsaid))
    return coder


def _described(hint: Any) -> tuple[int, bool, _NumberCoder | _SpanCoder]:
    """The number of an annotated field, whether the field is repeated, and the coder of its values."""
    plain, *notes = get_args(hint)
    if get_origin(plain) in (Union, UnionType):
        (plain,) = set(get_args(plain)) - {NoneType}
    repeated = get_origin(plain) is tuple
    if repeated:
        plain = get_args(plain)[0]
    if get_origin(plain) is Annotated:
        plain, *inner = get_args(plain)
        notes += inner
    (number,) = (note for note in notes if isinstance(note, int))
    kinds = [note for note in notes if isinstance(note, FieldKind)]
    if kinds:
        return number, repeated, _SCALARS[kinds[0]]
    if issubclass(plain, IntEnum):
        return number, repeated, _NumberCoder(_INT32_BOUNDS, _member_of(plain))
    return number, repeated, _SpanCoder(partial(_encode_as, plain), partial(decode_part, plain))


def _encode_as(message: type[Struct], value: Any) -> bytes:
    if type(value) is not message:
        raise TypeError(f"{type(value).__name__} where {message.__name__} belongs")
    return encode(value)


def _content(value: Any) -> bytes:
    """The bytes of a value. Refuses a number, of which `bytes` would make as many zeros."""
    return value if type(value) is bytes else bytes(memoryview(value))


def _signed(bits: int) -> _NumberCoder:
    """A negative number is written in two's complement of 64 bits; who reads 32 drops the upper half."""
    half, mask = 1 << bits - 1, (1 << bits) - 1
    return _NumberCoder((-half, half - 1), lambda number: ((number & mask) ^ half) - half)


def _unsigned(bits: int) -> _NumberCoder:
    mask = (1 << bits) - 1
    return _NumberCoder((0, mask), lambda number: number & mask)


def _text(body: bytes, at: int, end: int, budget: FieldBudget) -> str:  # noqa: ARG001 - as all readers
    try:
        return str(body[at:end], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedCommand(f"the text at byte {at} is not UTF-8") from error


_SCALARS: dict[FieldKind, _NumberCoder | _SpanCoder] = {
    FieldKind.INT32: _signed(32),
    FieldKind.INT64: _signed(64),
    FieldKind.UINT32: _unsigned(32),
    FieldKind.UINT64: _unsigned(64),
    FieldKind.BOOL: _NumberCoder((0, 1), bool),
    FieldKind.DOUBLE: _SpanCoder(
        _DOUBLE.pack, lambda body, at, end, _: _DOUBLE.unpack(body[at:end])[0], FIXED64
    ),
    FieldKind.STRING: _SpanCoder(str.encode, _text),
    FieldKind.BYTES: _SpanCoder(_content, lambda body, at, end, _: body[at:end]),
}


def _member_of(members: type[IntEnum]) -> Callable[[int], IntEnum | None]:
    by_number = {int(member): member for member in members}
    return by_number.get


def _number_writer(key: bytes, bounds: tuple[int, int]) -> Write:
    least, greatest = bounds

    def write(value: Any, out: list[bytes]) -> None:
        if not least <= value <= greatest:
            raise UnencodableCommand(f"{value} is not between {least} and {greatest}")
        out += (key, varint(value & _64_BITS))

    return write


def _span_writer(key: bytes, coder: _SpanCoder) -> Write:
    bytes_of, sized = coder.bytes_of, coder.wire_type == BYTES

    def write(value: Any, out: list[bytes]) -> None:
        content = bytes_of(value)
        out += (key, varint(len(content)), content) if sized else (key, content)

    return write


def _for_each(write: Write) -> Write:
    def write_all(values: Any, out: list[bytes]) -> None:
        for value in values:
            write(value, out)

    return write_all


def _number_setter(name: str, value_of: Callable[[int], Any], *, repeated: bool) -> SetNumber:
    def set_value(values: Values, number: int) -> None:
        value = value_of(number)
        if value is not None:
            values[name] = value

    def append(values: Values, number: int) -> None:
        value = value_of(number)
        if value is not None:
            values.setdefault(name, []).append(value)

    return append if repeated else set_value


def _packed_setter(name: str, value_of: Callable[[int], Any]) -> SetSpan:
    """A repeated number may come as many fields, or as one with all of them."""
    append = _number_setter(name, value_of, repeated=True)

    def set_all(values: Values, body: bytes, at: int, end: int, budget: FieldBudget) -> None:
        while at < end:
            budget.spend()
            number, at = read_varint(body, at, end)
            append(values, number)

    return set_all


def _span_setter(name: str, coder: _SpanCoder, *, repeated: bool) -> SetSpan:
    read = coder.read

    def set_value(values: Values, body: bytes, at: int, end: int, budget: FieldBudget) -> None:
        values[name] = read(body, at, end, budget)

    def append(values: Values, body: bytes, at: int, end: int, budget: FieldBudget) -> None:
        values.setdefault(name, []).append(read(body, at, end, budget))

    return append if repeated else set_value
