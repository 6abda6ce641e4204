"""One running service: the catalog, the shard logs, the consumer groups and the threads of storage.

The API actions in `loghub_service.api` operate on an `Engine`. It orders changes of memory and disk relative
to each other. `loghub_service.start` opens it with its data, and `loghub_service.retention` drops expired log
groups.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TypeVar, cast

import structlog
from msgspec.structs import replace

from loghub.domain.group import LogShard
from loghub_service.append_series import AppendSeries
from loghub_service.catalog import Catalog, Logstore
from loghub_service.declarations import Declarations
from loghub_service.dispatch.driver import DispatchContext, Dispatches
from loghub_service.dispatch.leases import Leases
from loghub_service.errors import WriteFailed
from loghub_service.facts import (
    CatalogFact,
    CursorsUsed,
    FolderRemoved,
    KafkaGroupStepped,
    LogstoreDeleted,
    LogstoreSaved,
    ServiceFact,
    ShardDeleted,
    ShardSaved,
)
from loghub_service.groups import GroupRegistry
from loghub_service.kafka.broker.store import position
from loghub_service.kafka.coordinator.facts import Fact as KafkaGroupFact
from loghub_service.kafka.groups import KafkaGroupKey, KafkaGroups
from loghub_service.known_ends import KnownEnds
from loghub_service.polls import Notifier, Polls
from loghub_service.ports import BELIEVED_S, Platform, SteadyClock, goes_on_from
from loghub_service.producer_journal import ProducerJournal
from loghub_service.removals import Removal, Removals
from loghub_service.settings import ServiceSettings
from loghub_service.storage.data_folder import (
    FolderState,
    describe,
    logstore_folder,
    shard_folder,
    write_description,
    write_state,
)
from loghub_service.storage.database import Database, DatabaseUnusable, FolderHistory
from loghub_service.storage.group_commit import (
    Append,
    Batches,
    CommitMonitor,
    LogItem,
    StartBatches,
    StorageFailed,
    Task,
    commit_logs,
    run_tasks,
    size_of,
)
from loghub_service.storage.log_inspection import LoadedSegments
from loghub_service.storage.segment import NewGroup, Room, reserved_for
from loghub_service.storage.segment_format import SALT_DIGITS, SegmentHeader
from loghub_service.storage.shardlog import ShardLog, ordinal_of
from loghub_service.storage.stored_group import raw_size
from loghub_service.subscription_registry import SubscriptionRegistry

_log = structlog.get_logger("loghub_service")
T = TypeVar("T")
_MEMBER_ID_DIGITS = 32  # random, so that member ids never repeat
# Hexadecimal and random: a folder that was restored from an older copy would give the same number again.
_GENERATION_DIGITS = 16
# Each check and each pull holds a few copies of 10 MiB, so this bounds memory; the remaining threads are for
# short lookups.
_CONCURRENT_CHECKS = 2
_CONCURRENT_PULLS = 4
# A jump of the wall clock that is corrected within this time leaves no trace in receive times. A jump back to
# before the time by which logs expire counts only after a day (`Engine.now_us`).
_SETTLE_S = 600.0


class Engine:
    """Open it with `loghub_service.start.open_engine` and close it with `close`, both on the event loop."""

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
        self.clock, self.random, self.disk = platform.clock, platform.random, platform.disk
        self.history: FolderHistory = database.history()
        self.state: FolderState | None = None  # None until the start is recorded
        self.catalog = Catalog()
        self.admin = asyncio.Lock()  # serializes changes of projects, logstores and shards
        self.checking = asyncio.Semaphore(_CONCURRENT_CHECKS)
        self.pulling = asyncio.Semaphore(_CONCURRENT_PULLS)
        self.logs: dict[tuple[int, int], ShardLog] = {}
        self.log_changes = Notifier()  # keys are `ShardLog`: an append, or the deletion
        self.polls = Polls(settings.limits)
        self.sealing: dict[tuple[int, int], asyncio.Event] = {}
        self._steady = SteadyClock(platform.clock, settle_s=_SETTLE_S)
        self._believed = _believed_clock(platform, self.history)
        self._min_cursor = self.history.min_cursor
        self._database, self._report_failed = database, on_failed
        self._loaded = LoadedSegments(platform.disk)
        self._log_batches: Batches[LogItem] = start_batches(
            name="log-commit",
            commit=commit_logs,
            on_failed=self._failed,
            clock=platform.clock,
            size=size_of,
            max_size=settings.limits.batch_bytes,
        )
        self._fact_batches: Batches[tuple[ServiceFact, ...]] = start_batches(
            name="fact-commit", commit=database.commit, on_failed=self._failed, clock=platform.clock
        )
        self.groups = GroupRegistry(
            clock=platform.clock,
            batches=self._fact_batches,
            tick_interval_s=settings.tick_interval_s,
            named=self.catalog.named,
        )
        self.kafka_groups = self._new_kafka_groups()
        self.subscriptions = self._new_subscriptions()
        self.dispatches = self._new_dispatches()
        self.sessions = Leases(self.clock, self.dispatches)
        self.producers = ProducerJournal(settings.kafka_limits.producers, self.submit, self.logs)
        self.declarations = Declarations(self.submit, self.catalog.logstores_by_id)
        self._file_batches: Batches[Task] = start_batches(
            name="files", commit=run_tasks, on_failed=self._failed, clock=platform.clock
        )
        self.ends = KnownEnds(self.submit)
        self.removals = Removals(self.disk, self._file_batches, self._loaded, persist=self.submit)
        self._actions: set[asyncio.Task[object]] = set()  # that continue without their requests

    def _new_subscriptions(self) -> SubscriptionRegistry:
        return SubscriptionRegistry(
            submit=self.submit,
            named=self.catalog.named,
            limits=self.settings.subscriptions,
            max_subscriptions=self.settings.limits.subscriptions,
            new_generation=partial(self.random.hex, _GENERATION_DIGITS),
        )

    def _new_dispatches(self) -> Dispatches:
        return Dispatches(
            DispatchContext(
                clock=self.clock,
                watch=self.log_changes.watch,
                unix_s=lambda: self.now_us() / 1_000_000,
                forget=self.subscriptions.forget,
            )
        )

    def _new_kafka_groups(self) -> KafkaGroups:
        limits = self.settings.kafka_limits
        groups = KafkaGroups(
            clock=self.clock,
            persist=self._persist_kafka_group,
            new_id=partial(self.random.hex, _MEMBER_ID_DIGITS),
            limits=self.settings.kafka_groups,
            max_groups=limits.groups,
            max_bytes=limits.group_bytes,
        )
        groups.has_project = self.catalog.projects.__contains__
        return groups

    @property
    def commits(self) -> dict[str, CommitMonitor]:
        """The commit threads by what they commit."""
        return {
            "logs": self._log_batches.monitor,
            "metadata": self._fact_batches.monitor,
            "files": self._file_batches.monitor,
        }

    def _failed(self, error: BaseException) -> None:
        """Storage has failed: this run does not end cleanly, whatever is saved from now on."""
        self.state = None
        self._report_failed(error)

    async def close(self) -> None:
        """Finish the submitted items, save the ends of the logs, and close all files."""
        self.kafka_groups.close()
        self.sessions.close()
        self.dispatches.close()
        self.subscriptions.close()
        if self._actions:
            await asyncio.wait(self._actions)
        async with AsyncExitStack() as stack:  # the last one pushed comes first
            stack.callback(self._database.close)
            stack.push_async_callback(asyncio.to_thread, self._record_clean_stop)
            stack.push_async_callback(asyncio.to_thread, self._fact_batches.close)
            stack.push_async_callback(self._save_ends)
            stack.push_async_callback(self._save_producers)
            stack.push_async_callback(asyncio.to_thread, self._log_batches.close)
            stack.push_async_callback(asyncio.to_thread, self._file_batches.close)
        for log in self.logs.values():
            log.close()

    async def _save_ends(self) -> None:
        with suppress(StorageFailed):  # the failure is the reason why the service stops
            await self.ends.save()

    async def _save_producers(self) -> None:
        with suppress(StorageFailed):  # without the saved state the next start reads the logs
            await self.producers.save()

    def _record_clean_stop(self) -> None:
        """From now on the database has the exact ends, and is complete without its write-ahead log."""
        if self.state is None:
            return
        try:
            self._database.merge_write_ahead_log()
            write_state(self.disk, self.settings.data, replace(self.state, clean=True, merged=True))
        except (DatabaseUnusable, WriteFailed, OSError) as error:
            _log.warning("clean stop not recorded", error=str(error))

    async def to_the_end(self, action: Coroutine[object, object, T]) -> T:
        """The result of an action that changes the catalog. The action is completed even if the request that
        waits for it is cancelled because its client has left. Half of an action would leave memory and disk
        with different catalogs, and the next change would overwrite one with the other."""
        task = asyncio.get_running_loop().create_task(action)
        self._actions.add(task)
        task.add_done_callback(self._actions.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # The result is not needed any more.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    # Facts

    async def persist(self, *facts: CatalogFact) -> None:
        """Persist a creation or change: durable first, then in memory. The caller holds `admin`."""
        await self._fact_batches.submit(facts)
        for fact in facts:
            self.catalog.apply(fact)

    async def persist_deletion(self, *facts: CatalogFact) -> None:
        """Persist a deletion: in memory first, so that no later commit refers to the deleted objects."""
        facts = tuple(self._with_next_ordinal(fact) for fact in facts)
        for fact in facts:
            if isinstance(fact, LogstoreDeleted):
                self.subscriptions.forget_logstore(fact.id)
        used = CursorsUsed(end_cursor=max(map(self._used_cursor, facts)))
        self._min_cursor = max(self._min_cursor, used.end_cursor)
        for fact in facts:
            self.catalog.apply(fact)
        await self._fact_batches.submit((*facts, used))

    def _with_next_ordinal(self, fact: CatalogFact) -> CatalogFact:
        if not isinstance(fact, LogstoreDeleted):
            return fact
        store = self.catalog.logstores_by_id[fact.id]
        logs = [log for (logstore, _), log in self.logs.items() if logstore == fact.id]
        ends = [ordinal_of(log, log.extent.end_cursor) for log in logs]
        ends += [position(offset)[0] + 1 for offset in store.final_offsets.values()]
        # Log groups that are being written now may still be read by requests that began before the deletion.
        on_the_way = self._log_batches.monitor.waiting
        used = max(ends, default=store.saved.first_ordinal) + on_the_way
        return LogstoreDeleted(id=fact.id, project=fact.project, name=fact.name, next_ordinal=used)

    def _used_cursor(self, fact: CatalogFact) -> int:
        """The highest end of the logs that a fact deletes."""
        match fact:
            case LogstoreDeleted():
                logs = [log for (logstore, _), log in self.logs.items() if logstore == fact.id]
            case ShardDeleted():
                logs = [self.logs[fact.logstore, fact.shard]]
            case _:
                logs = []
        return max((log.extent.end_cursor for log in logs), default=0)

    def _persist_kafka_group(
        self, key: KafkaGroupKey, facts: tuple[KafkaGroupFact, ...]
    ) -> "asyncio.Future[object]":
        return self.submit(KafkaGroupStepped(project=key.project, group=key.group_id, facts=facts))

    def submit(self, *facts: ServiceFact) -> "asyncio.Future[object]":
        """Persist facts that change nothing in memory; the future is done when they are durable."""
        return self._fact_batches.submit(facts)

    # Log data

    def append(
        self, log: ShardLog, group: bytes, *, logs: int, series: AppendSeries | None = None
    ) -> "asyncio.Future[int]":
        """Append a log group in its stored form (`stored_group`). The order of calls is the order of the
        groups; the future is done when the group is durable and readable, and its result is the group's
        cursor. It raises OSError if there is no room, or was none for an earlier group of the series."""
        new = NewGroup(group=group, logs=logs, received_us=self.now_us())
        append = Append(log=log, new=new, series=series)
        appended = cast("asyncio.Future[int]", self._log_batches.submit(append))
        size = raw_size(group)
        appended.add_done_callback(lambda _: self._appended(log, size))
        return appended

    def _appended(self, log: ShardLog, size: int) -> None:
        """Wake readers. After a failed append, too: they then find nothing new."""
        self.ends.appended(log)
        self.log_changes.notify(log, size)

    async def on_log_thread(self, task: Callable[[], T]) -> T:
        """Run a task after every append submitted before it, and never concurrently with an append."""
        return cast("T", await self._log_batches.submit(task))

    async def on_file_thread(self, task: Callable[[], T]) -> T:
        """Run a task that may take long, concurrently with appends."""
        return cast("T", await self._file_batches.submit(task))

    def new_log(self, shard: ShardSaved) -> ShardLog:
        """An empty log for a shard; `ShardLog.restore` adds the content of the disk."""
        log = ShardLog(
            self.disk,
            folder=shard_folder(self.settings.data, shard.logstore, shard.shard),
            birth=SegmentHeader(
                first_cursor=shard.first_cursor,
                logs_before=0,
                received_us=shard.born_us,
                salt=int(self.random.hex(SALT_DIGITS), 16),
            ),
            room=_room(self.settings),
            files=self._loaded,
        )
        log.first_ordinal = self.catalog.logstores_by_id[shard.logstore].saved.first_ordinal
        return log

    async def create_shards(
        self, store: LogstoreSaved, created: Iterable[ShardSaved], *, closed: Iterable[ShardSaved] = ()
    ) -> None:
        """Create shards with their folders and empty logs, and persist them with their logstore and the
        shards that become read-only. The caller holds `admin`. Raises OSError if there is no room for the
        folders; then nothing has changed."""
        created = tuple(created)
        for shard in created:
            await self.on_file_thread(partial(self.describe, store, shard))
        await self.persist(store, *closed, *created)
        for shard in created:
            self.put_log(shard, self.new_log(shard))

    def describe(self, store: LogstoreSaved, shard: ShardSaved) -> None:
        """Write the shard's description into its folder. Blocks."""
        folder = shard_folder(self.settings.data, shard.logstore, shard.shard)
        self.disk.make_dirs(folder)
        write_description(self.disk, folder, describe(store, shard))

    def put_log(self, shard: ShardSaved, log: ShardLog) -> None:
        key = (shard.logstore, shard.shard)
        self.logs[key] = log
        self.ends.add(key, log)

    async def remove_log(self, *, logstore: int, shard: int) -> None:
        """Remove a shard's files in the background. Call it after its deletion is persisted."""
        await self._forget([(logstore, shard)])
        folder = shard_folder(self.settings.data, logstore, shard)
        self.removals.add(Removal(folder=folder, done=FolderRemoved(logstore=logstore, shard=shard)))

    async def remove_logs(self, logstore: int) -> None:
        await self._forget([key for key in self.logs if key[0] == logstore])
        folder = logstore_folder(self.settings.data, logstore)
        self.removals.add(Removal(folder=folder, done=FolderRemoved(logstore=logstore, shard=None)))

    async def _forget(self, keys: list[tuple[int, int]]) -> None:
        for key in keys:
            log = self.logs.pop(key, None)
            self.ends.remove(key)
            self.log_changes.notify(log)  # a request that waits for an append finds the log deleted
        await self.on_log_thread(lambda: None)  # no append creates a segment afterwards

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
        """The first cursor of a shard created at this time: the time in nanoseconds, so that no cursor of an
        earlier logstore with the same name is valid in this logstore, even if the clock was set back."""
        return max(born_us * 1000, self._min_cursor)

    def now_us(self) -> int:
        """The time at which log groups are received, in unix microseconds. Never before the time by which log
        groups expire: a log group that arrives while the wall clock is behind would count as old once the
        clock is corrected, and would be deleted."""
        return int(max(self._steady.unix_s(), self._believed.unix_s()) * 1_000_000)

    def now_s(self) -> int:
        return self.now_us() // 1_000_000


def _believed_clock(platform: Platform, history: FolderHistory) -> SteadyClock:
    begin_s = goes_on_from(history.expiry, wall_s=platform.clock.unix_s())
    return SteadyClock(platform.clock, settle_s=BELIEVED_S, begin_s=begin_s)


def _room(settings: ServiceSettings) -> Room:
    group_bytes = 0 if settings.kafka is None else settings.kafka_limits.group_bytes
    return Room(segment_bytes=settings.segment_bytes, reserved_bytes=reserved_for(group_bytes))


__all__ = ["Engine", "StorageFailed"]
