"""A batch of logs for a processor: whole log groups of one shard, decoded only when they are used.

A pulled body is decompressed once, and parsed at most once in each form, whichever batches its log groups
belong to: into Arrow by `loghub_consumer.reading.decoding`, and into log groups by the protobuf library, on
whose messages a log and a log group are thin views. A handler that uses neither pays for neither, and a
handler that needs no table needs no Arrow.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, count, repeat
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from loghub.extras import needs
from loghub.wire.compression import Packed
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import MalformedInput, MalformedLogGroup
from loghub.wire.loggroup import MAX_PULL_BYTES, list_header, split, wrap
from loghub_consumer.reading.answers import NANOSECONDS, ShortReadError, require_count

if TYPE_CHECKING:
    import pyarrow as pa

    from loghub_consumer.reading.decoding import Decoded

ARROW = "loghub-consumer[arrow]"


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The place of a log in its shard, as in the columns ``__cursor__`` and ``__index__``. Without an index,
    the place of a whole log group."""

    cursor: int
    index: int | None = None


class ReceivedLog:
    """One log. A key that occurs twice stays twice. In text that is not UTF-8, U+FFFD stands for the invalid
    bytes."""

    __slots__ = ("_index", "_message", "_position")

    def __init__(self, message: Any, position: int, index: int) -> None:
        self._message = message
        self._position = position
        self._index = index

    @property
    def place(self) -> LogPlace:
        return LogPlace(self._position, self._index)

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
            # Almost every text is valid, and a function call for each would take most of the time.
            (key if type(key) is str else text(key), value if type(value) is str else text(value))
            for pair in self._message.Contents
            for key, value in ((pair.Key, pair.Value),)
        ]

    def get(self, key: str) -> str | None:
        """The last value of a key; None if the log has no such key."""
        pairs = reversed(self._message.Contents)
        return next((text(pair.Value) for pair in pairs if text(pair.Key) == key), None)


class ReceivedLogGroup:
    """The logs that one PutLogs call wrote, with their place in the shard. If only some of the logs are
    redelivered, it has only these."""

    __slots__ = ("_message", "_only", "_position")

    def __init__(self, message: Any, position: int, only: tuple[int, ...] | None = None) -> None:
        self._message = message
        self._position = position
        self._only = only

    @property
    def place(self) -> LogPlace:
        return LogPlace(self._position)

    @property
    def places(self) -> list[LogPlace]:
        """The place of the log group, or the places of its logs if it has not all of them."""
        if self._only is None:
            return [self.place]
        return [LogPlace(self._position, index) for index in self._only]

    @property
    def cursor(self) -> str:
        return encode_cursor(self._position)

    @property
    def topic(self) -> str:
        return text(self._message.Topic)

    @property
    def source(self) -> str:
        return text(self._message.Source)

    @property
    def tags(self) -> list[tuple[str, str]]:
        return [(text(tag.Key), text(tag.Value)) for tag in self._message.LogTags]

    def __len__(self) -> int:
        return len(self._message.Logs if self._only is None else self._only)

    @property
    def logs(self) -> Iterator[ReceivedLog]:
        """The logs, one after the other."""
        logs = self._message.Logs
        if self._only is None:
            return map(ReceivedLog, logs, repeat(self._position), count())
        return (ReceivedLog(logs[index], self._position, index) for index in self._only)


def text(raw: str | bytes) -> str:
    """A text as str. Protobuf returns the bytes of a text that is not UTF-8; U+FFFD stands for the invalid
    ones."""
    return raw if isinstance(raw, str) else raw.decode("utf-8", errors="replace")


_FIRST_LOG = b"\x0a"  # the tag of a LogGroup's field 1, with its length behind it


