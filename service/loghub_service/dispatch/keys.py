"""The key of a log in KeyShared: named fields of it, or the key with which it was written."""

from collections.abc import Sequence

from loghub.wire.loggroup import raw_logs
from loghub_service.pulsar.records.entries import GroupToSend, keys_of
from loghub_service.subscription.slots import slot_of

_SEPARATOR = b"\0"  # between fields, so that ("ab", "c") and ("a", "bc") are two keys


def slots_of(group: GroupToSend, fields: Sequence[str]) -> tuple[int, ...]:
    """The slot of each log. A field that a log lacks is empty, and of one that it has twice the last value
    counts. Raises MalformedLogGroup."""
    if not fields:
        return tuple(map(slot_of, keys_of(group)))
    names = [field.encode() for field in fields]
    slots = []
    for log in raw_logs(group.group):
        values = dict(log.contents)
        slots.append(slot_of(_SEPARATOR.join([values.get(name, b"") for name in names])))
    return tuple(slots)
