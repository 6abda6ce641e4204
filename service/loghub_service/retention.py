"""Retention: drops log groups that are older than their logstore's ttl.

A dropped log group cannot be brought back, and a wrong clock must not drop anything. Times therefore come
from a `SteadyClock` that needs a day to believe a jump, and are never later than the wall clock. From one run
of the service to the next they advance by at most a day, and by no more than the wall clock did: a wrong
clock counts once, however often the service starts with it. A look after which the clocks do not agree drops
nothing, and each look drops a bounded number of segments.
"""

import os

import structlog

from loghub_service.catalog import Logstore
from loghub_service.engine import Engine
from loghub_service.facts import ExpiryReached
from loghub_service.ports import BELIEVED_S, TOLERANCE_S, SteadyClock, goes_on_from
from loghub_service.removals import Removal
from loghub_service.settings import KEEP_FOREVER_DAYS

_log = structlog.get_logger("loghub_service")
_DAY_US = 86_400_000_000
_SAVE_EVERY_US = 600_000_000  # ten minutes: logs expire by days, and each save is a commit
MAX_SEGMENTS = 256  # of one shard in one look: 4 GiB, so that one look does not keep the log thread


class Retention:
    """The retention of one engine. Create it when the engine is open, then call `look` periodically."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._clock = engine.clock
        wall_s = self._clock.unix_s()
        begin_s = goes_on_from(_last_expiry(engine), wall_s=wall_s)
        self._steady = SteadyClock(self._clock, settle_s=BELIEVED_S, begin_s=begin_s)
        self._seen = (wall_s, self._clock.monotonic_s())
        self._saved = engine.history.expiry
        self._steady_us = int(begin_s * 1_000_000)

    async def look(self) -> None:
        """Drop what has expired. Read-only shards that become empty are ``over`` in every group."""
        now_us = self._now_us()
        self._engine.now_us()  # the clock has to notice a jump now, too
        self._engine.removals.retry()
        if now_us is None:
            return
        for logstore in list(self._engine.catalog.logstores_by_id.values()):
            if logstore.saved.ttl_days < KEEP_FOREVER_DAYS:
                await self._drop_expired(logstore, now_us)
        await self._save(wall_us=int(self._seen[0] * 1_000_000))
        self._engine.kafka_groups.cleanup(now_us // 1000)

    async def _save(self, *, wall_us: int) -> None:
        last = self._saved
        reached = expiry_reached(last, steady_us=self._steady_us, wall_us=wall_us)
        if (
            last is None
            or reached.behind_us != last.behind_us
            or abs(reached.unix_us - last.unix_us) >= _SAVE_EVERY_US
        ):
            self._saved = reached
            await self._engine.submit(reached)

    def _now_us(self) -> int | None:
        """The time by which logs expire; None if the clocks do not agree since the last look."""
        wall_s, monotonic_s = self._clock.unix_s(), self._clock.monotonic_s()
        (wall_before_s, monotonic_before_s), self._seen = self._seen, (wall_s, monotonic_s)
        steady_s = self._steady.unix_s()
        self._steady_us = int(steady_s * 1_000_000)
        jump_s = (wall_s - wall_before_s) - (monotonic_s - monotonic_before_s)
        if abs(jump_s) > TOLERANCE_S:
            _log.warning("the wall clock jumped, so nothing expires for now", seconds=round(jump_s))
            return None
        return int(min(steady_s, wall_s) * 1_000_000)

    async def _drop_expired(self, logstore: Logstore, now_us: int) -> None:
        before_us = now_us - logstore.saved.ttl_days * _DAY_US
        dropped = 0
        for shard in list(logstore.shards):
            dropped += await self._drop_before(logstore.saved.id, shard, before_us, now_us)
        engine = self._engine
        if dropped and logstore.saved.id in engine.catalog.logstores_by_id:  # not deleted meanwhile
            await engine.groups.shards_changed(logstore.saved.id, engine.log_shards(logstore))

    async def _drop_before(self, logstore: int, shard: int, before_us: int, now_us: int) -> int:
        engine = self._engine
        log = engine.logs.get((logstore, shard))
        if log is None:
            return 0
        oldest = log.extent.oldest_cursor
        try:
            files = await engine.on_log_thread(
                lambda: log.expire(before_us, now_us=now_us, maximum=MAX_SEGMENTS)
            )
        except OSError as error:
            named = engine.catalog.named(logstore)
            _log.warning("expired log groups not removed, will retry", **named, shard=shard, error=str(error))
            return 0
        if not files:
            return 0
        # Durable before the first file goes: a later start must not take the missing ones for a loss.
        await engine.ends.save(log)
        engine.removals.add(Removal(folder=os.path.dirname(files[0]), files=tuple(files)))
        dropped = log.extent.oldest_cursor - oldest
        named = engine.catalog.named(logstore)
        _log.info("expired log groups removed", **named, shard=shard, log_groups=dropped)
        return dropped


def expiry_reached(last: ExpiryReached | None, *, steady_us: int, wall_us: int) -> ExpiryReached:
    """The facts to save when the clocks show these times. While the wall clock is behind the believed time,
    nothing new expires; the fact then has since when it is behind, and for the time that passes, the time
    that it showed before."""
    if steady_us <= wall_us + int(TOLERANCE_S * 1_000_000):
        return ExpiryReached(unix_us=min(steady_us, wall_us), wall_us=wall_us)
    before = last or ExpiryReached(unix_us=steady_us, wall_us=steady_us)
    return ExpiryReached(
        unix_us=steady_us,
        wall_us=before.wall_us + steady_us - before.unix_us,
        behind_us=before.behind_us if 0 < before.behind_us <= wall_us else wall_us,
    )


def _last_expiry(engine: Engine) -> ExpiryReached | None:
    """How far retention came; in the first run with this release, the time of the newest log group."""
    newest_us = max((log.extent.received_us for log in engine.logs.values()), default=None)
    if engine.history.expiry is not None or newest_us is None:
        return engine.history.expiry
    return ExpiryReached(unix_us=newest_us, wall_us=newest_us)
