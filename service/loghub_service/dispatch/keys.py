"""The key of a log in KeyShared: named fields of it, or the key with which it was written."""

from collections.abc import Sequence

from loghub.wire import native
from loghub.wire.loggroup import raw_logs
from loghub_service.pulsar.records.entries import GroupToSend, keys_of, numbering
from loghub_service.subscription.slots import slot_of

_SEPARATOR = b"\0"  # between fields, so that ("ab", "c") and ("a", "bc") are two keys


def slots_of(group: GroupToSend, fields: Sequence[str]) -> tuple[int, ...]:
    """The slot of each log. A field that a log lacks counts as empty, and of a field that occurs twice the
    last value counts. Raises MalformedLogGroup."""
    names = [field.encode() for field in fields]
    made = native.slots_of_fields(group.group, names) if names else _slots_by_native_part(group)
    return slots_in_python(group, names) if made is None else tuple(made)


def _slots_by_native_part(group: GroupToSend) -> list[int] | None:
    if group.origin is not None and group.origin.chunk is not None:
        return None
    return native.slots_of_keys(group.group, group.raw, *numbering(group))


def slots_in_python(group: GroupToSend, names: Sequence[bytes]) -> tuple[int, ...]:
    """The slot of each log, computed without the native part."""
    if not names:
        return tuple(map(slot_of, keys_of(group)))
    slots = []
    for log in raw_logs(group.group):
        values = dict(log.contents)
        slots.append(slot_of(_SEPARATOR.join([values.get(name, b"") for name in names])))
    return tuple(slots)
