"""Decides from what was read of a data folder what is wrong with it: values in, values out.

The start of the service and `loghub fsck` make the same diagnosis. The service starts only if nothing is
missing that was acknowledged, and if the catalog belongs to the logs; otherwise it would give out cursors a
second time, or show an empty log service above existing data.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from loghub_service.errors import ServiceFault
from loghub_service.facts import KnownEnd, LogstoreSaved, ShardSaved
from loghub_service.storage.data_folder import FolderState, FoundFolders
from loghub_service.storage.database import FolderHistory, UsedCursor
from loghub_service.storage.log_inspection import LogInspection, LogProblem


class FindingKind(StrEnum):
    """The kinds of findings. The kinds in `HARMLESS` do not prevent the start."""

    CATALOG_MISSING = "catalog_missing"
    CATALOG_OLDER = "catalog_older"
    CATALOG_OF_ANOTHER_FOLDER = "catalog_of_another_folder"
    CATALOG_UNUSABLE = "catalog_unusable"
    FOLDER_STATE_DAMAGED = "folder_state_damaged"
    WRITE_AHEAD_LOG_MISSING = "write_ahead_log_missing"
    UNKNOWN_LOGS = "unknown_logs"
    DAMAGED_HEADER = "damaged_header"
    DAMAGED_RECORDS = "damaged_records"
    MISSING_RECORDS = "missing_records"
    OVERLAP = "overlap"
    TORN_TAIL = "torn_tail"
    UNKNOWN_FILE = "unknown_file"
    UNFINISHED_REMOVAL = "unfinished_removal"


HARMLESS = {FindingKind.TORN_TAIL, FindingKind.UNKNOWN_FILE, FindingKind.UNFINISHED_REMOVAL}
LOSSES = {FindingKind.DAMAGED_HEADER, FindingKind.DAMAGED_RECORDS, FindingKind.MISSING_RECORDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found. The cursors in [begin_cursor, end_cursor) are lost; None: not known."""

    kind: FindingKind
    text: str
    logstore: int | None = None
    shard: int | None = None
    path: str | None = None
    begin_cursor: int | None = None
    end_cursor: int | None = None

    @property
    def prevents_start(self) -> bool:
        return self.kind not in HARMLESS


