"""Parses LogGroupLists (docs/sls-protocol.md 3) into columns in Arrow, by a compiled parser of protobuf.

It parses into UTF-8 columns and fails on a body that contains other bytes. Such a body is parsed again into
binary columns, and each invalid text that is used is decoded with U+FFFD in place of the invalid bytes; the
number of these texts is known afterwards.
"""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from ptars import HandlerPool, PtarsConfig

from loghub_worker.source.list_descriptor import TextKind, list_descriptor

TEXTS = pa.map_(pa.string(), pa.string())
TIME_TYPE = pa.timestamp("us", tz="UTC")
NANOSECONDS_TYPE = pa.int32()
NANOSECONDS = 1_000_000_000


class ParsedLists(Protocol):
    """Some lists. Unset texts are empty. Of a key that occurs twice in a log, or of a tag in a log group, the
    last value counts: a map with a key twice is none to many readers, and to functions of Spark."""

    @property
    def groups(self) -> tuple[int, ...]:
        """The number of log groups in each list."""

    @property
    def first_rows(self) -> pa.Array:
        """Where the logs of each log group begin, and at last the number of all logs."""

    @property
    def group_of_log(self) -> pa.Array:
        """The number of each log's log group."""

    @property
    def replaced(self) -> int:
        """In how many texts of the columns made so far bytes were replaced."""

    def times(self) -> pa.Array:
        """Of each log, in microseconds."""

    def nanoseconds(self) -> pa.Array:
        """The part of each log's time below a second; null if it has none."""

    def topics(self) -> pa.Array:
        """Of each log group."""

    def sources(self) -> pa.Array:
        """Of each log group."""

    def tags(self) -> pa.Array:
        """Of each log group, as a map."""

    def contents(self) -> pa.Array:
        """Of each log, as a map."""

    def of_keys(self, keys: Sequence[str]) -> list[pa.Array]:
        """For each of these keys its last value in each log; null if the log has none."""


def parse(bodies: Sequence[bytes]) -> ParsedLists:
    """Raises if a body is not a LogGroupList."""
    try:
        return _Parsed(_handler("text").list_to_record_batch(bodies))
    except Exception:  # noqa: BLE001 - ptars has one error type; an invalid body raises again below
        return _Parsed(_handler("binary").list_to_record_batch(bodies))


class _Texts:
    """Converts binary columns to text, and counts the texts in which bytes were replaced."""

    def __init__(self) -> None:
        self.replaced = 0

    def __call__(self, column: pa.Array) -> pa.Array:
        if not pa.types.is_binary(column.type):
            return column
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([self._text(value) for value in column.to_pylist()], pa.string())

    def _text(self, value: bytes | None) -> str | None:
        if value is None:
            return None
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            self.replaced += 1
            return value.decode("utf-8", errors="replace")


class _Parsed:
    """The columns of what ptars has parsed, each made when it is used."""

    def __init__(self, parsed: pa.RecordBatch) -> None:
        lists = parsed.column("LogGroups")
        self.groups = tuple(pc.fill_null(pc.list_value_length(lists), 0).to_pylist())
        self._groups = lists.flatten()
        self._text = _Texts()
        logs_of_group = self._groups.field("Logs")
        self._logs = logs_of_group.flatten()
        offsets = logs_of_group.offsets
        begin = offsets[0] if len(offsets) else pa.scalar(0, offsets.type)
        self.first_rows = pc.subtract(offsets, begin) if len(offsets) else pa.array([0], pa.int32())
        self.group_of_log = pc.list_parent_indices(logs_of_group)

    @property
    def replaced(self) -> int:
        return self._text.replaced

    def times(self) -> pa.Array:
        seconds = pc.multiply(pc.fill_null(self._logs.field("Time"), 0).cast(pa.int64()), 1_000_000)
        part = pc.divide(pc.fill_null(self.nanoseconds(), 0).cast(pa.int64()), 1_000)
        return pc.add(seconds, part).cast(TIME_TYPE)

    def nanoseconds(self) -> pa.Array:
        part = self._logs.field("Time_ns")
        return pc.if_else(pc.less(part, NANOSECONDS), part, None).cast(NANOSECONDS_TYPE)

    def topics(self) -> pa.Array:
        return _filled(self._text(self._groups.field("Topic")))

    def sources(self) -> pa.Array:
        return _filled(self._text(self._groups.field("Source")))

    def tags(self) -> pa.Array:
        return _map(self._groups.field("LogTags"), self._text)

    def contents(self) -> pa.Array:
        return _map(self._logs.field("Contents"), self._text)

    def of_keys(self, keys: Sequence[str]) -> list[pa.Array]:
        if not keys:
            return []
        contents = self._logs.field("Contents")
        begin, end = contents.offsets[0].as_py(), contents.offsets[-1].as_py()
        pairs = contents.values.slice(begin, end - begin)
        names = _filled(self._text(pairs.field("Key")))
        values = _filled(self._text(pairs.field("Value")))
        same = same_keys(names, pc.list_value_length(contents))
        if same is not None:
            places = {key: place for place, key in enumerate(same)}
            return [_every(values, len(same), places.get(key)) for key in keys]
        return _picked(names, values, pc.list_parent_indices(contents), keys, logs=len(contents))