class PulledBody:
    """The log groups of one answer: the first has the cursor `first`, and the others follow. `after` is the
    cursor after the answer; with a query it may lie after the last log group. Each form is made when it is
    first used; the other forms are made from the decompressed one."""

    def __init__(
        self, packed: Packed, *, shard: int, first: int, count: int, after: int | None = None
    ) -> None:
        self.packed = packed
        self.size = packed.size
        self.shard = shard
        self.first = first
        self.count = count
        self.after = first + count if after is None else after

    @cached_property
    def body(self) -> bytes:
        """The decompressed body. Raises `ShortReadError`."""
        try:
            body = self.packed.unpacked(max_size=MAX_PULL_BYTES)
        except MalformedInput as error:
            raise ShortReadError(f"an answer is not a list of log groups: {error}") from error
        self.packed = Packed.plain(body)  # one of the two forms is enough
        return body

    @property
    def is_unpacked(self) -> bool:
        return self.packed.how is None

    @cached_property
    def ends(self) -> list[int]:
        """The number of bytes up to the end of each log group; the last is the size of the body. Raises
        `ShortReadError`."""
        try:
            sizes = [len(list_header(len(group))) + len(group) for group in split(self.body)]
        except MalformedLogGroup as error:
            raise ShortReadError(f"an answer is not a list of log groups: {error}") from error
        require_count(self.count, len(sizes))
        return [*list(accumulate(sizes))[:-1], self.size]

    def raw(self, index: int) -> bytes:
        """The bytes of a log group as they were written. Raises `ShortReadError`."""
        try:
            (group,) = split(self.body[self.ends[index - 1] if index else 0 : self.ends[index]])
        except MalformedLogGroup as error:
            raise ShortReadError(f"an answer is not a list of log groups: {error}") from error
        return bytes(group)

    @cached_property
    def decoded(self) -> "Decoded":
        """The rows. Raises `MissingPackageError`, `ShortReadError`."""
        with needs(ARROW, "LogBatch.arrow"):
            from loghub_consumer.reading.decoding import Body, decode
        try:
            decoded = decode([Body(self.first, self.body)], shard=self.shard)
        except MalformedLogGroup as error:
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


_Field = descriptor_pb2.FieldDescriptorProto
_OPTIONAL, _REPEATED, _TEXT = _Field.LABEL_OPTIONAL, _Field.LABEL_REPEATED, _Field.TYPE_STRING
_PAIR = {1: ("Key", _OPTIONAL, _TEXT), 2: ("Value", _OPTIONAL, _TEXT)}
# The messages of a pulled body by field number (docs/sls-protocol.md 3), each with a type or another message.
# No field is required: as for other readers, a missing field is empty.
_MESSAGES: dict[str, dict[int, tuple[str, int, int | str]]] = {
    "Content": {**_PAIR},
    "LogTag": {**_PAIR},
    "Log": {
        1: ("Time", _OPTIONAL, _Field.TYPE_UINT32),
        2: ("Contents", _REPEATED, "Content"),
        4: ("Time_ns", _OPTIONAL, _Field.TYPE_FIXED32),
    },
    "LogGroup": {
        1: ("Logs", _REPEATED, "Log"),
        3: ("Topic", _OPTIONAL, _TEXT),
        4: ("Source", _OPTIONAL, _TEXT),
        6: ("LogTags", _REPEATED, "LogTag"),
    },
    "LogGroupList": {1: ("LogGroups", _REPEATED, "LogGroup")},
}


@cache
def _list_class() -> Any:
    """The message of a LogGroupList, made once in a process."""
    file = descriptor_pb2.FileDescriptorProto(name="loghub.proto", package="loghub", syntax="proto2")
    for name, members in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, label, kind) in members.items():
            described = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                described.type, described.type_name = _Field.TYPE_MESSAGE, f".loghub.{kind}"
            else:
                described.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("loghub.LogGroupList"))


