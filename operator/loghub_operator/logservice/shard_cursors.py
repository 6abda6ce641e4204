"""Requests the begin and end cursors of each shard until a deadline, and finds the shards that begin at
spec.startPosition.

The real SLS reveals a lag only through cursors, one call each, so with many groups, many shards or a slow
endpoint the readings would become old. Hence three things: several requests of one observation run at a time;
what other groups of the logstore, or earlier observations, have read is not requested again while it is
valid; and no request begins after `QUERY_BOUND_S`, so that a reconcile ends before
`loghub_operator.controller.liveness` considers the process stuck, no matter how many shards there are or how
slow the endpoint is. The cursors of a shard that was not reached are None and `late`. Read-only shards come
first: their end cursors never move (docs/sls-protocol.md 4.3, 5), so that each observation, however short,
leaves fewer requests for the next.

The shards that existed when the group was created or adopted begin at spec.startPosition. Every later shard
continues the shards that it was split or merged from, so it begins at its own first log: `end` would skip
what was written before a worker opens it. Numbers of shards are never reused and ascend, so one number
separates the two kinds, without any clock.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from loghub.client.port import LogHub, ShardInfo
from loghub.clock import Clock
from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import LogHubError
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.model.observed import Available, LogServiceObserved, ShardObserved


class Deadline:
    """``within_s`` seconds from now; a call that has already begun continues within its own time limit."""

    def __init__(self, clock: Clock, within_s: float) -> None:
        self._clock = clock
        self._until_s = clock.monotonic_s() + within_s

    def is_over(self) -> bool:
        return self._clock.monotonic_s() >= self._until_s


def last_initial_shard(recorded: GroupRecord | None, service: LogServiceObserved) -> int | None:
    """The highest number of a shard that begins at spec.startPosition; None while nothing is known.

    A group that does not exist yet has read nothing, so its initial shards are the present ones. For an
    adopted group, a shard that was never read begins at its own first log if one of its ancestors was read,
    and so does every shard after it.
    """
    if isinstance(service, Available) and service.stored is None:
        return _highest(service.shards)
    if recorded is not None and recorded.is_about_ours and recorded.last_initial_shard is not None:
        return recorded.last_initial_shard
    if not isinstance(service, Available):
        return None
    continuing = _continuing(service.shards)
    return min(continuing) - 1 if continuing else _highest(service.shards)


def _highest(shards: tuple[ShardObserved, ...]) -> int | None:
    return max((shard.shard for shard in shards), default=None)


def _continuing(shards: tuple[ShardObserved, ...]) -> list[int]:
    """The shards that were never read, although an ancestor was. A parent's number is the lower one."""
    after_read = dict[int, bool]()  # whether the shard or an ancestor was read
    continuing = []
    for shard in sorted(shards, key=lambda shard: shard.shard):
        ancestor_read = any(after_read.get(parent, False) for parent in shard.parents)
        if ancestor_read and not shard.checkpoint:
            continuing.append(shard.shard)
        after_read[shard.shard] = ancestor_read or bool(shard.checkpoint)
    return continuing


# Together with the surrounding calls, far below `loghub_operator.controller.liveness.MIN_BOUND_S`.
QUERY_BOUND_S = 30.0
REQUESTS_AT_ONCE = 8  # of one observation
MAX_CACHED = 200_000  # two or three values for each shard of 500 groups with 64 shards
# A rate of arrival comes from two end cursors, at least one reconcile apart, so an end must be recent.
END_VALID_S = 5.0
# Retention moves a begin rarely, and a begin that is too early only shows a lag that expires anyway.
BEGIN_VALID_S = 300.0
FOREVER_S = float("inf")
Name = tuple[str, str, str]  # endpoint, project, logstore
# Runs a function so many times, in as many threads; raises what one of them raised.
RunAll = Callable[[Callable[[], None], int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCursors:
    """Cursors of one shard. None: not requested, because time ran out or because nothing depends on it."""

    begin: int | None = None
    end: int | None = None
    next_received_unix_s: int | None = None  # of the log group after the checkpoint
    late: bool = False  # a cursor that the lag depends on was not requested before the deadline


class CursorCache:
    """Cursors of the shards of all logstores; evicts the least recently used, and is safe to use from
    threads."""

    def __init__(self, clock: Clock, maximum: int = MAX_CACHED) -> None:
        self._clock = clock
        self._most = maximum
        self._values: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, logstore: Name, shard: ShardInfo, what: Hashable) -> int | None:
        """The value; None if it was never put, or is no longer valid."""
        with self._lock:
            value, until_s = self._values.get(_key(logstore, shard, what), (None, 0.0))
            if value is None or self._clock.monotonic_s() >= until_s:
                return None
            self._values.move_to_end(_key(logstore, shard, what))
            return value

    def put(self, logstore: Name, shard: ShardInfo, what: Hashable, value: int, *, valid_s: float) -> None:
        """Caches a value of ``shard``, which was listed before the value was requested. A shard without a
        creation time is not cached: it cannot be distinguished from a shard of a recreated logstore."""
        if shard.created_unix_s <= 0:
            return
        with self._lock:
            key = _key(logstore, shard, what)
            self._values[key] = (value, self._clock.monotonic_s() + valid_s)
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)


