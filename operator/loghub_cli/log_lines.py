"""Logs as lines of text: from bytes to lines, from a line to a log, and from a log back to a line. Pure.

A plain line is the value of one field. A JSON line is one object: its members are the fields, as they are
written, and the names that SLS gives to the rest of a log (``__time__``, ``__time_ns__``, ``__topic__``,
``__source__``, ``__tag__:NAME``) are not fields. `pull` and `tail` print such objects, so their output can
be written again. A field that has such a name is printed as ``__field__:NAME``, and read so.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from loghub.wire.json_object import Members, NotAnObject, members_of
from loghub.wire.loggroup import Log, LogGroup
from loghub_cli.output import on_one_line, utc

MAX_VALUE_BYTES = 1 << 20  # what SLS takes as one value
MAX_JSON_LINE_BYTES = 8 << 20  # the largest log group of `--batch-mib`
PLAIN_FIELD = "line"  # of a line that is no JSON, unless `put --field` names another one
_TAG, _FIELD = "__tag__:", "__field__:"
_PLACE = ("__shard__", "__cursor__", "__index__")  # where a log was; it gets a new place
_RESERVED = frozenset((*_PLACE, "__time__", "__time_ns__", "__topic__", "__source__"))
_MAX_TIME_S = 0xFFFF_FFFF  # the time of a log has 32 bits
_SURROGATE = re.compile("[\ud800-\udfff]")


class BadLine(ValueError):  # noqa: N818 - says what is wrong
    """A line that is not a log; ``number`` counts from 1."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"line {number} {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line without its line end; ``number`` counts from 1. A line that is too long comes in pieces, and is
    ``too_long`` in each; only the first one ``begins``."""

    number: int
    data: bytes
    too_long: bool = False
    begins: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesOrigin:
    """What the logs of one log group share."""

    topic: str = ""
    source: str = ""
    tags: tuple[tuple[str, str], ...] = ()


class LineNumbers:
    """Counts the lines of all texts of an input."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last


class LineBuffer:
    """Bytes in, complete lines out, without their line ends (LF or CR LF). It holds less than one line, and
    at most ``most_bytes`` of it."""

    def __init__(self, max_bytes: int = MAX_VALUE_BYTES, numbers: LineNumbers | None = None) -> None:
        self._most = max_bytes
        self._numbers = numbers or LineNumbers()
        self._rest = b""
        self._long: int | None = None  # the number of the line of which pieces are out

    def add(self, data: bytes) -> Iterator[Line]:
        """The lines that ``data`` completes, and the complete pieces of one that is too long."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield from self._line(line.removesuffix(b"\r"))
        while len(self._rest) > self._most + 1:  # its last byte may be half of a line end
            piece, self._rest = _cut(self._rest, self._most)
            yield self._piece(piece)

    def end(self) -> Iterator[Line]:
        """The last line, if the text does not end with a line end."""
        rest, self._rest = self._rest, b""
        if rest or self._long is not None:
            yield from self._line(rest.removesuffix(b"\r"))

    def _line(self, data: bytes) -> Iterator[Line]:
        while len(data) > self._most:
            piece, data = _cut(data, self._most)
            yield self._piece(piece)
        if self._long is None:
            yield Line(number=self._numbers.next(), data=data)
            return
        if data:
            yield self._piece(data)
        self._long = None

    def _piece(self, data: bytes) -> Line:
        begins = self._long is None
        if self._long is None:
            self._long = self._numbers.next()
        return Line(number=self._long, data=data, too_long=True, begins=begins)


def _cut(data: bytes, maximum: int) -> tuple[bytes, bytes]:
    """The first bytes and the rest, not within a character of UTF-8."""
    at = maximum
    while at > maximum - 4 and data[at] & 0xC0 == 0x80:
        at -= 1
    at = maximum if data[at] & 0xC0 == 0x80 else at
    return data[:at], data[at:]


def plain_log(line: Line, *, field: str, now_unix_s: float) -> Log:
    """The line as one field; bytes that are not UTF-8 are written as ``\\xNN``."""
    return Log(time=int(now_unix_s), contents=((field, line.data.decode(errors="backslashreplace")),))


def raw_logs(line: Line, *, field: str, now_unix_s: float) -> Iterator[Log]:
    """The line or piece whole, in as many logs as its length needs."""
    data = line.data
    while len(data) > MAX_VALUE_BYTES:
        piece, data = _cut(data, MAX_VALUE_BYTES)
        yield plain_log(Line(number=line.number, data=piece), field=field, now_unix_s=now_unix_s)
    yield plain_log(Line(number=line.number, data=data), field=field, now_unix_s=now_unix_s)


def reject_too_long(line: Line, max_bytes: int) -> None:
    """Raises `BadLine`."""
    if line.too_long:
        raise BadLine(line.number, f"has more than {max_bytes} bytes")


def json_log(line: Line, default: LinesOrigin, *, now_unix_s: float) -> tuple[Log, LinesOrigin]:
    """The log of a JSON object, and what it says of its log group. Raises `BadLine`."""
    try:
        members = members_of(line.data)
    except NotAnObject as error:
        raise BadLine(line.number, str(error)) from None
    about = {name: value for name, value in members if name in _RESERVED}
    tags = [(name.removeprefix(_TAG), _text(value)) for name, value in members if name.startswith(_TAG)]
    time_ns = about.get("__time_ns__", b"null")
    log = Log(
        time=_number(about.get("__time__", b"%d" % int(now_unix_s)), line, "__time__", _MAX_TIME_S),
        time_ns=None if time_ns == b"null" else _number(time_ns, line, "__time_ns__", 999_999_999),
        contents=tuple(_fields(members, line)),
    )
    origin = LinesOrigin(
        topic=_text(about.get("__topic__", default.topic)),
        source=_text(about.get("__source__", default.source)),
        tags=tuple(tags) or default.tags,
    )
    return log, origin


def _fields(members: Members, line: Line) -> Iterator[tuple[str, str]]:
    for name, value in members:
        if name in _RESERVED or name.startswith(_TAG):
            continue
        text = _text(value)
        if len(text) > MAX_VALUE_BYTES // 4 and len(text.encode()) > MAX_VALUE_BYTES:
            raise BadLine(line.number, f"has a value of more than {MAX_VALUE_BYTES} bytes, in {name[:80]!r}")
        yield _text(name).removeprefix(_FIELD), text


def _number(value: str | bytes, line: Line, name: str, maximum: int) -> int:
    text = _text(value)
    if not (text.isascii() and text.isdigit() and int(text[:20]) <= maximum):
        raise BadLine(
            line.number, f"must have a {name} that is a whole number from 0 to {maximum}, not {text[:40]}"
        )
    return int(text)


def _text(value: str | bytes) -> str:
    """A field is text; any other value of JSON is what is written."""
    text = value if isinstance(value, str) else value.decode()
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedPlace:
    """Where a log is: its shard, the cursor of its log group, and its number in that."""

    shard: int
    cursor: str
    index: int


def as_members(log: Log, group: LogGroup, place: PrintedPlace) -> list[tuple[str, object]]:
    """The log as the members of a JSON object; a field that occurs twice is there twice."""
    members: list[tuple[str, object]] = [("__time__", log.time)]
    if log.time_ns is not None:
        members.append(("__time_ns__", log.time_ns))
    members += [("__topic__", group.topic), ("__source__", group.source)]
    members += [(f"{_TAG}{key}", value) for key, value in group.tags]
    members += [("__shard__", place.shard), ("__cursor__", place.cursor), ("__index__", place.index)]
    return members + [(_field_name(_string(key)), _string(value)) for key, value in log.contents]


def _field_name(name: str) -> str:
    """A field is not taken for what SLS says of a log."""
    return _FIELD + name if name in _RESERVED or name.startswith((_TAG, _FIELD)) else name


def as_json(members: list[tuple[str, object]]) -> str:
    """One line. A reader that keeps one value of a key keeps the last."""
    pairs = (
        f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in members
    )
    return "{" + ", ".join(pairs) + "}"


def as_line(log: Log, place: PrintedPlace) -> str:
    """The log for people: time, shard, and its fields; of a plain line, the line."""
    fields = [(_string(key), _string(value)) for key, value in log.contents]
    is_plain = [key for key, _ in fields] == [PLAIN_FIELD]
    text = fields[0][1] if is_plain else "  ".join(f"{key}={value}" for key, value in fields)
    return f"{utc(log.time)}  {place.shard}  {on_one_line(text)}"


def value_of(log: Log, field: str) -> bytes | None:
    """The value of one field, as it is, the last one if it occurs twice; None if the log has no such
    field."""
    values = [value for key, value in log.contents if _string(key) == field]
    if not values:
        return None
    return values[-1].encode() if isinstance(values[-1], str) else values[-1]


def _string(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode(errors="backslashreplace")
