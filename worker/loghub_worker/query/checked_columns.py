"""Compares the columns of a batch with those that were checked before the worker joined its group. Pure.

A sink is made ready for the columns that the pipeline returned with no logs: a table is created with them, or
compared with them. A function may make others of some logs, for example of a schema that it infers from them,
and a query may read another table whose columns change. Files with such rows could be written, and no reader
would put them together with those before: columns would be missing, or the whole table unreadable.
"""

from collections.abc import Iterator, Mapping, Sequence

Columns = Sequence[tuple[str, str]]  # names and types, as in `DataFrame.dtypes`: not whether one may be null
SHOWN = 5  # differences: a message is read by people
MAX_TYPE_CHARS = 200  # of a struct of many fields


def difference(checked: Columns, found: Columns) -> str | None:
    """What differs in names, types or order, in words; None if nothing does."""
    if list(checked) == list(found):
        return None
    differences = list(_differences(dict(checked), dict(found))) or [
        f"they are {_names(found)} instead of {_names(checked)}"  # in order, or in number
    ]
    more = len(differences) - SHOWN
    return "; ".join(differences[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name, kind in now.items():
        if name not in before:
            yield f"{name!r} is new ({kind[:MAX_TYPE_CHARS]})"
        elif before[name] != kind:
            yield f"{name!r} is {kind[:MAX_TYPE_CHARS]} instead of {before[name][:MAX_TYPE_CHARS]}"
    yield from (f"{name!r} is missing" for name in before if name not in now)


def _names(columns: Columns) -> str:
    return ", ".join(name for name, _ in columns)
