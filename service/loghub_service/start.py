"""Opens an engine with its data: reads, decides whether the data is whole, and only then changes anything.

The start refuses data of which something acknowledged is missing (`loghub_service.diagnosis`). It finishes
what a crash interrupted: removals, torn tails, unfinished files. `Survey` reads the data folder for the
diagnosis without changing it; `loghub fsck` uses it, too.
"""

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import structlog
from msgspec.structs import replace

from loghub.domain import coordinator
from loghub.domain.group import ShardsChanged
from loghub_service.diagnosis import (
    CatalogState,
    DataRefused,
    Finding,
    FindingKind,
    LogState,
    diagnose_catalog,
    diagnose_log,
)
from loghub_service.engine import Engine
from loghub_service.errors import ServiceFault
from loghub_service.facts import FolderRemoved, FolderStarted, LogstoreSaved, ProjectSaved, ShardSaved
from loghub_service.groups import RegisteredGroup
from loghub_service.kafka.groups import KafkaGroupKey
from loghub_service.kafka.producers import LaterBatches
from loghub_service.ports import Disk, Platform
from loghub_service.producer_journal import LaterSent, read_later
from loghub_service.pulsar.sequences import LaterSequences
from loghub_service.removals import Removal
from loghub_service.settings import ServiceSettings
from loghub_service.storage.data_folder import (
    DATABASE_NAME,
    DamagedState,
    FolderState,
    FoundFolders,
    describe,
    find_folders,
    is_described,
    logstore_folder,
    read_state,
    remove_tree,
    shard_folder,
    write_state,
)
from loghub_service.storage.database import Database, UsedCursor
from loghub_service.storage.group_commit import Batches, StartBatches, Task, ThreadedBatches, run_together
from loghub_service.storage.log_inspection import inspect_log
from loghub_service.storage.shardlog import ShardLog

Key = tuple[int, int]  # logstore, shard


@dataclass(slots=True, kw_only=True)
class Survey:
    """The data folder as it was read; ``logs`` has the inspected shards of the catalog."""

    data: str
    state: FolderState | None
    state_damage: str  # why the state cannot be read; "" if it can
    catalog: CatalogState
    folders: FoundFolders
    logs: dict[Key, LogState] = field(default_factory=dict)

    def findings(self) -> list[Finding]:
        of_logs = (diagnose_log(log) for _, log in sorted(self.logs.items()))
        of_catalog = diagnose_catalog(self.catalog, self.state, self.folders, self.state_damage)
        return [*of_catalog, *chain.from_iterable(of_logs)]


def survey_catalog(disk: Disk, data: str, database: Database | None, *, has_wal: bool) -> Survey:
    """Read everything but the logs.

    ``database`` is None if there is none. ``has_wal``: whether its write-ahead log existed before it was
    opened. Raises OSError, DatabaseUnusable.
    """
    state, state_damage = None, ""
    try:
        state = read_state(disk, data)
    except DamagedState as error:
        state_damage = str(error)
    catalog = _catalog_state(database, has_wal=has_wal)
    return Survey(
        data=data,
        state=state,
        state_damage=state_damage,
        catalog=catalog,
        folders=find_folders(disk, data, set(catalog.shards)),
    )


def survey_log(
    disk: Disk, survey: Survey, shard: ShardSaved, *, before_read: Callable[[], None] = lambda: None
) -> None:
    """Inspect the log of one shard. Raises OSError, WriteFailed, and the errors of ``before_read``."""
    key = (shard.logstore, shard.shard)
    known_end = survey.catalog.ends.get(key)
    inspection = inspect_log(
        disk,
        shard_folder(survey.data, shard.logstore, shard.shard),
        oldest_cursor=None if known_end is None else known_end.oldest_cursor,
        before_read=before_read,
        is_clean=survey.state is not None and survey.state.clean,
    )
    store = survey.catalog.logstores[shard.logstore]
    survey.logs[key] = LogState(
        shard=shard,
        title=f"{store.project}/{store.name} shard {shard.shard} ({inspection.folder})",
        inspection=inspection,
        known_end=known_end,
        used=survey.catalog.used.get(key, ()),
    )


def _catalog_state(database: Database | None, *, has_wal: bool) -> CatalogState:
    if database is None:
        return CatalogState(history=None, has_write_ahead_log=has_wal)
    facts = database.catalog_facts()
    used: defaultdict[Key, list[UsedCursor]] = defaultdict(list)
    for cursor in database.used_cursors():
        used[cursor.logstore, cursor.shard].append(cursor)
    return CatalogState(
        history=database.history(),
        has_write_ahead_log=has_wal,
        projects=frozenset(fact.name for fact in facts if isinstance(fact, ProjectSaved)),
        logstores={fact.id: fact for fact in facts if isinstance(fact, LogstoreSaved)},
        shards={(fact.logstore, fact.shard): fact for fact in facts if isinstance(fact, ShardSaved)},
        deletions=frozenset((gone.logstore, gone.shard) for gone in database.deletions()),
        ends={(end.logstore, end.shard): end for end in database.known_ends()},
        used={key: tuple(cursors) for key, cursors in used.items()},
    )


