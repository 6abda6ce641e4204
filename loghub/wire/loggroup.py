"""LogGroup and LogGroupList: values, bytes, and lists of groups (docs/sls-protocol.md 3).

Producers encode; tools and tests decode. The service puts stored groups into a list and the readers extract
them, in both cases without changing the bytes of a group. Code that makes rows or records reads a group as
`RawLog`, by `raw_logs` and `read_group`. `loggroup_validation` has the faster check that PutLogs uses.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from loghub.wire.errors import MalformedLogGroup, TooLarge
from loghub.wire.protobuf import (
    BYTES,
    FIXED32,
    VARINT,
    Buffer,
    delimited,
    fields,
    read_field,
    read_varint,
    tag,
    varint,
)

Text = str | bytes

MAX_PULL_BYTES = 64 << 20  # 10 MB is usual, and the last group may exceed it (docs/sls-protocol.md 5)

# The field numbers of Log, Content, LogGroup and LogTag in SLS's sls_logs.proto.
_TIME, _CONTENTS, _TIME_NS = tag(1, VARINT), tag(2, BYTES), tag(4, FIXED32)
_KEY, _VALUE = tag(1, BYTES), tag(2, BYTES)
_LOGS, _LOG_TAGS = tag(1, BYTES), tag(6, BYTES)
_CATEGORY, _TOPIC, _SOURCE, _MACHINE_UUID = (tag(n, BYTES) for n in (2, 3, 4, 5))
_GROUPS = tag(1, BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One log. ``time`` is in unix seconds; ``time_ns`` is the part below a second, or None if unknown.

    Keys and values can be passed as str or bytes. A decoded log has str keys and bytes values, since a
    value need not be text.
    """

    time: int
    contents: tuple[tuple[Text, Text], ...]
    time_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroup:
    """The unit that one PutLogs call writes; it is stored, pulled and addressed by a cursor as a whole."""

    logs: tuple[Log, ...]
    topic: str = ""
    source: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    category: str = ""
    machine_uuid: str = ""


def encode(group: LogGroup) -> bytes:
    """The serialized group. Raises MalformedLogGroup for a time that is out of range."""
    parts = [delimited(_LOGS, _encode_log(log)) for log in group.logs]
    texts = (
        (_CATEGORY, group.category),
        (_TOPIC, group.topic),
        (_SOURCE, group.source),
        (_MACHINE_UUID, group.machine_uuid),
    )
    parts += [delimited(key, text.encode()) for key, text in texts if text]
    parts += [delimited(_LOG_TAGS, _encode_pair(key, value)) for key, value in group.tags]
    return b"".join(parts)


def append_log(group: bytearray, log: Log) -> None:
    """Append a log to a serialized group. Raises MalformedLogGroup for a time that is out of range."""
    group += delimited(_LOGS, _encode_log(log))


def _encode_log(log: Log) -> bytes:
    if not 0 <= log.time <= 0xFFFF_FFFF:
        raise MalformedLogGroup(f"time {log.time} is not unix seconds of 32 bits")
    parts = [_TIME, varint(log.time)]
    for key, value in log.contents:
        pair = _encode_pair(key, value)
        parts += (_CONTENTS, varint(len(pair)), pair)
    if log.time_ns is not None:
        if not 0 <= log.time_ns < 1_000_000_000:
            raise MalformedLogGroup(f"time_ns {log.time_ns} is not below one second")
        parts += [_TIME_NS, log.time_ns.to_bytes(4, "little")]
    return b"".join(parts)


def _encode_pair(key: Text, value: Text) -> bytes:
    key, value = _bytes(key), _bytes(value)
    return b"".join((_KEY, varint(len(key)), key, _VALUE, varint(len(value)), value))


def _bytes(text: Text) -> bytes:
    return text.encode() if isinstance(text, str) else text


def decode(body: Buffer) -> LogGroup:
    """The whole group as values. Raises MalformedLogGroup. Meant for tools and tests, not for speed."""
    view = memoryview(body)
    logs: list[Log] = []
    tags: list[tuple[str, str]] = []
    texts = dict.fromkeys((2, 3, 4, 5), "")
    for number, wire_type, start, stop in fields(view, 0, len(view)):
        if number > 6:
            continue
        _expect(wire_type, BYTES, number)
        if number == 1:
            logs.append(_decode_log(view[start:stop]))
        elif number == 6:
            key, value = _decode_pair(view[start:stop])
            tags.append((key, _text(value)))
        else:
            texts[number] = _text(view[start:stop])
    return LogGroup(
        logs=tuple(logs),
        topic=texts[3],
        source=texts[4],
        tags=tuple(tags),
        category=texts[2],
        machine_uuid=texts[5],
    )