def _key(logstore: Name, shard: ShardInfo, what: Hashable) -> Hashable:
    """An end that was read while the shard accepted writes is not the end of the read-only shard."""
    return (logstore, shard.shard, shard.created_unix_s, shard.read_only, what)


class CursorQuery:
    """The requests of one observation of one logstore, none of which begins after ``bound_s``."""

    def __init__(
        self,
        client: LogHub,
        logstore: Name,
        *,
        clock: Clock,
        cache: CursorCache,
        run_all: RunAll,
        bound_s: float = QUERY_BOUND_S,
    ) -> None:
        self._client = client
        self._logstore = logstore
        self._cache = cache
        self._run_all = run_all
        self._deadline = Deadline(clock, bound_s)

    def cursors(
        self, shards: Iterable[ShardInfo], saved: Mapping[int, int | None]
    ) -> dict[int, ShardCursors]:
        """The cursors of every shard; ``saved`` are the checkpoints by shard."""
        todo = deque(sorted(shards, key=lambda one: (not one.read_only, one.shard)))
        cursors: dict[int, ShardCursors] = {}

        def work() -> None:
            while True:
                try:
                    shard = todo.popleft()
                except IndexError:
                    return
                try:
                    cursors[shard.shard] = self._cursors(shard, saved.get(shard.shard))
                except BaseException:
                    todo.clear()
                    raise

        self._run_all(work, min(REQUESTS_AT_ONCE, len(todo)))
        return cursors

    def _cursors(self, shard: ShardInfo, saved: int | None) -> ShardCursors:
        end = self._end(shard)
        if end is None:
            return ShardCursors(late=True)
        if saved is not None and saved >= end:
            return ShardCursors(end=end)
        begin = self._begin(shard)
        if begin is None:
            return ShardCursors(end=end, late=True)
        if saved is None or begin >= end:
            return ShardCursors(begin=begin, end=end)
        received = self._received(shard, max(saved, begin))
        return ShardCursors(begin=begin, end=end, next_received_unix_s=received, late=received is None)

    def _end(self, shard: ShardInfo) -> int | None:
        valid_s = FOREVER_S if shard.read_only else END_VALID_S
        return self._known(shard, "end", lambda: self._cursor(shard, "end"), valid_s=valid_s)

    def _begin(self, shard: ShardInfo) -> int | None:
        return self._known(shard, "begin", lambda: self._cursor(shard, "begin"), valid_s=BEGIN_VALID_S)

    def _received(self, shard: ShardInfo, position: int) -> int | None:
        """Requested once for each position: the log group there was received once."""
        return self._known(
            shard, position, lambda: self._request_received(shard, position), valid_s=FOREVER_S
        )

    def _request_received(self, shard: ShardInfo, position: int) -> int:
        def request(cursor: int) -> int:
            return self._client.get_cursor_time(self._logstore[2], shard.shard, wire_cursor.encode(cursor))

        try:
            return request(position)
        except LogHubError:
            # It may have expired since the begin was read.
            begin = self._cursor(shard, "begin")
            if begin <= position:
                raise
            self._cache.put(self._logstore, shard, "begin", begin, valid_s=BEGIN_VALID_S)
            return request(begin)

    def _known(
        self, shard: ShardInfo, what: Hashable, request: Callable[[], int], *, valid_s: float
    ) -> int | None:
        """The cached value, or a new one; None after the deadline."""
        value = self._cache.get(self._logstore, shard, what)
        if value is None and not self._deadline.is_over():
            value = request()
            self._cache.put(self._logstore, shard, what, value, valid_s=valid_s)
        return value

    def _cursor(self, shard: ShardInfo, position: Literal["begin", "end"]) -> int:
        return wire_cursor.decode(self._client.get_cursor(self._logstore[2], shard.shard, position))