def same_keys(names: pa.StringArray, numbers: pa.Array) -> tuple[str, ...] | None:
    """The keys of each log if every log has the same in the same order, as the logs of one producer mostly
    do; `numbers` are the numbers of their keys. Compared as bytes: the keys of all logs are those of the
    first log, repeated."""
    limits = pc.min_max(numbers)
    width = limits["max"].as_py()
    if not width or limits["min"].as_py() != width:
        return None
    first = tuple(names.slice(0, width).to_pylist())
    lengths = pc.binary_length(names).buffers()[1].to_pybytes()
    if lengths != pc.binary_length(names.slice(0, width)).buffers()[1].to_pybytes() * len(numbers):
        return None
    _, ends, data = names.buffers()
    at = memoryview(ends).cast("i")
    begin, end = at[names.offset], at[names.offset + len(names)]
    texts = data.slice(begin, end - begin).to_pybytes() if data is not None else b""
    return first if texts == "".join(first).encode() * len(numbers) else None


def _every(values: pa.Array, width: int, place: int | None) -> pa.Array:
    """The value at this place of each log, if all logs have `width` contents."""
    if place is None:
        return pa.nulls(len(values) // width, pa.string())
    return values.take(pa.arange(place, len(values), width))


def _picked(
    names: pa.Array, values: pa.Array, log_of_pair: pa.Array, keys: Sequence[str], *, logs: int
) -> list[pa.Array]:
    """The last value of each of the keys in each log, whatever contents the logs have."""
    key_of_pair = pc.index_in(names, value_set=pa.array(keys, pa.string()))
    columns = []
    for number in range(len(keys)):
        here = pc.equal(key_of_pair, number)  # null, as for another key, is filtered out too
        found = log_of_pair.filter(here).cast(pa.int64())
        backwards = pa.arange(len(found) - 1, -1, -1)
        last = pc.index_in(pa.arange(0, logs), value_set=found.take(backwards))
        columns.append(values.filter(here).take(backwards).take(last))
    return columns


def _filled(texts: pa.Array) -> pa.Array:
    """An unset text is empty. Without one nothing is copied."""
    return pc.fill_null(texts, "") if texts.null_count else texts


def _map(pairs: pa.ListArray, text: _Texts) -> pa.Array:
    """Convert list<Key, Value> to map<Key, Value>; of the pairs of a list with one key the last one stays."""
    begin, end = pairs.offsets[0].as_py(), pairs.offsets[-1].as_py()
    values = pairs.values.slice(begin, end - begin)
    offsets = pairs.offsets if begin == 0 else pc.subtract(pairs.offsets, pairs.offsets[0])
    key, value = _filled(text(values.field("Key"))), _filled(text(values.field("Value")))
    kept = _last_of_each_key(key, pc.list_parent_indices(pairs), pc.list_value_length(pairs))
    if kept is None:
        return pa.MapArray.from_arrays(offsets, key, value)
    before = [0, *accumulate(map(int, kept))]
    offsets = pa.array([before[offset] for offset in offsets.to_pylist()], pa.int32())
    mask = pa.array(kept, pa.bool_())
    return pa.MapArray.from_arrays(offsets, key.filter(mask), value.filter(mask))


def _last_of_each_key(names: pa.StringArray, list_of_pair: pa.Array, numbers: pa.Array) -> list[bool] | None:
    """Which pairs are the last ones of their list with their key; None if all are."""
    same = same_keys(names, numbers)
    if same is not None and len(set(same)) == len(same):
        return None
    keys = names.dictionary_encode()
    places = pc.add(
        pc.multiply(list_of_pair.cast(pa.int64()), len(keys.dictionary)), keys.indices.cast(pa.int64())
    )
    if pc.count_distinct(places).as_py() == len(places):
        return None
    last = {place: number for number, place in enumerate(places.to_pylist())}
    kept = [False] * len(places)
    for number in last.values():
        kept[number] = True
    return kept


@cache
def _handler(kind: TextKind) -> Any:
    """The parser of LogGroupList, created once per process."""
    described = list_descriptor(kind)
    return HandlerPool([described.file], PtarsConfig()).get_for_message(described)