class DataRefused(ServiceFault):
    """The data folder is damaged or incomplete. The message has the first finding and says what to do."""

    def __init__(self, data: str, findings: Iterable[Finding]) -> None:
        first, *others = [finding for finding in findings if finding.prevents_start]
        more = f" (and {len(others)} more)" if others else ""
        super().__init__(
            f"{first.text}{more}; nothing was changed; run `loghub fsck {data}`"
            " (python -m loghub_service.fsck), see docs/disaster-recovery.md"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogState:
    """The content of the database; ``history`` is None if there is no database."""

    history: FolderHistory | None
    has_write_ahead_log: bool
    unusable: str = ""  # why the database cannot be read
    projects: frozenset[str] = frozenset()
    logstores: Mapping[int, LogstoreSaved] = field(default_factory=dict)
    shards: Mapping[tuple[int, int], ShardSaved] = field(default_factory=dict)
    deletions: frozenset[tuple[int, int | None]] = frozenset()
    ends: Mapping[tuple[int, int], KnownEnd] = field(default_factory=dict)
    used: Mapping[tuple[int, int], tuple[UsedCursor, ...]] = field(default_factory=dict)


def diagnose_catalog(
    catalog: CatalogState, state: FolderState | None, folders: FoundFolders, state_damage: str
) -> list[Finding]:
    """What is wrong with the catalog, compared with the log data."""
    findings = [*_identity(catalog, state, state_damage)]
    unknown = [
        folder
        for folder in folders.shards
        if (folder.logstore, folder.shard) not in catalog.shards
        and not catalog.deletions & {(folder.logstore, None), (folder.logstore, folder.shard)}
        and not folder.is_empty
    ]
    if unknown and catalog.history is None and not findings:
        findings.append(Finding(kind=FindingKind.CATALOG_MISSING, text=_MISSING))
    findings += (
        Finding(
            kind=FindingKind.UNKNOWN_LOGS,
            logstore=folder.logstore,
            shard=folder.shard,
            path=folder.path,
            text=f"metadata.sqlite does not know the shard whose log data is in {folder.path}",
        )
        for folder in unknown
    )
    findings += (
        Finding(
            kind=FindingKind.UNFINISHED_REMOVAL,
            logstore=logstore,
            shard=shard,
            text=f"{_name(logstore, shard)} is deleted, and the service removes its files",
        )
        for logstore, shard in sorted(catalog.deletions, key=str)
    )
    findings += (
        Finding(kind=FindingKind.UNKNOWN_FILE, path=path, text=f"{path} is not of the service and stays")
        for path in folders.unknown
    )
    return findings


_MISSING = "metadata.sqlite is missing or new, but the data folder was used before"


def _identity(catalog: CatalogState, state: FolderState | None, state_damage: str) -> Iterator[Finding]:
    history = catalog.history
    if catalog.unusable:
        yield Finding(kind=FindingKind.CATALOG_UNUSABLE, text=catalog.unusable)
    elif state_damage:
        yield Finding(kind=FindingKind.FOLDER_STATE_DAMAGED, text=state_damage)
    elif state is None:
        # The first start writes the catalog before the folder.
        if history is not None and history.starts > 1:
            text = "logs/folder.json is missing: the log data does not belong to metadata.sqlite"
            yield Finding(kind=FindingKind.CATALOG_OF_ANOTHER_FOLDER, text=text)
    elif history is None or not history.folder:
        yield Finding(kind=FindingKind.CATALOG_MISSING, text=_MISSING)
    elif history.folder != state.folder:
        text = "metadata.sqlite belongs to another data folder than the log data"
        yield Finding(kind=FindingKind.CATALOG_OF_ANOTHER_FOLDER, text=text)
    elif not state.merged and not catalog.has_write_ahead_log:
        text = "metadata.sqlite-wal is missing although the service did not stop cleanly: commits are lost"
        yield Finding(kind=FindingKind.WRITE_AHEAD_LOG_MISSING, text=text)
    elif history.starts < state.starts:
        text = (
            f"metadata.sqlite is older than the log data: it knows {history.starts} starts of the service,"
            f" the log data {state.starts}"
        )
        yield Finding(kind=FindingKind.CATALOG_OLDER, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The log of one shard, with what the database and the consumer groups know of it."""

    shard: ShardSaved
    title: str  # as messages name the shard
    inspection: LogInspection
    known_end: KnownEnd | None
    used: tuple[UsedCursor, ...]  # cursors that consumer groups and subscriptions know

    @property
    def end_cursor(self) -> int:
        """The end of what can be read."""
        end = self.inspection.end_cursor
        return self.shard.first_cursor if end is None else end

    @property
    def highest_cursor(self) -> int:
        """The highest cursor that is known to have been given out, or the next one to give out."""
        known_end = self.end_cursor if self.known_end is None else self.known_end.end_cursor
        return max([self.end_cursor, known_end, *[used.cursor for used in self.used]])


def diagnose_log(log: LogState) -> list[Finding]:
    """What is wrong with the log of one shard."""
    inspection, shard = log.inspection, log.shard
    findings = [_of_problem(log, problem) for problem in inspection.problems]
    if not any(finding.end_cursor is None for finding in findings):
        findings += _lost_tail(log)
    if inspection.torn_bytes and not findings:
        text = (
            f"{log.title}: {inspection.torn_bytes} bytes of a write that was never acknowledged will be cut"
        )
        findings.append(_finding(shard, FindingKind.TORN_TAIL, text, path=inspection.segments[-1].path))
    findings += (
        _finding(shard, FindingKind.UNKNOWN_FILE, f"{path} is not of the service and stays", path=path)
        for path in inspection.unknown
    )
    return findings


def _lost_tail(log: LogState) -> Iterator[Finding]:
    """Whether the log ends below a cursor that was given out."""
    end, highest, shard = log.end_cursor, log.highest_cursor, log.shard
    if highest > end:
        reasons = (used.known_by for used in log.used if used.cursor == highest)
        reason = next(reasons, "the database knows its end")
        text = (
            f"{log.title} ends at cursor {end}, but {reason} at {highest}: acknowledged log groups are lost"
        )
        yield _finding(
            shard,
            FindingKind.MISSING_RECORDS,
            text,
            path=log.inspection.folder,
            begin_cursor=end,
            end_cursor=highest,
        )


def _of_problem(log: LogState, problem: LogProblem) -> Finding:
    return _finding(
        log.shard,
        FindingKind(problem.kind.value),
        f"{log.title}: {problem}",
        path=problem.path,
        begin_cursor=problem.begin_cursor,
        end_cursor=problem.end_cursor,
    )


def _finding(
    shard: ShardSaved,
    kind: FindingKind,
    text: str,
    *,
    path: str | None = None,
    begin_cursor: int | None = None,
    end_cursor: int | None = None,
) -> Finding:
    return Finding(
        kind=kind,
        logstore=shard.logstore,
        shard=shard.shard,
        path=path,
        begin_cursor=begin_cursor,
        end_cursor=end_cursor,
        text=text,
    )


def _name(logstore: int, shard: int | None) -> str:
    """The name of a shard or logstore in fsck's options, which is also the path of its folder."""
    return f"logstore {logstore}" if shard is None else f"logstore {logstore} shard {shard}"
