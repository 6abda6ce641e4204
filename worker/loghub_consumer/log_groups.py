"""Forms log groups from rows.

The columns with reserved names become the fields of a log and of its group, every other column a content with
the column's name; nulls are omitted. So ``SELECT * FROM logs`` writes the logs as they were read:

``__time__``, ``__time_ns__``  unix seconds of the log, and the nanoseconds below a second
``__topic__``, ``__source__``, ``__tags__``  of the log group; only rows that agree share one
``contents``      a map, whose pairs become contents; a column replaces the pairs of its name
``__hash_key__``  32 hex digits, which determine the target shard
``__shard__``     of the source, if rows must stay in the order of their shard

Rows of one destination are written in their order: a group that does not accept a row is written before the
next one is begun.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from loghub.client.port import ShardInfo
from loghub.domain.shards import BadHashKey, format_key, parse_key
from loghub.wire.loggroup import Log, LogGroup
from loghub.wire.protobuf import fields

TIME, TIME_NS, TOPIC, SOURCE, TAGS = "__time__", "__time_ns__", "__topic__", "__source__", "__tags__"
CONTENTS, HASH_KEY, SHARD = "contents", "__hash_key__", "__shard__"
RESERVED = frozenset({TIME, TIME_NS, TOPIC, SOURCE, TAGS, CONTENTS, HASH_KEY, SHARD})

# The maximum of text in a log group with more than one log; the service rejects a log group above 5 MB.
GROUP_CHARS = 1_000_000
GROUP_LOGS = 4_096
MAX_OPEN_CHARS = 16_000_000  # in all groups that are not full, one for each target shard

Row = dict[str, Any]
BYTES_OF_TEXTS = {
    pa.string(): pa.binary(),
    pa.map_(pa.string(), pa.string()): pa.map_(pa.binary(), pa.binary()),
}


class Route(NamedTuple):
    """Where a row goes. Rows of one `bucket` stay in order, and may share log groups."""

    bucket: int | None = None
    hash_key: str | None = None  # None: any shard


@dataclass(frozen=True, slots=True)
class FormedGroup:
    """A log group to be written, to the shard of the hash key if it has one."""

    group: LogGroup
    hash_key: str | None


@dataclass(slots=True)
class _OpenGroup:
    """A log group that accepts more rows of the same topic, source and tags."""

    identity: tuple[str, str, tuple[tuple[str, str], ...]]
    hash_key: str | None
    logs: list[Log] = field(default_factory=list)
    chars: int = 0

    def accepts(self, other: "_OpenGroup") -> bool:
        if self.identity != other.identity or len(self.logs) >= GROUP_LOGS:
            return False
        return self.chars + other.chars <= GROUP_CHARS

    def formed(self) -> FormedGroup:
        topic, source, tags = self.identity
        group = LogGroup(logs=tuple(self.logs), topic=topic, source=source, tags=tags)
        return FormedGroup(group, self.hash_key)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """The rows of a batch, with U+FFFD in place of bytes that are not text: Spark casts a binary column to a
    string without checking it."""
    try:
        rows: list[Row] = batch.to_pylist()
    except UnicodeDecodeError:
        columns = [column.cast(BYTES_OF_TEXTS.get(column.type, column.type)) for column in batch.columns]
        decoded = ([_readable(value) for value in column.to_pylist()] for column in columns)
        rows = [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*decoded, strict=True)]
    return rows


def _readable(value: Any) -> Any:
    if isinstance(value, list):
        return [(_readable(key), _readable(text)) for key, text in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def route_anywhere(_row: Row) -> Route:
    """The route to a shard that the log service chooses."""
    return Route()


def route_by_shard(begin_key: Callable[[int], str]) -> Callable[[Row], Route]:
    """The route to the shard that holds the first key of the row's source shard."""
    return lambda row: Route(row[SHARD], begin_key(row[SHARD]))


def route_by_hash_key(shards: Iterable[ShardInfo]) -> Callable[[Row], Route]:
    """The route to the shard that holds the row's key. `shards` are the shards of the target: rows whose keys
    belong to one shard share log groups. Raises `ValueError` for an invalid key."""
    begins = sorted(parse_key(shard.begin_key) for shard in shards if not shard.read_only)

    def route(row: Row) -> Route:
        text = row[HASH_KEY]
        if text is None:
            return Route()
        try:
            key = parse_key(text)
        except BadHashKey:
            message = f"the column {HASH_KEY} has 32 hex digits, such as md5(...) returns, not {text[:64]!r}"
            raise ValueError(message) from None
        return Route(bisect_right(begins, key), format_key(key))

    return route


class LogGroupBuilder:
    """Forms log groups from batches of rows. A row without a time gets `now_s`."""

    def __init__(self, *, now_s: int, route: Callable[[Row], Route] = route_anywhere) -> None:
        self._now_s = now_s
        self._route = route
        self._open: dict[int | None, _OpenGroup] = {}
        self._open_chars = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[FormedGroup]:
        """The groups that the rows of a batch complete."""
        columns = dict.fromkeys(name for name in batch.schema.names if name not in RESERVED)
        for row in rows_of(batch):
            route = self._route(row)
            group = self._single(row, columns, route.hash_key)
            open_group = self._open.get(route.bucket)
            if open_group is not None and not open_group.accepts(group):
                yield self._close(route.bucket)
                open_group = None
            if open_group is None:
                self._open[route.bucket] = group
            else:
                open_group.logs += group.logs
                open_group.chars += group.chars
            self._open_chars += group.chars
            if self._open_chars > MAX_OPEN_CHARS:
                yield from self.finish()

    def finish(self) -> Iterator[FormedGroup]:
        """The remaining groups, which are not full."""
        for bucket in list(self._open):
            yield self._close(bucket)

    def _close(self, bucket: int | None) -> FormedGroup:
        open_group = self._open.pop(bucket)
        self._open_chars -= open_group.chars
        return open_group.formed()

    def _single(self, row: Row, columns: Collection[str], hash_key: str | None) -> _OpenGroup:
        """A group with one row only."""
        contents = [
            *(
                (key, text)
                for key, text in row.get(CONTENTS) or ()
                if text is not None and key not in columns
            ),
            *((name, row[name]) for name in columns if row[name] is not None),
        ]
        tags = tuple((key, text) for key, text in row.get(TAGS) or () if text is not None)
        time_s = row.get(TIME)
        log = Log(
            time=self._now_s if time_s is None else time_s,
            contents=tuple(contents),
            time_ns=None if time_s is None else row.get(TIME_NS),
        )
        return _OpenGroup(
            identity=(row.get(TOPIC) or "", row.get(SOURCE) or "", tags),
            hash_key=hash_key,
            logs=[log],
            chars=sum(len(key) + len(text) for key, text in (*log.contents, *tags)),
        )


LOGS_FIELD = 1  # of a LogGroup (docs/sls-protocol.md 3)


def number_of_logs(log_group: bytes | memoryview) -> int:
    """The number of logs in a serialized LogGroup, counted without decoding them."""
    view = memoryview(log_group)
    return sum(number == LOGS_FIELD for number, _, _, _ in fields(view, 0, len(view)))
