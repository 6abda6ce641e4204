"""A stored log group as a record batch: one record for each log (docs/kafka-protocol.md 5).

`batch_of` takes the native part if there is one, for groups that it knows to be valid, and `batch_in_python`
for all others; both make the same bytes.

The records of a producer as a log group (docs/kafka-protocol.md 5).
"""

from collections.abc import Iterable, Iterator, Sequence

from loghub.wire.json_object import NotAnObject, members_of
from loghub.wire.loggroup import Log
from loghub.wire.native import records_of
from loghub.wire.protobuf import fields, read_field, read_varint
from loghub_service.kafka.records.log_runs import (
    CONTENT_FIELD,
    HEADER_PREFIX,
    KEY_FIELD,
    MOST_WINDOW_BYTES,
    NULL_HEADER_PREFIX,
    VALUE_FIELD,
    LogShape,
    RecordForm,
    Run,
    find_run,
    shape_of,
)
from loghub_service.kafka.wire.errors import BadBatch, ErrorCode
from loghub_service.kafka.wire.record_batch import (
    MAX_FIELDS,
    MAX_RECORDS,
    NO_TIMESTAMP,
    TABLE_SIZE,
    Record,
    finish_batch,
    zigzag,
    zigzag_table,
)

_MAX_TIME_S = 0xFFFF_FFFF
_Fields = tuple[tuple[str, str | bytes], ...]


def logs_of(records: Iterable[Record], form: RecordForm, *, now_ms: int) -> Iterator[Log]:
    """One log for each record, in order. ``now_ms`` is the time of records without one.

    Raises BadBatch: INVALID_TIMESTAMP for a time that no log can have, INVALID_RECORD for a null value in a
    form that has no place for it.
    """
    fields_of = {RecordForm.PLAIN: _plain, RecordForm.JSON: _json, RecordForm.RAW: _raw}[form]
    return (_log(record, fields_of(record), now_ms) for record in records)


def _log(record: Record, fields: _Fields, now_ms: int) -> Log:
    time_ms = now_ms if record.timestamp == NO_TIMESTAMP else record.timestamp
    time_s, below_second_ms = divmod(time_ms, 1000)
    if not 0 <= time_s <= _MAX_TIME_S:
        raise BadBatch(ErrorCode.INVALID_TIMESTAMP, f"{time_ms} ms is not the time of a log")
    return Log(time=time_s, time_ns=below_second_ms * 1_000_000, contents=fields)


def _plain(record: Record) -> _Fields:
    return ((CONTENT_FIELD, _value(record)),)


def _value(record: Record) -> bytes:
    if record.value is None:
        raise BadBatch(ErrorCode.INVALID_RECORD, "a null value; only the form raw has a place for it")
    return record.value


def _json(record: Record) -> _Fields:
    """The members of the object; a value that is not an object, or has too many members, is kept whole."""
    value = _value(record)
    if len(value) > MAX_FIELDS and value.count(b":") > MAX_FIELDS:
        return _plain(record)
    try:
        members = members_of(value)
        for name, member in members:
            name.encode()  # half of a character cannot be stored
            if isinstance(member, str):
                member.encode()
    except (NotAnObject, UnicodeEncodeError):
        return _plain(record)
    return members


def _raw(record: Record) -> _Fields:
    fields: list[tuple[str, str | bytes]] = []
    if record.key is not None:
        fields.append((KEY_FIELD, record.key))
    if record.value is not None:
        fields.append((VALUE_FIELD, record.value))
    for name, value in record.headers:
        fields.append((NULL_HEADER_PREFIX + name, b"") if value is None else (HEADER_PREFIX + name, value))
    return tuple(fields)


_LOGS = 1
# Where logs keep differing, runs are looked for less and less often.
_SHORT_RUN, _MAX_PAUSE = 16, 1024
# A search begins with room for two short runs, and goes further while it finds what fills its window: where
# runs end soon, little more is searched than they have.
_LEAST_WINDOW_BYTES, _GROWTH = 1 << 12, 4
_TIME, _CONTENTS, _TIME_NS = 1, 2, 4
_KEY, _VALUE = 1, 2


def batch_of(group: bytes, *, raw: bool, base_offset: int = 0) -> bytes:
    """The batch of a serialized log group that was validated when it was stored.

    Logs after the first MAX_RECORDS are left out, since no offset could number them. A group without logs is
    no batch: the result is empty. Raises MalformedLogGroup.
    """
    found = None if records_of is None else records_of(group, raw, MAX_RECORDS)
    if found is None:
        return batch_in_python(group, raw=raw, base_offset=base_offset)
    records, count, first_ms, youngest_ms = found
    if not count:
        return b""
    return finish_batch([b"", records], base_offset=base_offset, times=(first_ms, youngest_ms), count=count)


