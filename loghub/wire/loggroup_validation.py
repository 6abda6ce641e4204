"""The validation of a LogGroup before it is stored, without building any object from it.

PutLogs stores the bytes unchanged, and a log group that a client cannot read blocks that client at it
forever, so every byte is checked before the 200. This is the hot path: the native part knows a group as
clients usually write one. Everything else is walked here, where a few index operations recognize the usual
layouts, and all others are parsed field by field.

Rejected with MalformedLogGroup: truncated or overlong lengths, wire types other than the field's own, a
Log without Time, a Content or LogTag without Key or Value, and text that is not UTF-8 (keys, topic,
source and tags, which both implementations of Python's reader decode as text). The values of a log may
be any bytes (docs/sls-protocol.md 3). Unknown fields are accepted.
"""

from loghub.wire import native
from loghub.wire.errors import MalformedLogGroup, TooLarge
from loghub.wire.protobuf import BYTES, FIXED32, fields, read_field, read_varint

# A Log has at least 4 bytes, so 10 MB could hold 2.5 million; the Python SDK stops at 512 000.
MAX_LOGS = 1_000_000

_PADDING = bytes(2 * 0x100 + 8)  # two lengths of one byte, and the bytes around them

# Field numbers, and the keys that precede the usual fields.
_LOGS, _LOG_TAGS = 1, 6
_BYTES_FIELDS = (2, 3, 4, 5, 6)  # Category, Topic, Source, MachineUUID, LogTags
_TIME, _CONTENTS, _TIME_NS = 1, 2, 4
_KEY, _VALUE = 1, 2
_LOGS_TAG, _TIME_TAG, _CONTENTS_TAG, _KEY_TAG, _VALUE_TAG = 0x0A, 0x08, 0x12, 0x0A, 0x12


def scan(body: bytes, *, max_logs: int = MAX_LOGS) -> int:
    """Validate one serialized LogGroup and return the number of its logs.

    Raises MalformedLogGroup, or TooLarge beyond ``max_logs``.
    """
    logs = native.count_logs(body)
    if logs is None:
        return walk(body, max_logs=max_logs)
    if logs > max_logs:
        raise _too_many(max_logs)
    return logs


def walk(body: bytes, *, max_logs: int = MAX_LOGS) -> int:
    """The same validation in Python, for the groups that the native part leaves, and where it is not
    installed."""
    # The padding lets the index operations below read ahead without a bounds check each time; a read
    # past the end is detected by the single comparison of where a message stops.
    return _scan(body + _PADDING, len(body), max_logs)


def _scan(body: bytes, end: int, max_logs: int) -> int:
    at = logs = 0
    while at < end:
        if body[at] != _LOGS_TAG:
            at = _other_field(body, at, end)
            continue
        start, at = _span(body, at + 1, end)
        _scan_log(body, start, at)
        logs += 1
        if logs > max_logs:
            raise _too_many(max_logs)
    return logs


def _too_many(max_logs: int) -> TooLarge:
    return TooLarge(f"more than {max_logs} logs in one group")


def _span(body: bytes, at: int, end: int) -> tuple[int, int]:
    """The begin and end of the bytes whose length is at ``at``; up to 16 KiB without a function call."""
    size, second = body[at], body[at + 1]
    if size < 0x80:
        start = at + 1
    elif second < 0x80:
        start, size = at + 2, size & 0x7F | second << 7
    else:
        size, start = read_varint(body, at, end)
    stop = start + size
    if stop > end:
        raise MalformedLogGroup(f"the {size} bytes announced at byte {at} pass the end of their message")
    return start, stop


def _other_field(body: bytes, at: int, end: int) -> int:
    """Validate a field of the group that is not a well-formed Log, and return where it ends."""
    number, wire_type, start, stop = read_field(body, at, end)
    if number == _LOGS or (number in _BYTES_FIELDS and wire_type != BYTES):
        raise MalformedLogGroup(f"field {number} of the group has wire type {wire_type}")
    if number == _LOG_TAGS:
        _check_pair(body, start, stop, texts=(_KEY, _VALUE))
    elif number in _BYTES_FIELDS:
        _check_text(body[start:stop])
    return stop


def _scan_log(body: bytes, at: int, end: int) -> None:
    """Validate the Log between two positions."""
    time = -1
    while at < end:
        if body[at] != _CONTENTS_TAG:
            found, at = _log_field(body, at, end)
            time = time if found is None else found
            continue
        size, key = body[at + 1], body[at + 3]
        value = at + 4 + key
        # The usual layout: Key, then Value, no other field, every length in one byte.
        if (
            size < 0x80
            and body[at + 2] == _KEY_TAG
            and body[value] == _VALUE_TAG
            and body[value + 1] == size - key - 4
            and body[at + 4 : value].isascii()
        ):
            at += 2 + size
        else:
            at = _content(body, at, end)
    if at != end:
        raise MalformedLogGroup(f"a field passes the end of its log at byte {end}")
    if not 0 <= time <= 0xFFFF_FFFF:
        raise MalformedLogGroup(f"a log that ends at byte {end} has no time of 32 bits")


def _content(body: bytes, at: int, end: int) -> int:
    """Where the Content at ``at`` ends; a short key with a long value is recognized, all else is parsed."""
    start, stop = _span(body, at + 1, end)
    key_stop = start + 2 + body[start + 1]
    if (
        body[start] == _KEY_TAG
        and body[start + 1] < 0x80
        and key_stop < stop
        and body[key_stop] == _VALUE_TAG
        and body[start + 2 : key_stop].isascii()
        and _span(body, key_stop + 1, stop)[1] == stop
    ):
        return stop
    _check_pair(body, start, stop)
    return stop


def _log_field(body: bytes, at: int, end: int) -> tuple[int | None, int]:
    """Validate a field of a Log that is not a Content; its value if it is the time, and where it ends."""
    if body[at] == _TIME_TAG:
        # A time has five bytes since 1978, and until the 32 bits are used up in 2106.
        fifth = body[at + 5]
        if (
            fifth < 0x10
            and (a := body[at + 1]) & (b := body[at + 2]) & (c := body[at + 3]) & (d := body[at + 4]) & 0x80
        ):
            return (a & 127) | (b & 127) << 7 | (c & 127) << 14 | (d & 127) << 21 | fifth << 28, at + 6
        return read_varint(body, at + 1, end)
    number, wire_type, _, stop = read_field(body, at, end)
    if number in (_TIME, _CONTENTS) or (number == _TIME_NS and wire_type != FIXED32):
        raise MalformedLogGroup(f"field {number} of a log has wire type {wire_type}")
    return None, stop


def _check_pair(body: bytes, start: int, stop: int, *, texts: tuple[int, ...] = (_KEY,)) -> None:
    """Validate a Content or LogTag: both need Key and Value, and a LogTag's value must be text too."""
    seen = 0
    for number, wire_type, begin, finish in fields(body, start, stop):
        if number > _VALUE:
            continue
        if wire_type != BYTES:
            raise MalformedLogGroup(f"field {number} of a pair at byte {start} has wire type {wire_type}")
        seen |= number
        if number in texts:
            _check_text(body[begin:finish])
    if seen != _KEY | _VALUE:
        raise MalformedLogGroup(f"the pair at byte {start} lacks its key or its value")


def _check_text(text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise MalformedLogGroup(f"the text {text[:100]!r} is not UTF-8") from error