def _decode_log(view: memoryview) -> Log:
    time: int | None = None
    time_ns: int | None = None
    contents: list[tuple[Text, Text]] = []
    for number, wire_type, start, stop in fields(view, 0, len(view)):
        if number == 1:
            _expect(wire_type, VARINT, number)
            time = read_varint(view, start, stop)[0]
        elif number == 2:
            _expect(wire_type, BYTES, number)
            contents.append(_decode_pair(view[start:stop]))
        elif number == 4:
            _expect(wire_type, FIXED32, number)
            time_ns = int.from_bytes(view[start:stop], "little")
    if time is None or time > 0xFFFF_FFFF:
        raise MalformedLogGroup("a log has no time of 32 bits")
    return Log(time=time, contents=tuple(contents), time_ns=time_ns)


def _decode_pair(view: memoryview) -> tuple[str, bytes]:
    key: str | None = None
    value: bytes | None = None
    for number, wire_type, start, stop in fields(view, 0, len(view)):
        if number == 1:
            _expect(wire_type, BYTES, number)
            key = _text(view[start:stop])
        elif number == 2:
            _expect(wire_type, BYTES, number)
            value = bytes(view[start:stop])
    if key is None or value is None:
        raise MalformedLogGroup("a pair lacks its key or its value")
    return key, value


def _expect(wire_type: int, expected: int, number: int) -> None:
    if wire_type != expected:
        raise MalformedLogGroup(f"field {number} has wire type {wire_type}, not {expected}")


def _text(raw: Buffer) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedLogGroup(f"{bytes(raw[:100])!r} is not UTF-8") from error


def cut(body: bytes, *, maximum: int, max_bytes: int | None = None) -> list[tuple[bytes, int]]:
    """A valid group as groups of at most ``maximum`` logs, each with the number of its logs.

    The logs keep their order, and each part has the topic, the tags and all other fields of the group. Raises
    TooLarge if the parts together have more than ``max_bytes``.
    """
    logs: list[bytes] = []
    rest: list[bytes] = []
    begin = 0
    for number, _, _, stop in fields(body, 0, len(body)):
        (logs if number == 1 else rest).append(body[begin:stop])
        begin = stop
    parts = [logs[first : first + maximum] for first in range(0, len(logs), maximum)]
    total = len(body) + (len(parts) - 1) * sum(map(len, rest))
    if max_bytes is not None and total > max_bytes:
        raise TooLarge(
            f"{len(logs)} logs are stored as {len(parts)} groups with the topic and tags of this one, which"
            f" have more than {max_bytes} bytes together; send at most {maximum} logs in a group"
        )
    return [(b"".join((*part, *rest)), len(part)) for part in parts]


# --- groups as they are, for rows and records ------------------------------------------------

RawPair = tuple[bytes, bytes]
_TIME_TAG, _CONTENTS_TAG, _KEY_TAG, _VALUE_TAG = _TIME[0], _CONTENTS[0], _KEY[0], _VALUE[0]
_MAX_TIME = 0xFFFF_FFFF  # readers of protobuf drop higher bits
_MIN_CONTENT_BYTES = 6  # tag and length of it, of its key and of its value
_MIN_LONG_CONTENT_BYTES = 131  # one with a length of two bytes
_TIME_NS_TAG, _TIME_NS_BYTES = _TIME_NS[0], 4


class RawLog(NamedTuple):
    """A log whose texts are still bytes. A missing field is empty, or 0, and of a field that occurs twice the
    last value counts, as in other readers of protobuf."""

    time: int
    time_ns: int | None
    contents: list[RawPair]


class RawLogGroup(NamedTuple):
    """A log group whose texts are still bytes, with the rules of `RawLog` for missing and repeated fields."""

    logs: list[RawLog]
    topic: bytes
    source: bytes
    tags: list[RawPair]