_log = structlog.get_logger("loghub_service")
_FOLDER_ID_DIGITS = 32  # 128 random bits: two folders never have the same identity


class StartCancelled(ServiceFault):
    """The service was asked to stop while it recovered its data."""


@dataclass(slots=True)
class RecoveryProgress:
    """How far a recovery is, also for other threads. Set ``cancelled`` to end it.

    A shard takes two ``steps``: its log is read, and then made durable.
    """

    shards: int = 0
    steps: int = 0
    cancelled: bool = False
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        if self.cancelled:
            raise StartCancelled("stopped during the recovery")

    def step(self) -> None:
        with self._counting:
            self.steps += 1

    @property
    def done(self) -> int:
        """How many shards are recovered."""
        return self.steps // 2

    def __str__(self) -> str:
        return f"recovering {self.done} of {self.shards} shards"


async def open_engine(
    settings: ServiceSettings,
    platform: Platform,
    *,
    on_failed: Callable[[BaseException], None],
    start_batches: StartBatches = ThreadedBatches,
    progress: RecoveryProgress | None = None,
) -> Engine:
    """An engine with all its data restored, ready for requests.

    ``on_failed`` is called once, on the event loop, when storage has failed permanently. Raises DataRefused,
    DatabaseUnusable, StartCancelled, WriteFailed, OSError.
    """
    disk, path = platform.disk, f"{settings.data}/{DATABASE_NAME}"
    has_wal = os.path.exists(f"{path}-wal")
    if not os.path.exists(path):
        # Opening the database creates it, which would hide that it was missing.
        _refuse(survey_catalog(disk, settings.data, None, has_wal=has_wal))
    database = Database(path)
    disk.sync_dir(settings.data)
    engine = Engine(settings, platform, database, start_batches=start_batches, on_failed=on_failed)
    try:
        survey = survey_catalog(disk, settings.data, database, has_wal=has_wal)
        together: Batches[Task] = start_batches(
            name="recovery", commit=run_together, on_failed=on_failed, clock=platform.clock
        )
        try:
            await _Start(engine, database, survey, progress or RecoveryProgress(), together).run()
        finally:
            together.close()
    except BaseException:
        await engine.close()
        raise
    return engine


def _refuse(survey: Survey) -> None:
    findings = survey.findings()
    if any(finding.prevents_start for finding in findings):
        raise DataRefused(survey.data, findings)


