"""A stored log as a message: payload, key, properties and time.

The payload of a log that was not written as key, value and headers consists of its fields: the value alone of
a single field, in the way in which the form plain writes it, otherwise a JSON object as for Kafka. Nearly all
logs of a program have the same fields, so what depends on their names is made once
(`loghub_service.kafka.records.record_forms`).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from loghub.wire.loggroup import RawLog
from loghub_service.kafka.records.record_forms import (
    HEADER_PREFIX,
    KEY_FIELD,
    MAX_SHAPES,
    NULL_HEADER_PREFIX,
    ORDERING_KEY_FIELD,
    VALUE_FIELD,
    JsonShape,
    is_imported,
    is_raw,
)

Property = tuple[bytes, bytes]


class Message(NamedTuple):
    """A message that is read from a log. A missing payload, key or ordering key is None; the names and values
    of properties are UTF-8. ``time_ms`` is the time of the log, in unix ms."""

    payload: bytes | None
    key: bytes | None
    ordering_key: bytes | None
    properties: Sequence[Property]
    time_ms: int


class MessageShape(Protocol):
    """How a message is made of the values of a log, for logs with the same names of fields in order."""

    def message(self, values: Sequence[bytes], time_ms: int) -> Message: ...


def message_of(log: RawLog, *, raw: bool) -> Message:
    """The message of a log; ``raw`` if its logstore has the form raw."""
    names = tuple([name for name, _ in log.contents])
    time_ms = log.time * 1000 + (log.time_ns or 0) // 1_000_000
    return _shape_of(names, raw=raw).message([value for _, value in log.contents], time_ms)


@lru_cache(maxsize=MAX_SHAPES)
def _shape_of(names: tuple[bytes, ...], *, raw: bool) -> MessageShape:
    if raw and is_raw(names):
        return _KeyValueMessage(names, headers=True)
    if is_imported(names):
        return _KeyValueMessage(names, headers=False)
    return _SingleFieldMessage() if len(names) == 1 else _JsonMessage(names)


class _KeyValueMessage:
    """A null header of Kafka is left out: a property always has a value."""

    def __init__(self, names: tuple[bytes, ...], *, headers: bool) -> None:
        at = {name: index for index, name in enumerate(names)}
        self._value = at.get(VALUE_FIELD.encode())
        self._key = at.get(KEY_FIELD.encode())
        self._ordering_key = at.get(ORDERING_KEY_FIELD.encode()) if headers else None
        self._headers = list(_headers(names)) if headers else []

    def message(self, values: Sequence[bytes], time_ms: int) -> Message:
        return Message(
            None if self._value is None else values[self._value],
            None if self._key is None else values[self._key],
            None if self._ordering_key is None else values[self._ordering_key],
            [(name, _utf_8(values[index])) for index, name in self._headers],
            time_ms,
        )


class _SingleFieldMessage:
    def message(self, values: Sequence[bytes], time_ms: int) -> Message:
        return Message(values[0], None, None, (), time_ms)


class _JsonMessage:
    def __init__(self, names: tuple[bytes, ...]) -> None:
        self._shape = JsonShape(names)

    def message(self, values: Sequence[bytes], time_ms: int) -> Message:
        return Message(self._shape.json_of(values), None, None, (), time_ms)


def _headers(names: tuple[bytes, ...]) -> Iterator[tuple[int, bytes]]:
    """For each field that is a header and not null its index, and the name of the header."""
    prefix, null_prefix = HEADER_PREFIX.encode(), NULL_HEADER_PREFIX.encode()
    for index, name in enumerate(names):
        if name.startswith(prefix) and not name.startswith(null_prefix):
            yield index, _utf_8(name[len(prefix) :])


def _utf_8(text: bytes) -> bytes:
    """Bytes that are not UTF-8 become U+FFFD: names and values of properties are text."""
    return text if text.isascii() else str(text, "utf-8", "replace").encode()
