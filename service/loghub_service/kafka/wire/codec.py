"""Coders of messages, derived from the annotations of their classes, one for each class and version.

A message is a msgspec struct whose annotations are its description: the order of the fields is their order on
the wire, and each annotation names the type and, if it is not in all versions, the versions
(https://kafka.apache.org/protocol.html#protocol_types). ``Annotated[Int32, since(9)] = -1`` is an int32 that
versions before 9 lack, and that is -1 when it is decoded from one of them.

Consecutive numbers are packed and unpacked in one call, which is most of the work for a Fetch answer with
many partitions. An encoder appends buffers to a list: record batches are passed on unchanged and copied once,
when the frame is joined. Nesting is as deep as the classes are; no input can deepen it.

A `Reader` compares a length with the remaining bytes before anything is allocated, so a frame cannot take
memory in proportion to a length that it only claims. The number of array elements in one frame is bounded as
well, since an element of two bytes becomes an object of a hundred.
"""

import struct
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from loghub_service.kafka.wire.errors import MalformedFrame, UnencodableValue

Buffer = bytes | bytearray | memoryview

# A Metadata answer for 100,000 partitions has about half as many.
MAX_ELEMENTS = 1_000_000
# A request that creates 1,000 topics and assigns 10,000 partitions has 21,000. The event loop decodes an
# element in some microseconds, while all other clients wait: a million took three seconds.
MAX_REQUEST_ELEMENTS = 1 << 15


class Reader:
    """Reads one frame from its begin to its end. ``at`` is the index of the next byte."""

    __slots__ = ("at", "elements_left", "end", "max_elements", "view")

    def __init__(self, frame: Buffer, *, max_elements: int = MAX_ELEMENTS) -> None:
        self.view = memoryview(frame)
        self.at = 0
        self.end = len(self.view)
        self.max_elements = self.elements_left = max_elements

    def take(self, size: int) -> int:
        """Where the next ``size`` bytes begin; the position moves behind them. Raises MalformedFrame."""
        at = self.at
        if size < 0 or at + size > self.end:
            raise MalformedFrame(f"{size} bytes announced at byte {at}, and {self.end - at} are left")
        self.at = at + size
        return at

    def bytes_of(self, size: int) -> memoryview:
        """The next ``size`` bytes, without a copy. Raises MalformedFrame."""
        at = self.take(size)
        return self.view[at : at + size]

    def enter_array(self, count: int, element_size: int) -> None:
        """Check the length of an array whose elements take at least ``element_size`` bytes each.

        Raises MalformedFrame if the bytes left cannot hold it, or the frame has too many elements.
        """
        if count < 0 or count * element_size > self.end - self.at:
            raise MalformedFrame(
                f"an array of {count} elements at byte {self.at} passes the end of the frame"
            )
        self.elements_left -= count
        if self.elements_left < 0:
            raise MalformedFrame(f"more than {self.max_elements} array elements in one frame")

    def finish(self) -> None:
        """Raises MalformedFrame if bytes are left, because then the peer uses another layout."""
        if self.at != self.end:
            raise MalformedFrame(f"{self.end - self.at} bytes follow the message")


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
    """The first version in which a field may be null; without this, a field whose type has None may always be
    null."""

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


_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_NULL_STRING, _NULL = _INT16.pack(-1), _INT32.pack(-1)
_MAX_STRING, _MAX_BYTES = 0x7FFF, 0x7FFF_FFFF


class Coder(NamedTuple):
    """Both directions of one type. ``min_size`` is the least number of bytes that a value takes.

    ``number`` is the format character of a number, and None for everything else.
    """

    encode: Callable[[Any, list[Buffer]], None]
    decode: Callable[[Reader], Any]
    min_size: int
    number: str | None = None


class _Field(NamedTuple):
    """A field in one version."""

    name: str
    coder: Coder


@cache
def coder_of(message: type[Struct], version: int) -> Coder:
    """The coder of a message class in ``version``, made once.

    Encoding raises UnencodableValue, decoding MalformedFrame.
    """
    runs = list(_runs(message, version))
    steps = [_numbers(run) if run[0].coder.number else _single(run[0]) for run in runs]
    encoders, decoders = [encode for encode, _ in steps], [decode for _, decode in steps]

    def encode(value: Any, out: list[Buffer]) -> None:
        try:
            for step in encoders:
                step(value, out)
        except (struct.error, AttributeError, TypeError) as error:
            raise UnencodableValue(f"{message.__name__} in version {version}: {error}") from error

    def decode(reader: Reader) -> Any:
        values: dict[str, Any] = {}
        for step in decoders:
            step(reader, values)
        return message(**values)

    return Coder(encode, decode, sum(field.coder.min_size for run in runs for field in run))


def _runs(message: type[Struct], version: int) -> Iterator[list[_Field]]:
    """The fields of a version in order; consecutive numbers are one run."""
    run: list[_Field] = []
    hints = get_type_hints(message, include_extras=True)
    for name in message.__struct_fields__:
        coder = _coder(hints[name], version)
        if coder is None:
            continue
        if run and not (coder.number and run[-1].coder.number):
            yield run
            run = []
        run.append(_Field(name, coder))
    if run:
        yield run


Encode = Callable[[Any, list[Buffer]], None]
Decode = Callable[[Reader, dict[str, Any]], None]


