"""A batch of logs as a processor gets it: whole log groups of one shard, decoded only when they are used.

A pulled body is parsed at most once in each form, whichever batches its log groups belong to: into Arrow by
`loghub_worker.source.arrow_decoder`, and into log groups by protobuf's own parser. A handler that uses
neither costs no decoding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from typing import Any, overload

import pyarrow as pa
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from loghub.wire.loggroup import list_header, split
from loghub_worker.log_service import encode_cursor
from loghub_worker.source.arrow_decoder import SCHEMA, Body, Decoded, decode
from loghub_worker.source.list_descriptor import list_descriptor
from loghub_worker.source.shard_reader import ShortReadError, require_count

NANOSECONDS = 1_000_000_000


class ReceivedLog:
    """One log. Keys that occur twice stay twice. In text that is not UTF-8, U+FFFD stands for the invalid
    bytes."""

    __slots__ = ("_message",)

    def __init__(self, message: Any) -> None:
        self._message = message

    @property
    def time(self) -> int:
        """Unix seconds."""
        return int(self._message.Time)

    @property
    def time_ns(self) -> int | None:
        """The part below a second; None if the log has none."""
        message = self._message
        has_ns = message.HasField("Time_ns") and message.Time_ns < NANOSECONDS
        return message.Time_ns if has_ns else None

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Keys and values, as a new list."""
        return [
            # Almost every text is valid, and a call for each would take most of the time.
            (key if type(key) is str else _text(key), value if type(value) is str else _text(value))
            for pair in self._message.Contents
            for key, value in ((pair.Key, pair.Value),)
        ]

    def get(self, key: str) -> str | None:
        """The first value of a key; None if the log has no such key."""
        return next((_text(pair.Value) for pair in self._message.Contents if _text(pair.Key) == key), None)


class ReceivedLogGroup:
    """What one PutLogs call wrote, with its place in the shard."""

    __slots__ = ("_message", "_position")

    def __init__(self, message: Any, position: int) -> None:
        self._message = message
        self._position = position

    @property
    def cursor(self) -> str:
        return encode_cursor(self._position)

    @property
    def topic(self) -> str:
        return _text(self._message.Topic)

    @property
    def source(self) -> str:
        return _text(self._message.Source)

    @property
    def tags(self) -> list[tuple[str, str]]:
        return [(_text(tag.Key), _text(tag.Value)) for tag in self._message.LogTags]

    def __len__(self) -> int:
        return len(self._message.Logs)

    @property
    def logs(self) -> Iterator[ReceivedLog]:
        """The logs, one after the other."""
        return map(ReceivedLog, self._message.Logs)


def _text(raw: str | bytes) -> str:
    """Protobuf returns the bytes of a text that is not UTF-8."""
    return raw if isinstance(raw, str) else raw.decode("utf-8", errors="replace")


class PulledBody:
    """The log groups of one answer: the first has the cursor `first`, and the others follow. Each form is
    made
    when it is first used."""

    def __init__(self, body: bytes, *, shard: int, first: int, count: int) -> None:
        self.body = body
        self.shard = shard
        self.first = first
        self.count = count

    @cached_property
    def ends(self) -> list[int]:
        """The number of bytes up to the end of each log group; the last is that of the body."""
        sizes = (len(list_header(len(group))) + len(group) for group in split(self.body))
        return [*list(accumulate(sizes))[:-1], len(self.body)]

    @cached_property
    def decoded(self) -> Decoded:
        try:
            decoded = decode([Body(self.first, self.body)], shard=self.shard)
        except Exception as error:
            raise ShortReadError(f"an answer is not a list of log groups: {error}") from error
        require_count(self.count, sum(decoded.groups))
        return decoded

    @cached_property
    def messages(self) -> Any:
        try:
            messages = _list_class().FromString(self.body).LogGroups
        except DecodeError as error:
            raise ShortReadError(f"an answer is not a list of log groups: {error}") from error
        require_count(self.count, len(messages))
        return messages


@cache
def _list_class() -> Any:
    return GetMessageClass(list_descriptor("text"))


