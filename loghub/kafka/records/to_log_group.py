"""The records of a producer as a log group (docs/kafka-protocol.md 5)."""

from collections.abc import Iterable, Iterator

from loghub.kafka.records.record_form import (
    CONTENT_FIELD,
    HEADER_PREFIX,
    KEY_FIELD,
    NULL_HEADER_PREFIX,
    VALUE_FIELD,
    RecordForm,
)
from loghub.kafka.wire.error_codes import ErrorCode
from loghub.kafka.wire.errors import BadBatch
from loghub.kafka.wire.record_batch import MAX_FIELDS, NO_TIMESTAMP, Record
from loghub.wire.json_object import NotAnObject, members_of
from loghub.wire.loggroup import Log

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