@dataclass(frozen=True, slots=True)
class BodySlice:
    """The log groups of a body from one index to another, half-open. Invariant: `only`, the logs to process,
    is set only for a single log group that has logs that must not be processed."""

    body: PulledBody
    begin: int
    end: int
    only: tuple[int, ...] | None = None

    @property
    def groups(self) -> int:
        return self.end - self.begin

    @property
    def first(self) -> int:
        """The cursor of the first of these log groups."""
        return self.body.first + self.begin

    @property
    def after(self) -> int:
        """The cursor after these log groups."""
        return self.body.after if self.end == self.body.count else self.body.first + self.end

    @property
    def bytes(self) -> int:
        if self.groups == self.body.count:
            return self.body.size
        return self._bytes_to(self.end) - self._bytes_to(self.begin)

    @property
    def packed(self) -> Packed:
        """The transferred bytes, if the slice has all log groups of the body."""
        if self.groups == self.body.count:
            return self.body.packed
        return Packed.plain(self.body.body[self._bytes_to(self.begin) : self._bytes_to(self.end)])

    @property
    def decoded_logs(self) -> int:
        cached = vars(self.body)
        if "decoded" in cached:
            return self.logs
        if "messages" in cached:
            return sum(len(self.body.messages[n].Logs) for n in range(self.begin, self.end))
        return 0

    def _bytes_to(self, index: int) -> int:
        return self.body.ends[index - 1] if index else 0

    @property
    def logs(self) -> int:
        first_rows = self.body.decoded.first_rows
        return int(first_rows[self.end].as_py() - first_rows[self.begin].as_py())

    @property
    def rows(self) -> "pa.RecordBatch":
        return self.body.decoded.between(self.begin, self.end, self.only)


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
                return _group(part, part.begin + number)
            number -= part.groups
        raise IndexError(number)

    def __iter__(self) -> Iterator[ReceivedLogGroup]:
        for part in self._slices:
            for index in range(part.begin, part.end):
                yield _group(part, index)


def _group(part: BodySlice, index: int) -> ReceivedLogGroup:
    return ReceivedLogGroup(part.body.messages[index], part.body.first + index, part.only)


class LogBatch:
    """Log groups of one shard, in order: consecutive log groups, except for expired ones, or log groups that
    are redelivered because they were refused or not acknowledged in time.

    `arrow` is a table with one row for each log and the columns of the view `logs` (docs/pipelines.md 1),
    `groups` the log groups. `begin_cursor` is the cursor of the first log group, `next_cursor` the cursor
    after the last one. `delivery` is the number of deliveries, including this one; it does not count
    deliveries before the shard was assigned to this consumer, nor a batch that `process` had when it raised.
    """

    def __init__(self, shard: int, slices: tuple[BodySlice, ...], *, delivery: int = 1) -> None:
        self.shard = shard
        self.delivery = delivery
        self._slices = slices
        self.begin = slices[0].first
        self.end = slices[-1].after
        self.size_bytes = sum(part.bytes for part in slices)
        self.groups = LogGroups(slices)

    @property
    def begin_cursor(self) -> str:
        return encode_cursor(self.begin)

    @property
    def next_cursor(self) -> str:
        return encode_cursor(self.end)

    @cached_property
    def arrow(self) -> "pa.Table":
        """The logs as a table. Raises `MissingPackageError` without the extra `arrow`."""
        with needs(ARROW, "LogBatch.arrow"):
            from loghub_consumer.reading.decoding import table
        return table([part.rows for part in self._slices])

    def divided(self, groups: int) -> "tuple[LogBatch, LogBatch | None]":
        """The first log groups, and the others."""
        first: list[BodySlice] = []
        rest: list[BodySlice] = []
        for part in self._slices:
            taken = min(part.groups, max(0, groups - sum(one.groups for one in first)))
            if taken:
                first.append(BodySlice(part.body, part.begin, part.begin + taken, part.only))
            if taken < part.groups:
                rest.append(BodySlice(part.body, part.begin + taken, part.end, part.only))
        return LogBatch(self.shard, tuple(first)), LogBatch(self.shard, tuple(rest)) if rest else None

    @property
    def slices(self) -> tuple[BodySlice, ...]:
        return self._slices

    @property
    def is_single(self) -> bool:
        """Whether the batch is one log, or one log group that cannot be divided. Raises `ShortReadError`."""
        if len(self.groups) > 1:
            return False
        ((_, raw, only),) = self.raw_groups()
        return (count_logs(raw) if only is None else len(only)) <= 1

    def places(self) -> list[LogPlace]:
        """The places of its log groups, or of their logs if some of the logs must not be processed."""
        return [
            LogPlace(part.body.first + index, log)
            for part in self._slices
            for index in range(part.begin, part.end)
            for log in (part.only or (None,))
        ]

    def raw_groups(self) -> Iterator[tuple[int, bytes, tuple[int, ...] | None]]:
        """The cursor of each log group, its bytes, and its logs to process, if not all."""
        for part in self._slices:
            for index in range(part.begin, part.end):
                yield part.body.first + index, part.body.raw(index), part.only

    def raw_group(self, cursor: int) -> tuple[bytes, tuple[int, ...] | None] | None:
        """The bytes of one log group and its logs to process, if not all; None if the batch does not have
        it."""
        for part in self._slices:
            index = cursor - part.body.first
            if part.begin <= index < part.end:
                return part.body.raw(index), part.only
        return None

    def __repr__(self) -> str:
        return f"LogBatch(shard={self.shard}, begin={self.begin}, groups={len(self.groups)})"


