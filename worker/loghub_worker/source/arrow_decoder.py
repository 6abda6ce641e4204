"""Decodes pulled log groups into rows in Arrow.

One serialized LogGroupList (docs/sls-protocol.md 3) becomes one record batch of the view `logs`, without a
Python object for each log. A `Selection` names the columns that are made, and keys of the contents that
become columns of their own.

`loghub_worker.source.native_lists` parses what is usual, where the native part is installed, and
`loghub_worker.source.parsed_lists` everything else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from loghub_worker.source.native_lists import parse_natively
from loghub_worker.source.parsed_lists import NANOSECONDS_TYPE, TEXTS, TIME_TYPE, ParsedLists, parse

SCHEMA = pa.schema(
    [
        pa.field("__time__", TIME_TYPE),
        # Below a second, since Spark's timestamps have microseconds; null if the log has none.
        pa.field("__time_ns__", NANOSECONDS_TYPE),
        pa.field("__topic__", pa.string()),
        pa.field("__source__", pa.string()),
        pa.field("__tags__", TEXTS),
        pa.field("contents", TEXTS),
        pa.field("__shard__", pa.int32()),
        pa.field("__cursor__", pa.int64()),
        pa.field("__index__", pa.int32()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The columns of the rows: those of the view, in this order, then a column of texts for each of `keys`.
    It has the value of the last content with this key, and null for a log without one."""

    view: tuple[str, ...] = tuple(SCHEMA.names)
    keys: tuple[str, ...] = ()


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of some bodies, the number of log groups of each body, the row at which each log group begins,
    with the number of all rows at the end, and the number of texts in which bytes were replaced."""

    rows: pa.RecordBatch
    groups: tuple[int, ...]
    first_rows: pa.Array
    replaced: int

    def until(self, groups: int) -> pa.RecordBatch:
        """The rows of the first log groups."""
        return self.rows.slice(0, self.first_rows[groups].as_py())


@dataclass(frozen=True, slots=True)
class Body:
    """One LogGroupList. Its first log group has the cursor `first_cursor`, and the others follow."""

    first_cursor: int
    content: bytes


def decode(bodies: Sequence[Body], *, shard: int, selection: Selection = EVERYTHING) -> Decoded:
    """Decode some LogGroupLists of one shard, in one step: each step costs, and a producer may write log
    groups of one log."""
    contents = [body.content for body in bodies]
    lists = parse_natively(contents, selection.keys, "contents" in selection.view) or parse(contents)
    cursors = [
        pa.arange(body.first_cursor, body.first_cursor + count)
        for body, count in zip(bodies, lists.groups, strict=True)
    ]
    made = _Columns(lists, cursors=pa.concat_arrays(cursors), shard=shard)
    columns = [made.of_view(name) for name in selection.view] + lists.of_keys(selection.keys)
    rows = pa.RecordBatch.from_arrays(columns, schema=schema_of(selection))
    return Decoded(rows=rows, groups=lists.groups, first_rows=lists.first_rows, replaced=lists.replaced)


def schema_of(selection: Selection) -> pa.Schema:
    """The schema of the rows of a selection."""
    texts = [pa.field(key, pa.string()) for key in selection.keys]
    return pa.schema([*(SCHEMA.field(name) for name in selection.view), *texts])


class _Columns:
    """Makes the columns of the view from parsed lists, each only if it is selected."""

    def __init__(self, lists: ParsedLists, *, cursors: pa.Array, shard: int) -> None:
        self._lists = lists
        self._cursors = cursors
        self._shard = shard

    def of_view(self, name: str) -> pa.Array:
        lists, logs = self._lists, len(self._lists.group_of_log)
        match name:
            case "__time__":
                return lists.times()
            case "__time_ns__":
                return lists.nanoseconds()
            case "__topic__":
                return self._of_group(lists.topics())
            case "__source__":
                return self._of_group(lists.sources())
            case "__tags__":
                return self._of_group(lists.tags())
            case "contents":
                return lists.contents()
            case "__shard__":
                return pa.repeat(pa.scalar(self._shard, pa.int32()), logs)
            case "__cursor__":
                return self._of_group(self._cursors)
            case _:
                first = self._of_group(lists.first_rows.slice(0, len(self._cursors)))
                return pc.subtract(pa.arange(0, logs), first).cast(pa.int32())

    def _of_group(self, column: pa.Array) -> pa.Array:
        return column.take(self._lists.group_of_log)
