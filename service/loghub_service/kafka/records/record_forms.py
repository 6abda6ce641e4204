"""How a log and a record correspond: the forms, and the names of fields with a meaning.

Nearly all logs of a program have the same fields in the same order. Everything that depends on these names
only is computed once for such a shape: the text of the JSON object around the values, or which field is the
key.
"""

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

import msgspec

from loghub_service.kafka.wire.record_batch import TABLE_SIZE, zigzag, zigzag_table


class RecordForm(StrEnum):
    """How a produced record becomes a log (docs/kafka-protocol.md 5).

    PLAIN keeps the value in the field `content`; JSON makes each member of a JSON object a field, as SLS does
    for the topic `<logstore>.json`; RAW keeps key, value and headers exactly, and is a setting of a logstore.
    Reading knows two forms only: the form of SLS for the first two, and RAW.
    """

    PLAIN = "plain"
    JSON = "json"
    RAW = "raw"


_SUFFIXES = (None, RecordForm.PLAIN, RecordForm.JSON, RecordForm.RAW)  # their places are stored
_PARTITION_BITS = 24  # more partitions than a topic has: a project has at most 10,000 shards


def addressed(suffix: RecordForm | None, partition: int) -> int:
    """What stands for a partition under the name of its topic with this suffix. A producer takes the names of
    one logstore for different topics, and numbers what it sends in each."""
    return _SUFFIXES.index(suffix) << _PARTITION_BITS | partition


CONTENT_FIELD = "content"
KEY_FIELD, VALUE_FIELD = "key", "value"
# In RAW; a field with the second prefix has an empty value and stands for a header that is null.
HEADER_PREFIX, NULL_HEADER_PREFIX = "header.", "null_header."
# In RAW, for messages from Pulsar with an ordering key; a record of Kafka has no place for it.
ORDERING_KEY_FIELD = "ordering_key"
# Logs that SLS imported from Kafka have all of these fields, and their key and value are the record's.
IMPORTED_FIELDS = frozenset(("kafka_topic", "kafka_partition", "kafka_offset", KEY_FIELD, VALUE_FIELD))


_PLAIN_FIELDS = {field.encode() for field in (KEY_FIELD, VALUE_FIELD, ORDERING_KEY_FIELD)}
MAX_SHAPES = 256  # bounded, since clients choose the names of fields
# What a JSON string may contain unchanged: everything but quotes, backslashes and control characters.
_UNESCAPED = bytes(set(range(0x20, 0x100)) - set(b'"\\'))
_NULL, _NO_HEADERS = b"\1", b"\0"
Parts = list[bytes]


def _varint(size: int) -> bytes:
    return zigzag_table()[size] if size < TABLE_SIZE else zigzag(size)


def _sized(content: bytes | None) -> bytes:
    return _NULL if content is None else _varint(len(content)) + content


class LogShape(Protocol):
    """How the values of a log become a record, for logs with the same names of fields in order."""

    def parts(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        """Key, value and headers in the form of a record, and their size."""


class JsonShape:
    """Several fields, or none: no key, and a JSON object as the value."""

    def __init__(self, names: tuple[bytes, ...]) -> None:
        texts = [str(name, "utf-8", "replace") for name in names]
        encoded = [msgspec.json.encode(text) for text in texts]
        around = [b'","' + name[1:] + b':"' for name in encoded]
        around[:1] = [b"{" + name + b':"' for name in encoded[:1]]
        self._texts = texts
        self._simple = len(set(names)) == len(names) > 0
        # Null key, size of the value, then texts and values alternately, and no headers.
        self._template: Parts = [_NULL, b""]
        for text in around:
            self._template += (text, b"")
        self._template += (b'"}', _NO_HEADERS)
        self._around_size = sum(map(len, around)) + 2

    def parts(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        """The object is put together from its text and the values if none of them needs an escape."""
        if not self._simple or _needs_escape(values):
            return self._escaped(values)
        size = self._around_size + sum(map(len, values))
        parts = self._template.copy()
        length = parts[1] = _varint(size)
        parts[3:-2:2] = values
        return parts, size + len(length) + 2

    def _escaped(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        sized = _sized(self.json_of(values))
        return [_NULL, sized, _NO_HEADERS], len(sized) + 2

    def json_of(self, values: Sequence[bytes]) -> bytes:
        """The object alone. Bytes that are not UTF-8 become U+FFFD, because JSON has only text."""
        texts = (str(value, "utf-8", "replace") for value in values)
        return msgspec.json.encode(dict(zip(self._texts, texts, strict=True)))


def _needs_escape(values: Sequence[bytes]) -> bool:
    """Whether a value is not UTF-8, or has something that JSON escapes."""
    # A comma ends every sequence of bytes, so the joined bytes are UTF-8 if and only if each value is.
    joined = b",".join(values)
    if joined.translate(None, _UNESCAPED):
        return True
    if joined.isascii():
        return False
    try:
        joined.decode()
    except UnicodeDecodeError:
        return True
    return False


class SingleFieldShape:
    """One field: its name is the key, and its value the value."""

    def __init__(self, names: tuple[bytes, ...]) -> None:
        self._key = _sized(names[0])

    def parts(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        """The value is not changed, so it need not be text."""
        (value,) = values
        length = _varint(len(value))
        return [self._key, length, value, _NO_HEADERS], len(self._key) + len(length) + len(value) + 1


class KeyValueShape:
    """Fields that are the key, the value and, in the form RAW, the headers of a record."""

    def __init__(self, names: tuple[bytes, ...], *, headers: bool) -> None:
        self._key, self._value = (
            next((i for i, name in enumerate(names) if name == field.encode()), None)
            for field in (KEY_FIELD, VALUE_FIELD)
        )
        self._headers = [(i, name, null) for i, (name, null) in _header_names(names)] if headers else []

    def parts(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        """A missing field is null."""
        parts = [
            _sized(None if self._key is None else values[self._key]),
            _sized(None if self._value is None else values[self._value]),
            _varint(len(self._headers)),
        ]
        for index, name, null in self._headers:
            parts += (name, _sized(None if null else values[index]))
        return parts, sum(map(len, parts))


def _header_names(names: tuple[bytes, ...]) -> list[tuple[int, tuple[bytes, bool]]]:
    """For each field that is a header its index, the name with its length, and whether it is null."""
    header_names = []
    for index, name in enumerate(names):
        for prefix, null in ((HEADER_PREFIX.encode(), False), (NULL_HEADER_PREFIX.encode(), True)):
            if name.startswith(prefix):
                header_names.append((index, (_sized(name[len(prefix) :]), null)))
    return header_names


@lru_cache(maxsize=MAX_SHAPES)
def shape_of(names: tuple[bytes, ...], *, raw: bool) -> LogShape:
    """The shape of logs with these fields. Shapes are shared, so that their logs are recognized next time."""
    if raw and is_raw(names):
        return KeyValueShape(names, headers=True)
    if is_imported(names):
        return KeyValueShape(names, headers=False)
    return SingleFieldShape(names) if len(names) == 1 else JsonShape(names)


def is_imported(names: tuple[bytes, ...]) -> bool:
    """Whether SLS imported a log from Kafka."""
    return {str(name, "utf-8", "replace") for name in names} >= IMPORTED_FIELDS


def is_raw(names: tuple[bytes, ...]) -> bool:
    """Whether a log was produced in the form RAW: at most one key, value and ordering key, and headers."""
    plain = [name for name in names if name in _PLAIN_FIELDS]
    return len(set(plain)) == len(plain) and len(plain) + len(_header_names(names)) == len(names)