def _numbers(run: list[_Field]) -> tuple[Encode, Decode]:
    """Consecutive numbers, packed in one call."""
    layout = struct.Struct(">" + "".join(str(field.coder.number) for field in run))
    names = [field.name for field in run]
    get, pack, unpack, size = attrgetter(*names), layout.pack, layout.unpack_from, layout.size

    def encode(value: Any, out: list[Buffer]) -> None:
        out.append(pack(*get(value)))

    def encode_one(value: Any, out: list[Buffer]) -> None:
        out.append(pack(get(value)))

    def decode(reader: Reader, values: dict[str, Any]) -> None:
        at = reader.take(size)
        values.update(zip(names, unpack(reader.view, at), strict=True))

    return (encode if len(run) > 1 else encode_one), decode


def _single(field: _Field) -> tuple[Encode, Decode]:
    name, coder = field
    get, encode_value, decode_value = attrgetter(name), coder.encode, coder.decode

    def encode(value: Any, out: list[Buffer]) -> None:
        encode_value(get(value), out)

    def decode(reader: Reader, values: dict[str, Any]) -> None:
        values[name] = decode_value(reader)

    return encode, decode


# --- one type --------------------------------------------------------------------------------


def _coder(hint: Any, version: int) -> Coder | None:
    """The coder of an annotated field, or None if the version lacks the field."""
    notes: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *annotations = get_args(hint)
        notes = tuple(annotations)
    if not all(note.first <= version <= note.last for note in notes if isinstance(note, Versions)):
        return None
    options = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
    nullable = NoneType in options and all(n.version <= version for n in notes if isinstance(n, NullSince))
    for note in notes:
        if isinstance(note, WireType):
            return _scalar(note, nullable=nullable)
    (plain,) = options - {NoneType}
    if get_origin(plain) is tuple:
        element = _coder(get_args(plain)[0], version)
        assert element is not None
        return _array(element, nullable=nullable)
    assert issubclass(plain, Struct)
    return coder_of(plain, version)


def _scalar(kind: WireType, *, nullable: bool) -> Coder:
    if kind is WireType.STRING:
        return _string(nullable=nullable)
    if kind in (WireType.BYTES, WireType.RECORDS):
        return _bytes(nullable=nullable, copied=kind is WireType.BYTES)
    layout = struct.Struct(">" + kind.value)

    def encode(value: Any, out: list[Buffer]) -> None:
        out.append(layout.pack(value))

    def decode(reader: Reader) -> Any:
        return layout.unpack_from(reader.view, reader.take(layout.size))[0]

    return Coder(encode, decode, layout.size, kind.value)


def _string(*, nullable: bool) -> Coder:
    def encode(value: str | None, out: list[Buffer]) -> None:
        if value is None:
            out.append(_null(_NULL_STRING, nullable=nullable))
            return
        raw = value.encode()
        if len(raw) > _MAX_STRING:
            raise UnencodableValue(f"a string of {len(raw)} bytes is longer than {_MAX_STRING}")
        out += (_INT16.pack(len(raw)), raw)

    def decode(reader: Reader) -> str | None:
        (size,) = _INT16.unpack_from(reader.view, reader.take(2))
        if size == -1 and nullable:
            return None
        raw = reader.bytes_of(size)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedFrame(f"the string before byte {reader.at} is not UTF-8") from error

    return Coder(encode, decode, 2)


def _bytes(*, nullable: bool, copied: bool) -> Coder:
    def encode(value: Buffer | None, out: list[Buffer]) -> None:
        if value is None:
            out.append(_null(_NULL, nullable=nullable))
            return
        if len(value) > _MAX_BYTES:
            raise UnencodableValue(f"{len(value)} bytes are more than {_MAX_BYTES}")
        out += (_INT32.pack(len(value)), value)

    def decode(reader: Reader) -> Buffer | None:
        (size,) = _INT32.unpack_from(reader.view, reader.take(4))
        if size == -1 and nullable:
            return None
        raw = reader.bytes_of(size)
        return bytes(raw) if copied else raw

    return Coder(encode, decode, 4)


def _array(element: Coder, *, nullable: bool) -> Coder:
    encode_element, decode_element, _, number = element
    # Otherwise the bytes left would not bound the length.
    assert element.min_size > 0

    def encode(value: tuple[Any, ...] | None, out: list[Buffer]) -> None:
        if value is None:
            out.append(_null(_NULL, nullable=nullable))
            return
        out.append(_INT32.pack(len(value)))
        if number:
            out.append(struct.pack(f">{len(value)}{number}", *value))
            return
        for item in value:
            encode_element(item, out)

    def decode(reader: Reader) -> tuple[Any, ...] | None:
        (count,) = _INT32.unpack_from(reader.view, reader.take(4))
        if count == -1 and nullable:
            return None
        reader.enter_array(count, element.min_size)
        if number:
            return struct.unpack_from(f">{count}{number}", reader.view, reader.take(count * element.min_size))
        return tuple([decode_element(reader) for _ in range(count)])

    return Coder(encode, decode, 4)


def _null(encoded: bytes, *, nullable: bool) -> bytes:
    if not nullable:
        raise UnencodableValue("null where this version does not allow it")
    return encoded
