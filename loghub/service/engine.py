"""One running service: the catalog, the shard logs, the consumer groups and the commit threads.

The API actions in `loghub.service.api` operate on an `Engine`. It restores all state at startup, orders
changes of memory and disk relative to each other, and applies retention.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TypeVar, cast

import structlog

from loghub.domain import coordinator
from loghub.domain.group import LogShard, ShardsChanged
from loghub.service.catalog import Catalog, Logstore
from loghub.service.facts import CatalogFact, ServiceFact, ShardSaved
from loghub.service.group_registry import GroupRegistry, RegisteredGroup
from loghub.service.ports import Platform
from loghub.service.settings import KEEP_FOREVER_DAYS, ServiceSettings
from loghub.service.storage.batches import Batches, StartBatches, StorageFailed, ThreadedBatches
from loghub.service.storage.commits import Append, LogItem, commit_logs
from loghub.service.storage.database import Database
from loghub.service.storage.record import SegmentHeader
from loghub.service.storage.segment import NewGroup
from loghub.service.storage.shardlog import ShardLog, open_log

_log = structlog.get_logger("loghub.service")
T = TypeVar("T")
_DAY_US = 86_400_000_000


class Engine:
    """Create it with `open_engine` and close it with `close`, both on the event loop."""

    def __init__(
        self,
        settings: ServiceSettings,
        platform: Platform,
        database: Database,
        *,
        start_batches: StartBatches,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self.settings = settings
        self.clock = platform.clock
        self.dice = platform.dice
        self.catalog = Catalog()
        self.admin = asyncio.Lock()  # serializes changes of projects, logstores and shards
        self.logs: dict[tuple[int, int], ShardLog] = {}
        self.sealing: dict[tuple[int, int], asyncio.Event] = {}
        self._disk = platform.disk
        self._database = database
        self._log_batches: Batches[LogItem] = start_batches(
            name="log-commit", commit=commit_logs, on_failed=on_failed
        )
        self._fact_batches: Batches[tuple[ServiceFact, ...]] = start_batches(
            name="fact-commit", commit=database.commit, on_failed=on_failed
        )
        self.groups = GroupRegistry(clock=platform.clock, batches=self._fact_batches)

    # Start and stop

    def restore(self) -> None:
        """Restore the catalog and the shard logs. Blocks; call it before anything else. Raises LogDamaged."""
        for fact in self._database.catalog_facts():
            self.catalog.apply(fact)
        self.catalog.next_logstore_id = self._database.next_logstore_id()
        for logstore in self.catalog.logstores_by_id.values():
            for shard in logstore.shards.values():
                self._open_log(shard)
        self._remove_orphans()

    async def restore_groups(self) -> None:
        """Restore the groups: every persisted holder starts a new session, and each group learns its
        logstore's current shards."""
        for logstore, name, timeout_s, order in self._database.groups():
            state = coordinator.restore(
                group=name,
                timeout_s=timeout_s,
                order=order,
                entries=self._database.group_entries(logstore=logstore, group=name),
                now=self.clock.monotonic_s(),
            )
            group = RegisteredGroup(logstore=logstore, state=state)
            self.groups.restore(group)
            shards = self.log_shards(self.catalog.logstores_by_id[logstore])
            await self.groups.step(group, ShardsChanged(shards=shards))

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            stack.callback(self._database.close)
            stack.push_async_callback(asyncio.to_thread, self._fact_batches.close)
            stack.push_async_callback(asyncio.to_thread, self._log_batches.close)
        for log in self.logs.values():
            log.close()

    # Facts

    async def persist(self, *facts: CatalogFact) -> None:
        """Persist a creation or change: durable first, then in memory. The caller holds `admin`."""
        await self._fact_batches.submit(facts)
        for fact in facts:
            self.catalog.apply(fact)

    async def persist_deletion(self, *facts: CatalogFact) -> None:
        """Persist a deletion: in memory first, so that no later commit refers to what is deleted."""
        for fact in facts:
            self.catalog.apply(fact)
        await self._fact_batches.submit(facts)

    # Log data

    async def append(self, log: ShardLog, group: bytes, *, logs: int) -> None:
        """Append a log group, which is durable and readable on return. Raises OSError if there is no room."""
        new = NewGroup(group=group, logs=logs, received_us=self.now_us())
        await self._log_batches.submit(Append(log=log, new=new))

    async def on_log_thread(self, task: Callable[[], T]) -> T:
        """Run a task after every append submitted before it, and never concurrently with an append."""
        return cast("T", await self._log_batches.submit(task))

    async def add_log(self, shard: ShardSaved) -> None:
        """Create the folder and the empty log of a new shard. Call it before persisting the shard's fact."""
        await self.on_log_thread(lambda: self._open_log(shard))

    async def remove_log(self, *, logstore: int, shard: int) -> None:
        """Delete a shard's files. Call it after its deletion is persisted."""
        self.logs.pop((logstore, shard), None)
        await self.on_log_thread(lambda: self._disk.remove_tree(self._folder(logstore, shard)))

    async def remove_logs(self, logstore: int) -> None:
        for key in [key for key in self.logs if key[0] == logstore]:
            del self.logs[key]
        await self.on_log_thread(lambda: self._disk.remove_tree(self._folder(logstore)))

    def log_shards(self, logstore: Logstore) -> tuple[LogShard, ...]:
        """The shards of a logstore in the form that the coordinator uses."""
        return tuple(self._log_shard(shard) for shard in logstore.shards.values())

    def _log_shard(self, shard: ShardSaved) -> LogShard:
        extent = self.logs[shard.logstore, shard.shard].extent
        return LogShard(
            shard=shard.shard,
            parents=shard.spec.parents,
            begin_cursor=extent.oldest_cursor,
            end_cursor=extent.end_cursor if shard.spec.read_only else None,
        )

    # Time

    def first_cursor(self, born_us: int) -> int:
        """The first cursor of a shard created at this time: the time in nanoseconds, so that no cursor of
        an earlier logstore with the same name is valid in this logstore."""
        return born_us * 1000

    def now_us(self) -> int:
        return int(self.clock.unix_s() * 1_000_000)

    def now_s(self) -> int:
        return int(self.clock.unix_s())

    # Upkeep

    async def apply_retention(self) -> None:
        """Drop segments that are older than their logstore's ttl. Read-only shards that become empty are
        ``over`` in every group."""
        for logstore in list(self.catalog.logstores_by_id.values()):
            if logstore.saved.ttl_days >= KEEP_FOREVER_DAYS:
                continue
            before_us = self.now_us() - logstore.saved.ttl_days * _DAY_US
            dropped = 0
            for shard in list(logstore.shards):
                dropped += await self._drop_before(logstore.saved.id, shard, before_us)
            if dropped and logstore.saved.id in self.catalog.logstores_by_id:  # not deleted meanwhile
                await self.groups.shards_changed(logstore.saved.id, self.log_shards(logstore))

    async def _drop_before(self, logstore: int, shard: int, before_us: int) -> int:
        log = self.logs.get((logstore, shard))
        if log is None:
            return 0
        try:
            dropped = await self.on_log_thread(lambda: log.drop_before(before_us))
        except OSError as error:
            _log.warning(
                "expired log groups not removed, will retry", logstore=logstore, shard=shard, error=str(error)
            )
            return 0
        if dropped:
            _log.info("expired log groups removed", logstore=logstore, shard=shard, log_groups=dropped)
        return dropped

    def _open_log(self, shard: ShardSaved) -> None:
        folder = self._folder(shard.logstore, shard.shard)
        self._disk.make_dirs(folder)
        birth = SegmentHeader(first_cursor=shard.first_cursor, logs_before=0, received_us=shard.born_us)
        log, cut = open_log(self._disk, folder=folder, birth=birth, segment_bytes=self.settings.segment_bytes)
        if cut:
            _log.warning(
                "incomplete record at the end of the log removed",
                logstore=shard.logstore,
                shard=shard.shard,
                bytes=cut,
            )
        self.logs[shard.logstore, shard.shard] = log

    def _folder(self, logstore: int, shard: int | None = None) -> str:
        folder = f"{self.settings.data}/logs/{logstore:08d}"
        return folder if shard is None else f"{folder}/{shard:06d}"

    def _remove_orphans(self) -> None:
        """Remove folders whose deletion a crash interrupted, or whose creation was never persisted."""
        root = f"{self.settings.data}/logs"
        for name in self._disk.list_names(root):
            logstore = self.catalog.logstores_by_id.get(int(name)) if name.isdigit() else None
            if logstore is None:
                self._disk.remove_tree(f"{root}/{name}")
                continue
            for inner in self._disk.list_names(f"{root}/{name}"):
                if not inner.isdigit() or int(inner) not in logstore.shards:
                    self._disk.remove_tree(f"{root}/{name}/{inner}")


async def open_engine(
    settings: ServiceSettings,
    platform: Platform,
    *,
    on_failed: Callable[[BaseException], None],
    start_batches: StartBatches = ThreadedBatches,
) -> Engine:
    """An engine with all its data restored, ready for requests.

    ``on_failed`` is called once, on the event loop, when storage has failed permanently.
    """
    database = Database(f"{settings.data}/metadata.sqlite")
    platform.disk.sync_dir(settings.data)
    engine = Engine(settings, platform, database, start_batches=start_batches, on_failed=on_failed)
    try:
        engine.restore()
        await engine.restore_groups()
    except BaseException:
        await engine.close()
        raise
    return engine


__all__ = ["Engine", "StorageFailed", "open_engine"]
