"""A logstore in which logs wait that were refused too often, before they are skipped or dead-lettered.

A log group is written with its origin, how often it was handed over, how often it has waited, and the time
before which it must not be tried. The same consumer group reads it there. The wait is never longer than the
delay itself, whatever the clocks of writer and reader say.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from loghub.wire import loggroup
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.errors import MalformedCursor, MalformedLogGroup
from loghub_worker.failure.origin import Origin

RETRY_PREFIX = "retry_"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryMark:
    """What is written with logs that wait. `shard` and `cursor` are those of their origin."""

    origin: Origin
    shard: int
    cursor: int
    attempts: int
    retries: int  # how often they have waited, this time included
    not_before_unix_s: float
    delay_s: float

    def wait_s(self, unix_s: float) -> float:
        """How long they must still wait."""
        return min(self.delay_s, max(0.0, self.not_before_unix_s - unix_s))


def mark_of(raw: bytes) -> RetryMark | None:
    """The mark of a log group; None if it has none that can be read, such as one that others wrote."""
    try:
        group = loggroup.decode(raw)
        tags = {
            name.removeprefix(RETRY_PREFIX): value if isinstance(value, str) else value.decode()
            for name, value in _texts(group.tags)
            if name.startswith(RETRY_PREFIX)
        }
        return RetryMark(
            origin=Origin(
                project=tags["project"], logstore=tags["logstore"], consumer_group=tags["consumer_group"]
            ),
            shard=int(tags["shard"]),
            cursor=decode_cursor(tags["cursor"]),
            attempts=int(tags["attempts"]),
            retries=int(tags["retries"]),
            not_before_unix_s=int(tags["not_before_ms"]) / 1000,
            delay_s=int(tags["delay_ms"]) / 1000,
        )
    except (MalformedLogGroup, MalformedCursor, UnicodeDecodeError, KeyError, ValueError):
        return None


def _texts(tags: Iterable[tuple[str | bytes, str | bytes]]) -> Iterable[tuple[str, str | bytes]]:
    return ((name if isinstance(name, str) else name.decode(), value) for name, value in tags)
