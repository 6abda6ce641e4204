"""Coders of messages, derived from the annotations of their classes, one for each class and version.

Numbers that follow each other are packed and unpacked in one call, which is most of the work for a Fetch
answer with many partitions. An encoder appends buffers to a list: record batches are passed on as they are
and copied once, when the frame is joined. Nesting is as deep as the classes are; no input can deepen it.
"""

import struct
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from loghub.kafka.wire.errors import MalformedFrame, UnencodableValue
from loghub.kafka.wire.fields import NullSince, Versions, WireType
from loghub.kafka.wire.reader import Buffer, Reader

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
    """A field as one version has it."""

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
    """The fields of a version in order; numbers that follow each other are one run."""
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
    """Numbers that follow each other, packed at once."""
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
        hint, *found = get_args(hint)
        notes = tuple(found)
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
        for one in value:
            encode_element(one, out)

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
