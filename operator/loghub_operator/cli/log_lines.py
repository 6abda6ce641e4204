"""Logs as lines of text: from bytes to lines, from a line to a log, and from a log back to a line. Pure.

A plain line is the value of one field. A JSON line is one object: its members are the fields, and the names
that SLS gives to the rest of a log (``__time__``, ``__time_ns__``, ``__topic__``, ``__source__``,
``__tag__:NAME``) are not fields. `pull` and `tail` print such objects, so their output can be written again.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from loghub.wire.loggroup import Log, LogGroup
from loghub_operator.cli.output import on_one_line, utc

MAX_LINE_BYTES = 1 << 20  # what SLS takes as one value
_TAG = "__tag__:"
_PLACE = ("__shard__", "__cursor__", "__index__")  # where a log was; it gets a new place
_MAX_TIME_S = 0xFFFF_FFFF
_SURROGATE = re.compile("[\ud800-\udfff]")


class BadLine(ValueError):  # noqa: N818 - says what is wrong
    """A line that is not a log; ``number`` counts from 1."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"line {number} {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line without its line end; ``number`` counts from 1."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What the logs of one log group share."""

    topic: str = ""
    source: str = ""
    tags: tuple[tuple[str, str], ...] = ()


class LineBuffer:
    """Bytes in, complete lines out, without their line ends (LF or CR LF). It holds less than one line."""

    def __init__(self) -> None:
        self._rest = b""
        self._number = 0

    def add(self, data: bytes) -> Iterator[Line]:
        """The lines that ``data`` completes. Raises `BadLine` beyond `MAX_LINE_BYTES`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield self._line(line)
        if len(self._rest) > MAX_LINE_BYTES:
            self._line(self._rest)

    def end(self) -> Iterator[Line]:
        """The last line, if the text does not end with a line end."""
        rest, self._rest = self._rest, b""
        if rest:
            yield self._line(rest)

    def _line(self, data: bytes) -> Line:
        self._number += 1
        if len(data) > MAX_LINE_BYTES:
            raise BadLine(self._number, f"has more than {MAX_LINE_BYTES} bytes")
        return Line(number=self._number, data=data.removesuffix(b"\r"))


def plain_log(line: Line, *, field: str, now_unix_s: float) -> Log:
    """The line as one field; bytes that are not UTF-8 are written as ``\\xNN``."""
    return Log(time=int(now_unix_s), contents=((field, line.data.decode(errors="backslashreplace")),))


def json_log(line: Line, default: Origin, *, now_unix_s: float) -> tuple[Log, Origin]:
    """The log of a JSON object, and what it says of its log group. Raises `BadLine`."""
    try:
        members = json.loads(line.data)
    except (ValueError, RecursionError) as error:
        raise BadLine(line.number, f"is not JSON: {error}") from None
    if not isinstance(members, dict):
        raise BadLine(line.number, "is not a JSON object")
    tags = {key.removeprefix(_TAG): _text(members.pop(key)) for key in list(members) if key.startswith(_TAG)}
    for key in _PLACE:
        members.pop(key, None)
    time_ns = members.pop("__time_ns__", None)
    log_time = _number(members.pop("__time__", int(now_unix_s)), line, "__time__", _MAX_TIME_S)
    origin = Origin(
        topic=_text(members.pop("__topic__", default.topic)),
        source=_text(members.pop("__source__", default.source)),
        tags=tuple(tags.items()) or default.tags,
    )
    log = Log(
        time=log_time,
        time_ns=None if time_ns is None else _number(time_ns, line, "__time_ns__", 999_999_999),
        contents=tuple((_text(key), _text(value)) for key, value in members.items()),
    )
    return log, origin


def _number(value: object, line: Line, name: str, most: int) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:20])
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadLine(line.number, f"must have a {name} that is a whole number from 0 to {most}")
    return value


def _text(value: object) -> str:
    """A field is text; any other value of JSON is written as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a log is: its shard, the cursor of its log group, and its number in that."""

    shard: int
    cursor: str
    index: int


def as_record(log: Log, group: LogGroup, place: Place) -> dict[str, object]:
    """The log as a JSON object. Of a field that occurs twice, the last value remains."""
    record: dict[str, object] = {"__time__": log.time}
    if log.time_ns is not None:
        record["__time_ns__"] = log.time_ns
    record |= {"__topic__": group.topic, "__source__": group.source}
    record |= {f"{_TAG}{key}": value for key, value in group.tags}
    record |= {"__shard__": place.shard, "__cursor__": place.cursor, "__index__": place.index}
    return record | {_string(key): _string(value) for key, value in log.contents}


def as_line(log: Log, place: Place) -> str:
    """The log for people: time, shard, and the value of its only field, or all fields."""
    fields = [(_string(key), _string(value)) for key, value in log.contents]
    text = fields[0][1] if len(fields) == 1 else "  ".join(f"{key}={value}" for key, value in fields)
    return f"{utc(log.time)}  {place.shard}  {on_one_line(text)}"


def value_of(log: Log, field: str) -> str | None:
    """The value of one field, as it is; None if the log has no such field."""
    values = (_string(value) for key, value in log.contents if _string(key) == field)
    return next(values, None)


def _string(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode(errors="backslashreplace")
