"""Records of logs that have the same fields in the same order, which nearly all logs of a program have.

What depends on the names only is made once for such a shape: the text of the JSON object around the values,
or which field is the key. `parts` makes the record of one log, `columns` those of a run of logs, with a few
calls for all of them; both return everything that follows the offset of a record.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from operator import add
from typing import NamedTuple

import msgspec

from loghub.kafka.records.log_runs import Run, can_be_runs
from loghub.kafka.records.record_form import (
    HEADER_PREFIX,
    IMPORTED_FIELDS,
    KEY_FIELD,
    NULL_HEADER_PREFIX,
    VALUE_FIELD,
)
from loghub.kafka.wire.varint import TABLE_SIZE, zigzag, zigzag_table

_MAX_SHAPES = 256
# What a JSON string may contain as it is: everything but quotes, backslashes and control characters.
_UNESCAPED = bytes(set(range(0x20, 0x100)) - set(b'"\\'))
_NULL, _NO_HEADERS = b"\1", b"\0"
Parts = list[bytes]


class Columns(NamedTuple):
    """The parts of many records: those of one, what others have in their places, and the size of each."""

    parts: Parts
    columns: dict[int, Sequence[bytes]]
    sizes: list[int]


def _varint(size: int) -> bytes:
    return zigzag_table()[size] if size < TABLE_SIZE else zigzag(size)


def _sized(content: bytes | None) -> bytes:
    return _NULL if content is None else _varint(len(content)) + content


def _varints(sizes: list[int]) -> list[bytes]:
    table = zigzag_table()
    return [table[size] if size < TABLE_SIZE else zigzag(size) for size in sizes]


class LogShape:
    """The names of a log's fields in order, and how its record is made of their values."""

    def __init__(self, names: tuple[bytes, ...]) -> None:
        self.names = names
        self.can_be_runs = can_be_runs(names)

    def parts(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        """Key, value and headers as they are in a record, and their size."""
        raise NotImplementedError

    def columns(self, run: Run) -> Columns:
        """The same for every log of a run."""
        made = [self.parts(values) for values in zip(*run.values, strict=True)]
        return Columns([b""], {0: [b"".join(parts) for parts, _ in made]}, [size for _, size in made])


class JsonShape(LogShape):
    """Several fields, or none: no key, and a JSON object as the value."""

    def __init__(self, names: tuple[bytes, ...]) -> None:
        super().__init__(names)
        texts = [str(name, "utf-8", "replace") for name in names]
        encoded = [msgspec.json.encode(text) for text in texts]
        around = [b'","' + name[1:] + b':"' for name in encoded]
        around[:1] = [b"{" + name + b':"' for name in encoded[:1]]
        self._texts = texts
        self._simple = len(set(names)) == len(names) > 0
        # Null key, size of the value, then text and value in turns, and no headers.
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

    def columns(self, run: Run) -> Columns:
        """As in `parts`, if no value of the run needs an escape."""
        if not self._simple or any(map(_needs_escape, run.values)):
            return super().columns(run)
        value_sizes = [self._around_size + size for size in map(sum, zip(*run.lengths, strict=True))]
        lengths = _varints(value_sizes)
        sizes = [size + len(length) + 2 for size, length in zip(value_sizes, lengths, strict=True)]
        return Columns(
            self._template, {1: lengths, **dict(zip(count(3, 2), run.values, strict=False))}, sizes
        )

    def _escaped(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        """Bytes that are not UTF-8 become U+FFFD, which JSON cannot do without."""
        texts = (str(value, "utf-8", "replace") for value in values)
        sized = _sized(msgspec.json.encode(dict(zip(self._texts, texts, strict=True))))
        return [_NULL, sized, _NO_HEADERS], len(sized) + 2


def _needs_escape(values: Sequence[bytes]) -> bool:
    """Whether a value is not UTF-8, or has something that JSON escapes."""
    # A comma ends every sequence of bytes, so that the whole is UTF-8 if each value is.
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


class SingleFieldShape(LogShape):
    """One field: its name is the key, and its value the value."""

    def __init__(self, names: tuple[bytes, ...]) -> None:
        super().__init__(names)
        self._key = _sized(names[0])

    def parts(self, values: Sequence[bytes]) -> tuple[Parts, int]:
        """The value is not changed, so it need not be text."""
        (value,) = values
        length = _varint(len(value))
        return [self._key, length, value, _NO_HEADERS], len(self._key) + len(length) + len(value) + 1

    def columns(self, run: Run) -> Columns:
        """As in `parts`."""
        lengths = _varints(run.lengths[0])
        size = len(self._key) + 1
        sizes = [size + len(varint) + length for varint, length in zip(lengths, run.lengths[0], strict=True)]
        return Columns([self._key, b"", b"", _NO_HEADERS], {1: lengths, 2: run.values[0]}, sizes)


class KeyValueShape(LogShape):
    """Fields that are the key, the value and, in the form raw, the headers of a record."""

    def __init__(self, names: tuple[bytes, ...], *, headers: bool) -> None:
        super().__init__(names)
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

    def columns(self, run: Run) -> Columns:
        """As in `parts`, unless there are headers."""
        if self._headers:
            return super().columns(run)
        # Sizes and contents of key and value in turns.
        parts, columns = [_NULL, b"", _NULL, b"", _NO_HEADERS], dict[int, Sequence[bytes]]()
        sizes = [len(_NULL) * (self._key, self._value).count(None) + len(_NO_HEADERS)] * len(run.times_ms)
        for place, index in ((0, self._key), (2, self._value)):
            if index is not None:
                varints = _varints(run.lengths[index])
                columns |= {place: varints, place + 1: run.values[index]}
                sizes = list(map(add, sizes, map(add, map(len, varints), run.lengths[index])))
        return Columns(parts, columns, sizes)


def _header_names(names: tuple[bytes, ...]) -> list[tuple[int, tuple[bytes, bool]]]:
    """For each field that is a header its index, the name with its length, and whether it is null."""
    found = []
    for index, name in enumerate(names):
        for prefix, null in ((HEADER_PREFIX.encode(), False), (NULL_HEADER_PREFIX.encode(), True)):
            if name.startswith(prefix):
                found.append((index, (_sized(name[len(prefix) :]), null)))
    return found


@lru_cache(maxsize=_MAX_SHAPES)
def shape_of(names: tuple[bytes, ...], *, raw: bool) -> LogShape:
    """The shape of logs with these fields. Shapes are shared, so that their logs are recognized next time."""
    if raw and _is_raw(names):
        return KeyValueShape(names, headers=True)
    if {str(name, "utf-8", "replace") for name in names} >= IMPORTED_FIELDS:
        return KeyValueShape(names, headers=False)
    return SingleFieldShape(names) if len(names) == 1 else JsonShape(names)


def _is_raw(names: tuple[bytes, ...]) -> bool:
    """Whether a log was produced in the form raw: at most one key and one value, and headers."""
    plain = [name for name in names if name in (KEY_FIELD.encode(), VALUE_FIELD.encode())]
    return len(set(plain)) == len(plain) and len(plain) + len(_header_names(names)) == len(names)
