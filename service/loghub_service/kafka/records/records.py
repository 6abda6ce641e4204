"""A stored log group as a record batch with one record for each log, and the records of a producer as a log
group (docs/kafka-protocol.md 5).

`batch_of` uses the native part if it is installed, for groups that it knows to be valid, and
`batch_in_python` for all others; both make the same bytes.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from loghub.wire import native
from loghub.wire.json_object import NotAnObject, members_of
from loghub.wire.loggroup import Log, RawLog, raw_logs
from loghub_service.kafka.records.record_forms import (
    CONTENT_FIELD,
    HEADER_PREFIX,
    KEY_FIELD,
    NULL_HEADER_PREFIX,
    VALUE_FIELD,
    RecordForm,
    shape_of,
)
from loghub_service.kafka.wire.errors import BadBatch, ErrorCode
from loghub_service.kafka.wire.record_batch import (
    MAX_FIELDS,
    MAX_RECORDS,
    NO_TIMESTAMP,
    Record,
    finish_batch,
    zigzag,
    zigzag_table,
)

_MAX_TIME_S = 0xFFFF_FFFF  # the time of a log has 32 bits
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
    """The members of the object; a value that is not an object, or has too many members, is stored whole."""
    value = _value(record)
    if len(value) > MAX_FIELDS and value.count(b":") > MAX_FIELDS:
        return _plain(record)
    try:
        members = members_of(value)
        for name, member in members:
            name.encode()  # half of a surrogate pair cannot be stored
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


def batch_of(group: bytes, *, raw: bool, base_offset: int = 0) -> bytes:
    """The batch of a serialized log group that was validated when it was stored.

    Logs after the first MAX_RECORDS are left out, since no offset could number them. A group without logs is
    no batch: the result is empty. Raises MalformedLogGroup.
    """
    native_records = native.records_of(group, raw, MAX_RECORDS)
    if native_records is None:
        return batch_in_python(group, raw=raw, base_offset=base_offset)
    records, count, first_ms, youngest_ms = native_records
    if not count:
        return b""
    return finish_batch([b"", records], base_offset=base_offset, times=(first_ms, youngest_ms), count=count)


def batch_in_python(group: bytes, *, raw: bool, base_offset: int = 0) -> bytes:
    """The batch of a log group, made without the native part."""
    records = _Records()
    for log in islice(raw_logs(group), MAX_RECORDS):
        records.add(log, raw=raw)
    return records.batch(base_offset)


class _Records:
    """The records of a batch, encoded one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self._parts: list[bytes] = [b""]
        self._base = self._top = 0

    def add(self, log: RawLog, *, raw: bool) -> None:
        """The record of the next log."""
        timestamp = log.time * 1000 + (log.time_ns or 0) // 1_000_000
        if not self.count:
            self._base = self._top = timestamp
        self._top = max(self._top, timestamp)
        names = tuple([name for name, _ in log.contents])
        parts, size = shape_of(names, raw=raw).parts([value for _, value in log.contents])
        time_delta = zigzag(timestamp - self._base)
        number = zigzag_table()[self.count]
        self._parts += (zigzag(size + len(time_delta) + len(number) + 1), b"\0", time_delta, number)
        self._parts += parts
        self.count += 1

    def batch(self, base_offset: int) -> bytes:
        """The whole batch, or nothing."""
        if not self.count:
            return b""
        return finish_batch(
            self._parts, base_offset=base_offset, times=(self._base, self._top), count=self.count
        )
