"""Reads a data folder for a diagnosis, without changing it.

The start of the service and `loghub fsck` use it.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

from loghub.service.diagnosis import CatalogState, Finding, LogState, diagnose_catalog, diagnose_log
from loghub.service.facts import LogstoreSaved, ProjectSaved, ShardSaved
from loghub.service.ports import Disk
from loghub.service.storage.data_folder import (
    DamagedState,
    FolderState,
    FoundFolders,
    find_folders,
    read_state,
    shard_folder,
)
from loghub.service.storage.database import Database, UsedCursor
from loghub.service.storage.log_inspection import inspect_log

Key = tuple[int, int]  # logstore, shard


@dataclass(slots=True, kw_only=True)
class Survey:
    """What was read; ``logs`` has the shards of the catalog that were inspected."""

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
    """Everything but the logs.

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
    """Inspect the log of one shard. Raises OSError, WriteFailed, and what ``before_read`` raises."""
    key = (shard.logstore, shard.shard)
    known = survey.catalog.ends.get(key)
    found = inspect_log(
        disk,
        shard_folder(survey.data, shard.logstore, shard.shard),
        oldest_cursor=None if known is None else known.oldest_cursor,
        before_read=before_read,
        is_clean=survey.state is not None and survey.state.clean,
    )
    store = survey.catalog.logstores[shard.logstore]
    survey.logs[key] = LogState(
        shard=shard,
        title=f"{store.project}/{store.name} shard {shard.shard} ({found.folder})",
        found=found,
        known=known,
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