@dataclass(frozen=True, slots=True)
class KeptGroup:
    """A log group that is redelivered: its bytes, and its logs to process, if not all."""

    cursor: int
    raw: bytes
    only: tuple[int, ...] | None


# The kinds of things that can be acknowledged or refused.
Logs: TypeAlias = LogBatch | ReceivedLogGroup | ReceivedLog | LogPlace


def places_of(logs: Iterable[Logs], running: LogBatch | None) -> list[LogPlace]:
    """The places of these logs, or of the running batch if none are named. Raises `ValueError` if no batch
    runs either."""
    named: list[Logs] = list(logs)
    if not named:
        if running is None:
            raise ValueError("no batch is being processed; name the logs")
        named = [running]
    places: list[LogPlace] = []
    for part in named:
        if isinstance(part, LogBatch):
            places += part.places()
        elif isinstance(part, ReceivedLogGroup):
            places += part.places
        else:
            places.append(part if isinstance(part, LogPlace) else part.place)
    return places


def batch_again(shard: int, kept: Sequence[KeptGroup], *, delivery: int) -> LogBatch:
    """A batch of these log groups, which are in the order of their cursors."""
    slices: list[BodySlice] = []
    run: list[KeptGroup] = []
    for kept_group, following in zip(kept, [*kept[1:], None], strict=True):
        run.append(kept_group)
        continues = following is not None and following.cursor == kept_group.cursor + 1
        if (
            not continues
            or kept_group.only is not None
            or (following is not None and following.only is not None)
        ):
            packed = Packed.plain(wrap(k.raw for k in run))
            body = PulledBody(packed, shard=shard, first=run[0].cursor, count=len(run))
            slices.append(BodySlice(body, 0, len(run), kept_group.only))
            run = []
    return LogBatch(shard, tuple(slices), delivery=delivery)


def select_logs(raw: bytes, only: Iterable[int] | None) -> bytes:
    """A log group with only some of its logs; None: with all of them."""
    if only is None:
        return raw
    (group,) = _list_class().FromString(wrap((raw,))).LogGroups
    kept = set(only)
    for index in reversed(range(len(group.Logs))):
        if index not in kept:
            del group.Logs[index]
    return bytes(group.SerializeToString())


def without_last_tags(raw: bytes, *, first: str, prefix: str) -> bytes:
    """A log group without the tags that were added to it last: from the last tag named `first` on, all tags
    whose names begin with the prefix. Its own tags may have such names."""
    (group,) = _list_class().FromString(wrap((raw,))).LogGroups
    names = [text(tag.Key) for tag in group.LogTags]
    begin = max((index for index, name in enumerate(names) if name == first), default=len(names))
    for index in reversed(range(begin, len(names))):
        if names[index].startswith(prefix):
            del group.LogTags[index]
    return bytes(group.SerializeToString())


def has_logs(raw: bytes) -> bool:
    """Whether a log group has a log. Serializers write field 1, the logs, first, so usually nothing is
    decoded."""
    return raw.startswith(_FIRST_LOG) or count_logs(raw) > 0


def count_logs(raw: bytes) -> int:
    """The number of logs in the bytes of a log group; 1 if they cannot be decoded, since such a group stays
    whole."""
    try:
        return len(PulledBody(Packed.plain(wrap((raw,))), shard=0, first=0, count=1).messages[0].Logs)
    except ShortReadError:
        return 1
