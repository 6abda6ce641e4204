"""Carries out one repair that a user has requested, and says in words what was done."""

import os
import time
from collections.abc import Collection, Iterable

from loghub_service.diagnosis import Finding, FindingKind
from loghub_service.facts import FolderStarted
from loghub_service.fsck import folder
from loghub_service.fsck.adoption import AdoptionPlan, CannotRepair, FoundShard, plan_adoption
from loghub_service.fsck.loss import accept_loss
from loghub_service.ports import OsDisk, OsRandom
from loghub_service.start import Survey
from loghub_service.storage.data_folder import (
    FolderState,
    FoundFolder,
    describe,
    read_description,
    remove_tree,
    shard_folder,
    write_description,
    write_state,
)
from loghub_service.storage.log_inspection import inspect_log

_FOLDER_ID_DIGITS = 32  # 128 random bits: two folders never have the same identity


def accept_catalog(survey: Survey) -> str:
    """Take the database as it is, or an empty one, for the catalog of this data folder."""
    history, state = survey.catalog.history, survey.state
    if survey.catalog.unusable:
        raise CannotRepair("metadata.sqlite cannot be read; restore it, or move it out of the folder first")
    known_folder = history.folder if history is not None else ""
    identity = (state.folder if state is not None else known_folder) or OsRandom().hex(_FOLDER_ID_DIGITS)
    starts = max(history.starts if history is not None else 0, state.starts if state is not None else 0)
    folder.commit(survey, FolderStarted(folder=identity, starts=starts))
    write_state(OsDisk(), survey.data, FolderState(folder=identity, starts=starts, clean=False, merged=True))
    return "accepted metadata.sqlite as the catalog of this data folder"


def adopt(survey: Survey, logstore: int, name: str | None) -> str:
    """Take unknown log data of one logstore into the catalog."""
    shards = [*_unknown_shards(survey, logstore)]
    if not shards:
        raise CannotRepair(f"there is no unknown log data of logstore {logstore}")
    problems = [problem for shard in shards for problem in shard.inspection.problems]
    plan = plan_adoption(survey.catalog, shards, name=name, now_s=int(time.time()))
    _describe(survey.data, plan)
    folder.commit(survey, *plan.facts)
    numbers = ", ".join(str(saved.shard) for saved in plan.adopted)
    words = f"adopted logstore {logstore} as {plan.store.project}/{plan.store.name}: shards {numbers}"
    if plan.created:
        created = ", ".join(str(saved.shard) for saved in plan.created)
        words += f"; they are read-only, and the new shards {created} take the writes"
    return words + (f"; {len(problems)} problems of these logs remain" if problems else "")


def _unknown(survey: Survey, logstore: int) -> Iterable[FoundFolder]:
    return (
        found_folder
        for found_folder in survey.folders.shards
        if found_folder.logstore == logstore
        and (found_folder.logstore, found_folder.shard) not in survey.catalog.shards
    )


def _unknown_shards(survey: Survey, logstore: int) -> Iterable[FoundShard]:
    disk = folder.ReadOnlyDisk()
    for found_folder in _unknown(survey, logstore):
        inspection = inspect_log(disk, found_folder.path)
        description = read_description(disk, found_folder.path)
        if inspection.segments or description is not None:
            yield FoundShard(
                logstore=logstore, shard=found_folder.shard, description=description, inspection=inspection
            )


def _describe(data: str, plan: AdoptionPlan) -> None:
    disk = OsDisk()
    for saved in (*plan.adopted, *plan.created):
        path = shard_folder(data, saved.logstore, saved.shard)
        disk.make_dirs(path)
        write_description(disk, path, describe(plan.store, saved))


def drop(survey: Survey, logstore: int, shard: int | None) -> str:
    """Remove unknown log data."""
    chosen = [one for one in _unknown(survey, logstore) if shard in (None, one.shard)]
    if not chosen:
        raise CannotRepair("only log data that the catalog does not know can be dropped")
    size = 0
    for found_folder in chosen:
        size += sum(entry.stat().st_size for entry in os.scandir(found_folder.path))
        remove_tree(OsDisk(), found_folder.path)
    return f"removed {', '.join(one.path for one in chosen)}: {size} bytes"


def accept(survey: Survey, key: tuple[int, int], checked: Collection[Finding]) -> str:
    """Accept the loss of log groups of one shard, which then goes on without them."""
    log = survey.logs.get(key)
    if log is None:
        raise CannotRepair(f"the catalog has no shard {key[0]}/{key[1]}")
    damaged = {
        finding.path
        for finding in checked
        if (finding.logstore, finding.shard) == key
        and finding.kind in (FindingKind.DAMAGED_HEADER, FindingKind.DAMAGED_RECORDS)
        and finding.path is not None
    }
    end_is_exact = log.known_end is not None and _is_of_clean_stop(survey)
    loss = accept_loss(survey, log, end_is_exact=end_is_exact, damaged=damaged)
    lost = ", ".join(f"[{begin}, {end})" for begin, end in loss.ranges) or "none"
    return (
        f"{log.title}: accepted the loss of the cursors {lost}; the next write gets cursor {loss.goes_on_at}"
    )


def _is_of_clean_stop(survey: Survey) -> bool:
    """Whether the catalog was saved by the clean stop with which the log data ends."""
    history, state = survey.catalog.history, survey.state
    if history is None or state is None or not state.clean:
        return False
    return (history.folder, history.starts) == (state.folder, state.starts)