class _Start:
    """The steps of one start, in order."""

    def __init__(
        self,
        engine: Engine,
        database: Database,
        survey: Survey,
        progress: RecoveryProgress,
        together: Batches[Task],
    ) -> None:
        """``together`` runs tasks that sync at the same time, each in a folder of its own."""
        self._together = together
        self._engine = engine
        self._disk = engine.disk
        self._data = engine.settings.data
        self._database = database
        self._survey = survey
        self._progress = progress
        self._shards = sorted(survey.catalog.shards.values(), key=lambda shard: (shard.logstore, shard.shard))

    async def run(self) -> None:
        _refuse(self._survey)
        state = self._survey.state
        if state is not None and not state.merged:
            # Opening the database wrote to it.
            write_state(self._disk, self._data, replace(state, merged=True))
        self._restore_catalog()
        self._progress.shards = len(self._shards)
        await self._engine.on_file_thread(self._read_logs)
        _refuse(self._survey)
        for finding in self._survey.findings():
            if finding.kind is FindingKind.UNKNOWN_FILE:
                _log.warning("a file that is not of the service was left alone", path=finding.path)
        await self._restore_logs()
        await self._engine.on_file_thread(self._remove_empty_folders)
        await self._record()
        self._finish_removals()
        await self._restore_groups()
        self._restore_kafka_groups()
        for stored in self._database.subscriptions():
            self._engine.subscriptions.restore(stored)
        await self._restore_producers()

    def _restore_catalog(self) -> None:
        catalog = self._engine.catalog
        for fact in self._database.catalog_facts():
            catalog.apply(fact)
        for logstore, shard, offset in self._database.final_offsets():
            catalog.logstores_by_id[logstore].final_offsets[shard] = offset
        catalog.next_logstore_id = self._database.next_logstore_id()
        catalog.deleted_names = self._database.deleted_names()

    def _read_logs(self) -> None:
        """One shard after the other, since each may take the memory of a whole segment."""
        for shard in self._shards:
            self._progress.check()
            survey_log(self._disk, self._survey, shard, before_read=self._progress.check)
            self._progress.step()

    async def _restore_logs(self) -> None:
        """Cut torn tails, and make the records durable before anything is read: several shards at the same
        time, since a sync mostly waits."""
        engine = self._engine
        engine.ends.restore(self._survey.catalog.ends.values())
        futures = [self._submit(partial(self._restore_log, shard)) for shard in self._shards]
        restored = await asyncio.gather(*futures, return_exceptions=True)
        for shard, log in zip(self._shards, restored, strict=True):
            if isinstance(log, ShardLog):
                engine.put_log(shard, log)
        for failure in restored:
            if isinstance(failure, BaseException):
                raise failure

    def _submit(self, task: Task) -> "asyncio.Future[object]":
        future = self._together.submit(task)
        if future.done():  # without a thread; its error is known here, also if the next one ends the process
            future.exception()
        return future

    def _restore_log(self, shard: ShardSaved) -> ShardLog:
        self._progress.check()
        engine = self._engine
        inspection = self._survey.logs[shard.logstore, shard.shard].inspection
        self._describe(shard, has_file=inspection.is_described)
        log = engine.new_log(shard)
        log.restore(inspection, known_end=self._survey.catalog.ends.get((shard.logstore, shard.shard)))
        if inspection.torn_bytes:
            _log.warning(
                "incomplete record at the end of the log removed",
                **self._engine.catalog.named(shard.logstore),
                shard=shard.shard,
                bytes=inspection.torn_bytes,
            )
        self._progress.step()
        return log

    def _describe(self, shard: ShardSaved, *, has_file: bool) -> None:
        """Write the shard's description, which an earlier release did not write or left incomplete. A full
        disk must not prevent the start."""
        store = self._survey.catalog.logstores[shard.logstore]
        folder = shard_folder(self._data, shard.logstore, shard.shard)
        try:
            if not has_file or not is_described(self._disk, folder, describe(store, shard)):
                self._engine.describe(store, shard)
        except OSError as error:
            named = self._engine.catalog.named(shard.logstore)
            _log.warning("description of a shard not written", **named, shard=shard.shard, error=str(error))

    def _remove_empty_folders(self) -> None:
        """Remove the folders of shards whose creation was never persisted, and which never got a record.

        Before anything is created: their numbers are given again.
        """
        folders = self._survey.folders
        for found_folder in folders.shards:
            if found_folder.is_empty:
                _log.info("folder of a shard that was never created removed", path=found_folder.path)
                remove_tree(self._disk, found_folder.path)
        for logstore in {*folders.bare, *(found.logstore for found in folders.shards)}:
            folder = logstore_folder(self._data, logstore)
            if logstore not in self._survey.catalog.logstores and not self._disk.list_names(folder):
                self._disk.remove_dir(folder)

    async def _record(self) -> None:
        """Count this start in the catalog, then in the folder: an older catalog is recognized from now on."""
        engine = self._engine
        folder = engine.history.folder or engine.random.hex(_FOLDER_ID_DIGITS)
        # Until the folder knows the first start, each attempt is the first one: a catalog that knows more was
        # used with another folder.
        starts = 1 if self._survey.state is None else engine.history.starts + 1
        await engine.submit(FolderStarted(folder=folder, starts=starts))
        state = FolderState(folder=folder, starts=starts, clean=False, merged=False)
        await engine.on_file_thread(partial(write_state, self._disk, self._data, state))
        engine.state = state

    def _finish_removals(self) -> None:
        """Go on with the removals that a crash interrupted."""
        removals = self._engine.removals
        for logstore, shard in sorted(self._survey.catalog.deletions, key=str):
            folder = (
                logstore_folder(self._data, logstore)
                if shard is None
                else shard_folder(self._data, logstore, shard)
            )
            removals.add(Removal(folder=folder, done=FolderRemoved(logstore=logstore, shard=shard)))
        for log in self._survey.logs.values():
            if log.inspection.expired:
                removals.add(Removal(folder=log.inspection.folder, files=tuple(log.inspection.expired)))

    async def _restore_groups(self) -> None:
        """Give every persisted holder a new session, and each group its logstore's current shards."""
        engine = self._engine
        for logstore, name, timeout_s, order in self._database.groups():
            state = coordinator.restore(
                group=name,
                timeout_s=timeout_s,
                order=order,
                entries=self._database.group_entries(logstore=logstore, group=name),
                now=engine.clock.monotonic_s(),
            )
            group = RegisteredGroup(logstore=logstore, state=state)
            engine.groups.restore(group)
            shards = engine.log_shards(engine.catalog.logstores_by_id[logstore])
            await engine.groups.apply_durably(group, ShardsChanged(shards=shards))

    def _restore_kafka_groups(self) -> None:
        """Give every member a new session."""
        groups = self._engine.kafka_groups
        for saved in self._database.kafka_groups():
            groups.restore(KafkaGroupKey(saved.project, saved.group), saved.facts)
        groups.open()

    async def _restore_producers(self) -> None:
        """Restore the saved state of producers, and add the later batches in the logs."""
        engine = self._engine
        marks = {engine.logs[mark.logstore, mark.shard]: mark for mark in self._database.producer_marks()}
        maximum = engine.producers.maximum
        later = LaterSent(LaterBatches(self._database.producers(), maximum), LaterSequences(maximum))
        for log, mark in marks.items():
            await engine.on_file_thread(partial(read_later, log, mark.logstore, mark.cursor, later))
            self._progress.check()
        engine.declarations.restore(self._database.schemas(), self._database.producer_epochs())
        cursors = {log: mark.cursor for log, mark in marks.items()}
        await engine.producers.restore(self._database.sequences(), later, cursors)
