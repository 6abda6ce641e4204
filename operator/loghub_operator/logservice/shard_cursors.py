"""Requests the begin and end cursors of each shard until a deadline.

The real SLS reveals a lag only through cursors, one call each, so with many shards or a slow endpoint a
reconcile would take longer than liveness allows. No request begins after `QUERY_BOUND_S`; the cursors of a
shard that was not reached are None and `late`. Read-only shards come first: their end cursors never move
(docs/sls-protocol.md 4.3, 5) and are cached, so that each observation, however short, leaves fewer requests
for the next.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from loghub.client.port import LogHub, ShardInfo
from loghub.clock import Clock
from loghub.wire import cursor as wire_cursor
from loghub_operator.logservice.deadline import Deadline

# Together with the surrounding calls, far below `loghub_operator.controller.liveness.SHORTEST_BOUND_S`.
QUERY_BOUND_S = 30.0
MOST_CACHED = 20_000
Name = tuple[str, str, str]  # endpoint, project, logstore


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCursors:
    """Cursors of one shard. None: not requested, because time ran out or because nothing depends on it."""

    begin: int | None = None
    end: int | None = None
    next_received_unix_s: int | None = None  # of the log group after the checkpoint
    late: bool = False  # a cursor that the lag depends on was not requested before the deadline


class EndCursorCache:
    """End cursors of read-only shards; evicts the least recently used, and is safe to use from threads."""

    def __init__(self, most: int = MOST_CACHED) -> None:
        self._most = most
        self._ends: OrderedDict[tuple[Name, int, int], int] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, logstore: Name, shard: ShardInfo) -> int | None:
        """The cached end cursor; None if it is unknown or may still move."""
        if not shard.read_only:
            return None
        with self._lock:
            key = (logstore, shard.shard, shard.created_unix_s)
            if key in self._ends:
                self._ends.move_to_end(key)
            return self._ends.get(key)

    def put(self, logstore: Name, shard: ShardInfo, end: int) -> None:
        """Caches the end of ``shard``, which was listed before its end was requested. A shard without a
        creation time is not cached: it cannot be distinguished from a shard of a recreated logstore."""
        if not shard.read_only or shard.created_unix_s <= 0:
            return
        with self._lock:
            self._ends[logstore, shard.shard, shard.created_unix_s] = end
            while len(self._ends) > self._most:
                self._ends.popitem(last=False)


class CursorQuery:
    """The requests of one observation of one logstore."""

    def __init__(self, client: LogHub, logstore: Name, *, clock: Clock, cache: EndCursorCache) -> None:
        self._client = client
        self._logstore = logstore
        self._cache = cache
        self._deadline = Deadline(clock, QUERY_BOUND_S)

    def cursors(
        self, shards: Iterable[ShardInfo], saved: Mapping[int, int | None]
    ) -> dict[int, ShardCursors]:
        """The cursors of every shard; ``saved`` are the checkpoints by shard."""
        ordered = sorted(shards, key=lambda one: (not one.read_only, one.shard))
        return {one.shard: self._cursors(one, saved.get(one.shard)) for one in ordered}

    def _cursors(self, shard: ShardInfo, saved: int | None) -> ShardCursors:
        end = self._end(shard)
        if end is None:
            return ShardCursors(late=True)
        if saved is not None and saved >= end:
            return ShardCursors(end=end)
        if self._deadline.is_over():
            return ShardCursors(end=end, late=True)
        begin = self._cursor(shard, "begin")
        if saved is None or begin >= end:
            return ShardCursors(begin=begin, end=end)
        if self._deadline.is_over():
            return ShardCursors(begin=begin, end=end, late=True)
        following = wire_cursor.encode(max(saved, begin))
        received = self._client.get_cursor_time(self._logstore[2], shard.shard, following)
        return ShardCursors(begin=begin, end=end, next_received_unix_s=received)

    def _end(self, shard: ShardInfo) -> int | None:
        end = self._cache.get(self._logstore, shard)
        if end is None and not self._deadline.is_over():
            end = self._cursor(shard, "end")
            self._cache.put(self._logstore, shard, end)
        return end

    def _cursor(self, shard: ShardInfo, position: Literal["begin", "end"]) -> int:
        return wire_cursor.decode(self._client.get_cursor(self._logstore[2], shard.shard, position))
