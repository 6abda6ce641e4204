"""One log and one log group as a processor reads them: thin views on the messages of protobuf."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any

from loghub_worker.log_service import encode_cursor

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The place of a log in its shard, as in the columns ``__cursor__`` and ``__index__``. Without an index,
    that of a whole log group."""

    cursor: int
    index: int | None = None


class ReceivedLog:
    """One log. Keys that occur twice stay twice. In text that is not UTF-8, U+FFFD stands for the invalid
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
            # Almost every text is valid, and a call for each would take most of the time.
            (key if type(key) is str else text(key), value if type(value) is str else text(value))
            for pair in self._message.Contents
            for key, value in ((pair.Key, pair.Value),)
        ]

    def get(self, key: str) -> str | None:
        """The last value of a key; None if the log has no such key."""
        pairs = reversed(self._message.Contents)
        return next((text(pair.Value) for pair in pairs if text(pair.Key) == key), None)


class ReceivedLogGroup:
    """What one PutLogs call wrote, with its place in the shard. Where only some of its logs come again, it
    has only these."""

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
        """Of the log group, or of its logs where not all of them came."""
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
    """Protobuf returns the bytes of a text that is not UTF-8; U+FFFD stands for what is invalid."""
    return raw if isinstance(raw, str) else raw.decode("utf-8", errors="replace")