def batch_in_python(group: bytes, *, raw: bool, base_offset: int = 0) -> bytes:
    """The same, without the native part."""
    records = _Records()
    shape = shape_of((), raw=raw)
    at, end = 0, len(group)
    pause = skip = 0
    window = _LEAST_WINDOW_BYTES
    while at < end and records.count < MAX_RECORDS:
        if skip:
            skip -= 1
        elif shape.can_be_runs:
            begin = at
            most = MAX_RECORDS - records.count
            run = find_run(shape.names, group, at, most=most, window_bytes=window)
            if run is not None:
                records.add_run(run, shape)
                at = run.end
            short = run is None or len(run.times_ms) < _SHORT_RUN
            skip = pause = min(2 * pause + 1, _MAX_PAUSE) if short else 0
            if at == end or records.count == MAX_RECORDS:
                break
            if at - begin > window // 2:
                window = min(window * _GROWTH, MOST_WINDOW_BYTES)
                continue
        number, _, start, at = read_field(group, at, end)
        if number == _LOGS and records.count < MAX_RECORDS:
            timestamp, names, values = _read_log(group, start, at)
            shape = shape_of(names, raw=raw)
            records.add(timestamp, shape.parts(values))
            needed = 2 * _SHORT_RUN * (at - start)
            window = min(max(needed, _LEAST_WINDOW_BYTES), MOST_WINDOW_BYTES)
    return records.batch(base_offset)


class _Records:
    """The records of a batch as they are encoded one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self._parts: list[bytes] = [b""]
        self._base = self._top = 0

    def add(self, timestamp: int, record: tuple[list[bytes], int]) -> None:
        """One record, from what follows its offset."""
        self._note_times(timestamp, timestamp)
        parts, size = record
        time_delta = zigzag(timestamp - self._base)
        number = zigzag_table()[self.count]
        self._parts += (zigzag(size + len(time_delta) + len(number) + 1), b"\0", time_delta, number)
        self._parts += parts
        self.count += 1

    def add_run(self, run: Run, shape: LogShape) -> None:
        """The records of a run, which the batch must be able to number."""
        times = run.times_ms
        self._note_times(times[0], max(times))
        table, base = zigzag_table(), self._base
        numbers = table[self.count : self.count + len(times)]
        deltas = [
            table[delta] if 0 <= (delta := time - base) < TABLE_SIZE else zigzag(delta) for time in times
        ]
        record, columns, sizes = shape.columns(run)
        whole = [
            table[size] if (size := rest + len(delta) + len(number) + 1) < TABLE_SIZE else zigzag(size)
            for rest, delta, number in zip(sizes, deltas, numbers, strict=True)
        ]
        before: dict[int, Sequence[bytes]] = {0: whole, 2: deltas, 3: numbers}
        parts = [b"", b"\0", b"", b"", *record] * len(times)
        step = 4 + len(record)
        for place, column in before.items():
            parts[place::step] = column
        for place, column in columns.items():
            parts[4 + place :: step] = column
        self._parts += parts
        self.count += len(times)

    def _note_times(self, first: int, top: int) -> None:
        if not self.count:
            self._base = self._top = first
        self._top = max(self._top, top)

    def batch(self, base_offset: int) -> bytes:
        """The whole batch, or nothing."""
        if not self.count:
            return b""
        return finish_batch(
            self._parts, base_offset=base_offset, times=(self._base, self._top), count=self.count
        )


def _read_log(group: bytes, start: int, end: int) -> tuple[int, tuple[bytes, ...], list[bytes]]:
    """Time in ms, names and values of any log, read field by field."""
    time = time_ns = 0
    names: list[bytes] = []
    values: list[bytes] = []
    for number, _, at, stop in fields(group, start, end):
        if number == _TIME:
            time = read_varint(group, at, stop)[0]
        elif number == _TIME_NS:
            time_ns = int.from_bytes(group[at:stop], "little")
        elif number == _CONTENTS:
            name = value = b""
            for part, _, begin, finish in fields(group, at, stop):
                if part == _KEY:
                    name = group[begin:finish]
                elif part == _VALUE:
                    value = group[begin:finish]
            names.append(name)
            values.append(value)
    return time * 1000 + time_ns // 1_000_000, tuple(names), values
