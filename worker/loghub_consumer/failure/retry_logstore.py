"""A logstore in which logs wait that were refused too often, before they are skipped or dead-lettered.

A log group is written with its origin, the number of deliveries, the number of waits, and the time before
which it must not be tried. The same workers read it there, as a consumer group of their own. The wait is
never longer than the delay itself, whatever the clocks of writer and reader say.

Every client that can write to the logstore can write marks, too. So a mark counts only if a consumer could
have written every part of it: its names become a path in a dead-letter folder, and its numbers times.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loghub.wire import loggroup, names
from loghub.wire.cursor import decode as decode_cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The group that reads the logs: their project, logstore and consumer group. A subscription has its name
    in place of the group's."""

    project: str
    logstore: str
    consumer_group: str
    is_subscription: bool = False


RETRY_PREFIX = "retry_"
SUBSCRIPTION_KIND = "subscription"  # the tag "kind" of logs that a subscription reads; a group has none
FIRST_TAG = f"{RETRY_PREFIX}project"  # the first of the tags that are written with waiting logs
MAX_SHARD, MAX_COUNT = 2**31, 10**6
MAX_MS = 10**15  # in unix milliseconds, 31,700 years: larger numbers would overflow the conversion to a time


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryMark:
    """The tags of waiting logs as a value. `shard` and `cursor` are the place in the origin."""

    origin: Origin
    shard: int
    cursor: int
    attempts: int
    retries: int  # how often they have waited, including this time
    not_before_unix_s: float
    delay_s: float

    def wait_s(self, unix_s: float) -> float:
        """How long they must still wait."""
        return min(self.delay_s, max(0.0, self.not_before_unix_s - unix_s))


def mark_of(raw: bytes) -> RetryMark | None:
    """The mark of a log group; None without a readable mark, for example if another client wrote it."""
    try:
        group = loggroup.decode(raw)
        tags = {
            name.removeprefix(RETRY_PREFIX): value if isinstance(value, str) else value.decode()
            for name, value in _texts(group.tags)
            if name.startswith(RETRY_PREFIX)
        }
        return RetryMark(
            origin=_origin(tags),
            shard=_number(tags["shard"], maximum=MAX_SHARD),
            cursor=decode_cursor(tags["cursor"]),
            attempts=_number(tags["attempts"], maximum=MAX_COUNT),
            retries=_number(tags["retries"], maximum=MAX_COUNT),
            not_before_unix_s=_number(tags["not_before_ms"], maximum=MAX_MS) / 1000,
            delay_s=_number(tags["delay_ms"], maximum=MAX_MS) / 1000,
        )
    except (ValueError, KeyError):  # errors of malformed names, cursors and log groups are ValueErrors
        return None


def _origin(tags: Mapping[str, str]) -> Origin:
    """Raises MalformedName and KeyError."""
    is_subscription = tags.get("kind") == SUBSCRIPTION_KIND
    rule = names.SUBSCRIPTION if is_subscription else names.CONSUMER_GROUP
    return Origin(
        project=names.PROJECT.check(tags["project"]),
        logstore=names.LOGSTORE.check(tags["logstore"]),
        consumer_group=rule.check(tags["consumer_group"]),
        is_subscription=is_subscription,
    )


def _number(text: str, *, maximum: int) -> int:
    """The number of a tag. Raises ValueError unless it is from 0 to `maximum`."""
    number = int(text)
    if not 0 <= number <= maximum:
        raise ValueError(f"{text[:40]} is not from 0 to {maximum}")
    return number


def _texts(tags: Iterable[tuple[str | bytes, str | bytes]]) -> Iterable[tuple[str, str | bytes]]:
    return ((name if isinstance(name, str) else name.decode(), value) for name, value in tags)