def read_group(group: bytes) -> RawLogGroup:
    """The fields of a stored log group. Raises MalformedLogGroup."""
    logs: list[RawLog] = []
    tags: list[RawPair] = []
    topic = source = b""
    for number, wire_type, start, stop in fields(group, 0, len(group)):
        if number not in (1, 3, 4, 6):
            continue
        _expect(wire_type, BYTES, number)
        if number == 1:
            logs.append(_read_log(group, start, stop))
        elif number == 6:
            tags.append(_read_pair(group, start, stop))
        elif number == 3:
            topic = group[start:stop]
        else:
            source = group[start:stop]
    return RawLogGroup(logs, topic, source, tags)


def raw_logs(group: bytes) -> Iterator[RawLog]:
    """The logs of a stored log group, one after the other. Raises MalformedLogGroup."""
    for number, wire_type, start, stop in fields(group, 0, len(group)):
        if number == 1:
            _expect(wire_type, BYTES, number)
            yield _read_log(group, start, stop)


def _read_log(group: bytes, at: int, end: int) -> RawLog:
    time, time_ns = 0, None
    contents: list[RawPair] = []
    while at < end:
        # The usual content: key, then value, no other field, every length in one byte, or in two. No step is
        # made for each of its fields, which would double the time that a reader in Python takes.
        if group[at] == _CONTENTS_TAG:
            if (
                end - at >= _MIN_CONTENT_BYTES
                and (size := group[at + 1]) < 0x80
                and (stop := at + 2 + size) <= end
                and group[at + 2] == _KEY_TAG
                and (value := at + 4 + group[at + 3]) + 2 <= stop
                and group[value] == _VALUE_TAG
                and group[value + 1] == stop - value - 2
            ):
                contents.append((group[at + 4 : value], group[value + 2 : stop]))
                at = stop
                continue
            if (
                end - at >= _MIN_LONG_CONTENT_BYTES
                and group[at + 1] >= 0x80 > group[at + 2]
                and (stop := at + 3 + (group[at + 1] & 0x7F | group[at + 2] << 7)) <= end
                and group[at + 3] == _KEY_TAG
                and group[at + 4] < 0x80
                and (value := at + 5 + group[at + 4]) + 3 <= stop
                and group[value] == _VALUE_TAG
                and group[value + 1] >= 0x80 > group[value + 2]
                and group[value + 1] & 0x7F | group[value + 2] << 7 == stop - value - 3
            ):
                contents.append((group[at + 5 : value], group[value + 3 : stop]))
                at = stop
                continue
        if group[at] == _TIME_TAG:
            time, at = read_varint(group, at + 1, end)
            continue
        if group[at] == _TIME_NS_TAG and end - at > _TIME_NS_BYTES:
            time_ns = int.from_bytes(group[at + 1 : at + 1 + _TIME_NS_BYTES], "little")
            at += 1 + _TIME_NS_BYTES
            continue
        number, wire_type, start, at = read_field(group, at, end)
        if number == 2:
            _expect(wire_type, BYTES, number)
            contents.append(_read_pair(group, start, at))
        elif number == 1:
            _expect(wire_type, VARINT, number)
            time, _ = read_varint(group, start, at)
        elif number == 4:
            _expect(wire_type, FIXED32, number)
            time_ns = int.from_bytes(group[start:at], "little")
    return RawLog(time & _MAX_TIME, time_ns, contents)


def _read_pair(group: bytes, at: int, end: int) -> RawPair:
    key = value = b""
    for number, wire_type, start, stop in fields(group, at, end):
        if number > 2:
            continue
        _expect(wire_type, BYTES, number)
        if number == 1:
            key = group[start:stop]
        else:
            value = group[start:stop]
    return key, value


# --- lists of groups -------------------------------------------------------------------------


def list_header(size: int) -> bytes:
    """The bytes that precede a group of ``size`` bytes in a list."""
    return _GROUPS + varint(size)


def wrap(groups: Iterable[Buffer]) -> bytes:
    """The serialized LogGroupList that contains these groups, with their bytes unchanged."""
    parts: list[Buffer] = []
    for group in groups:
        parts += (list_header(len(group)), group)
    return b"".join(parts)


def split(body: Buffer) -> Iterator[memoryview]:
    """The groups of a LogGroupList, each a view of its own bytes. Raises MalformedLogGroup."""
    view = memoryview(body)
    for number, wire_type, start, stop in fields(view, 0, len(view)):
        if number != 1:
            continue
        _expect(wire_type, BYTES, number)
        yield view[start:stop]
