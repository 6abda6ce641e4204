"""When log groups were received, as a stateful pipeline has to know it.

The time of receipt is that of the log service's own clock, one for all shards, and never goes back in a shard
(docs/sls-protocol.md 2.1). What a log says of its time may be anything. So shards are levelled by receipt,
and no log is of later than its receipt: Spark's watermark follows the latest time that it sees, and never
goes back.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from loghub.client.port import LogHub
from loghub_worker.batch_plan import BatchPlan, levelled, ranges_to_date
from loghub_worker.log_service import decode_cursor, encode_cursor
from loghub_worker.source.parsed_lists import TIME_TYPE

PARALLEL = 16  # requests at the same time: as many connections as the client keeps
TIME, NANOSECONDS = "__time__", "__time_ns__"
SECOND_US = 1_000_000


class Receipts:
    """Asks a log service when log groups of a logstore were received."""

    def __init__(self, client: LogHub, *, logstore: str) -> None:
        self._client = client
        self._logstore = logstore
        self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="receipt")  # starts threads when needed

    def level(self, plan: BatchPlan, ends: Mapping[int, int]) -> BatchPlan:
        """The plan as `levelled` has it, of these ends as of now. Raises `LogHubException`."""
        lasts = {part.shard: part.end - 1 for part in ranges_to_date(plan, ends)}
        received = self._at_once(lasts, lambda shard: self._received_s(shard, lasts[shard]))
        return levelled(plan, ends, received=received, cursors=partial(self._cursors, plan))

    def _cursors(self, plan: BatchPlan, unix_s: int) -> dict[int, int]:
        shards = [part.shard for part in plan.ranges]
        return self._at_once(shards, lambda shard: self._cursor_at(shard, unix_s))

    def _received_s(self, shard: int, cursor: int) -> int:
        return self._client.get_cursor_time(self._logstore, shard, encode_cursor(cursor))

    def _cursor_at(self, shard: int, unix_s: int) -> int:
        return decode_cursor(self._client.get_cursor(self._logstore, shard, unix_s))

    def _at_once(self, shards: Iterable[int], ask: Callable[[int], int]) -> dict[int, int]:
        wanted = list(shards)
        return dict(zip(wanted, self._pool.map(ask, wanted), strict=True))


class TimesInBounds:
    """Bounds the times of the logs of one range, of which none was received after the second `latest_s`.

    A log that says a later time gets the latest time of the logs before it or next to it that do not. It then
    moves the watermark no further than they do, and is not late if they are not. If there are none, it gets
    `latest_s`."""

    def __init__(self, latest_s: int) -> None:
        self._latest_us = latest_s * SECOND_US
        self._known_us: int | None = None  # the latest time that lies within the bound
        self.ahead = 0  # logs whose times were replaced

    def bounded(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that follow, in the order of receipt."""
        if TIME not in rows.schema.names:
            return rows
        times = rows.column(TIME).cast(pa.int64())
        ahead = pc.greater_equal(times, self._latest_us + SECOND_US)
        found_us = pc.max(times.filter(pc.invert(ahead))).as_py()
        self._known_us = max((us for us in (self._known_us, found_us) if us is not None), default=None)
        number = pc.sum(ahead).as_py() or 0
        if not number:
            return rows
        self.ahead += number
        time_us = self._latest_us if self._known_us is None else self._known_us
        instead = {TIME: pa.scalar(time_us, pa.int64()).cast(TIME_TYPE), NANOSECONDS: None}
        for place, field in enumerate(rows.schema):
            if field.name in instead:
                kept = pc.if_else(ahead, pa.scalar(instead[field.name], field.type), rows.column(place))
                rows = rows.set_column(place, field, kept)
        return rows