@dataclass(frozen=True, slots=True)
class BodySlice:
    """The log groups of a body from one index to another, half-open."""

    body: PulledBody
    begin: int
    end: int

    @property
    def groups(self) -> int:
        return self.end - self.begin

    @property
    def bytes(self) -> int:
        if self.groups == self.body.count:
            return len(self.body.body)
        return self._bytes_to(self.end) - self._bytes_to(self.begin)

    @property
    def content(self) -> memoryview:
        content = memoryview(self.body.body)
        if self.groups == self.body.count:
            return content
        return content[self._bytes_to(self.begin) : self._bytes_to(self.end)]

    @property
    def decoded_logs(self) -> int:
        known = vars(self.body)
        if "decoded" in known:
            return self.logs
        if "messages" in known:
            return sum(len(self.body.messages[n].Logs) for n in range(self.begin, self.end))
        return 0

    def _bytes_to(self, index: int) -> int:
        return self.body.ends[index - 1] if index else 0

    @property
    def logs(self) -> int:
        first_rows = self.body.decoded.first_rows
        return int(first_rows[self.end].as_py() - first_rows[self.begin].as_py())

    @property
    def rows(self) -> pa.RecordBatch:
        first_row = self.body.decoded.first_rows[self.begin].as_py()
        return self.body.decoded.rows.slice(first_row, self.logs)


class LogGroups(Sequence[ReceivedLogGroup]):
    """The log groups of a batch; a body is parsed when its first log group is reached."""

    def __init__(self, slices: tuple[BodySlice, ...]) -> None:
        self._slices = slices

    def __len__(self) -> int:
        return sum(part.groups for part in self._slices)

    @overload
    def __getitem__(self, index: int) -> ReceivedLogGroup: ...
    @overload
    def __getitem__(self, index: slice) -> list[ReceivedLogGroup]: ...
    def __getitem__(self, index: int | slice) -> ReceivedLogGroup | list[ReceivedLogGroup]:
        numbers = range(len(self))[index]
        return self._at(numbers) if isinstance(numbers, int) else [self._at(n) for n in numbers]

    def _at(self, number: int) -> ReceivedLogGroup:
        for part in self._slices:
            if number < part.groups:
                return _group(part.body, part.begin + number)
            number -= part.groups
        raise IndexError(number)

    def __iter__(self) -> Iterator[ReceivedLogGroup]:
        for part in self._slices:
            for index in range(part.begin, part.end):
                yield _group(part.body, index)


def _group(body: PulledBody, index: int) -> ReceivedLogGroup:
    return ReceivedLogGroup(body.messages[index], body.first + index)


class LogBatch:
    """Whole log groups of one shard, in order, without a gap but for expired ones.

    `arrow` is a table with one row for each log and the columns of the view `logs` (README), `groups` the log
    groups. `begin_cursor` and `next_cursor` are those of the first log group and after the last one.
    """

    def __init__(self, shard: int, slices: tuple[BodySlice, ...]) -> None:
        self.shard = shard
        self._slices = slices
        self.begin = slices[0].body.first + slices[0].begin
        self.end = slices[-1].body.first + slices[-1].end
        self.size_bytes = sum(part.bytes for part in slices)
        self.groups = LogGroups(slices)

    @property
    def begin_cursor(self) -> str:
        return encode_cursor(self.begin)

    @property
    def next_cursor(self) -> str:
        return encode_cursor(self.end)

    @cached_property
    def arrow(self) -> pa.Table:
        return pa.Table.from_batches([part.rows for part in self._slices], schema=SCHEMA)

    def part(self, begin: int, end: int) -> "LogBatch":
        """The log groups from one position to another, of which there is at least one."""
        slices = []
        for one in self._slices:
            first = one.body.first
            low, high = max(one.begin, begin - first), min(one.end, end - first)
            if low < high:
                slices.append(BodySlice(one.body, low, high))
        return LogBatch(self.shard, tuple(slices))

    @property
    def bodies(self) -> tuple[tuple[int, int, memoryview], ...]:
        """The log groups as they were pulled: the first position, the number, and the bytes of each body."""
        return tuple((one.body.first + one.begin, one.groups, one.content) for one in self._slices)

    @property
    def decoded_logs(self) -> int:
        """The number of logs in what was decoded so far."""
        return sum(one.decoded_logs for one in self._slices)

    def __repr__(self) -> str:
        return f"LogBatch(shard={self.shard}, begin={self.begin}, groups={len(self.groups)})"
