"""Exactly-once delivery into a folder: decides once which cursor range of which shard has which files.

A batch becomes visible by one atomic step on a POSIX folder, and no range of a shard can become visible
twice, whichever worker attempts it and whenever, including a worker that was stopped for an hour between any
two steps.

Under ``<folder>/_loghub/<project>/<logstore>/<group>/``:

``stage/<batch>/``     files of a batch, written but not yet part of the sink
``claims/<shard>-<created>-<begin>-<number>``  the range claim of the batch that delivers that shard from
                       that cursor. It is created by hard link, so only one batch can have it. The
                       number counts the attempts at one cursor: the next attempt is possible only
                       once the batch of the previous one was aborted. The last attempt is in effect
``batches/<batch>.json``  the decision on a batch, made once by hard link: committed, with its
                       ranges and files, or aborted

A batch claims each of its ranges, then decides itself committed, then moves its files into the folder. A
worker that is assigned a shard searches for the claim at the shard's checkpoint. It completes a committed
batch (finishes its moves), and the shard resumes at the range's end. It decides an undecided batch aborted,
after which the batch's writer can no longer commit it.

Claims are removed only before the service's checkpoint, where they have no meaning any more. At or after the
checkpoint, an attempt is never undone. A process that stalls between reading and acting, and continues when
others have moved on, can therefore only abort what was undecided when it read, or try for an attempt that was
made in the meantime, and fail. A range that must be delivered again, since the checkpoint was moved back on
purpose, gets one more attempt, of a batch that never commits.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from loghub_worker.batch_plan import Range

log = structlog.get_logger()
T = TypeVar("T")

FOLDER = "_loghub"  # readers of a folder of Parquet or JSON skip names that begin with an underscore
MAX_ATTEMPTS = 100  # attempts of other workers that may come first before a claim fails
TOMBSTONE_S = 86_400.0  # an abort is kept for this long, since its batch's writer may still run


class RangeTakenError(Exception):
    """Another batch delivered one of the ranges, or the next consumer of a shard aborted this batch."""


class SessionLostError(Exception):
    """The worker's session is over, so it may no longer deliver; nothing of the batch became visible."""


class BatchDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a batch."""

    committed: bool
    ranges: list[tuple[int, int, int, int]] = []  # shard, created, begin, end
    files: list[str] = []


class RangeClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The batch that delivers a shard from one cursor."""

    batch: str
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardIncarnation:
    """A shard, as distinct from a shard with the same number in a logstore that was recreated."""

    shard: int
    created: int  # unix seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One claim and its number at its cursor."""

    number: int
    claim: RangeClaim


def _ignore_step(_step: str) -> None:
    """The default of `CommitLog.at_step`."""


class CommitLog:
    """The records of one group in one sink folder. Several workers use them at the same time."""

    def __init__(
        self, folder: Path, *, group_path: tuple[str, ...], at_step: Callable[[str], None] = _ignore_step
    ) -> None:
        """`home` is project, logstore, group. `at_step` is called after each step with its name (tests end or
        hold the process there)."""
        self.folder = folder
        self._home = folder.joinpath(FOLDER, *group_path)
        self._claims = self._home / "claims"
        self._batches = self._home / "batches"
        self._at_step = at_step
        for path in (self._claims, self._batches, self._home / "stage"):
            path.mkdir(parents=True, exist_ok=True)

    def check_folder(self) -> None:
        """Raises `OSError` if the folder is not writable, or does not support hard links."""
        trial = self._batches / f"trial-{secrets.token_hex(8)}"  # never read: decisions end in .json
        _create(trial, bytes(4096))
        trial.unlink()

    # -- delivering a batch

    def stage(self, batch: str) -> Path:
        """Where the files of a batch are written before they are part of the sink."""
        return self._home / "stage" / batch

    def publish(
        self,
        batch: str,
        ranges: Iterable[tuple[ShardIncarnation, Range]],
        *,
        may_commit: Callable[[], bool],
    ) -> None:
        """Make the staged files of `batch` part of the sink, once and permanently.

        Raises `RangeTakenError` or `SessionLostError`; nothing is visible then.
        """
        ordered = sorted(ranges, key=lambda pair: pair[1])
        try:
            files = _seal(self.stage(batch))
            self._at_step("sealed")
            self._claim_all(batch, ordered)
            # A worker that is assigned a shard from now on finds the claim and aborts this batch. If one
            # was assigned a shard earlier, this worker's session is over, which the check detects.
            if not may_commit():
                raise SessionLostError
            self._at_step("session checked")
        except (RangeTakenError, SessionLostError, OSError):
            self.abort(batch)
            raise
        rows = [(i.shard, i.created, r.begin, r.end) for i, r in ordered]
        # After an OSError it is not known whether the batch was decided; the next worker that finds its
        # claims settles it.
        if not self._decide(batch, BatchDecision(committed=True, ranges=rows, files=files)):
            self.abort(batch)
            raise RangeTakenError(f"batch {batch} was aborted by the next holder of one of its shards")
        self._at_step("decided")
        self._move_files(batch, files)
        self._at_step("files moved")

    def abort(self, batch: str) -> None:
        """Abort a batch that is not committed; its claims then block no other batch. Only for the batch's
        writer: the files are removed first, since a full disk may not even have room for the decision."""
        self.discard(batch)
        if self._decide(batch, BatchDecision(committed=False)):
            self._at_step("aborted")

    def discard(self, batch: str) -> None:
        """Remove the staging folder of a batch, with all files that are not part of the sink."""
        shutil.rmtree(self.stage(batch), ignore_errors=True)

    def _claim_all(self, batch: str, ordered: Iterable[tuple[ShardIncarnation, Range]]) -> None:
        for incarnation, shard_range in ordered:
            self._claim(batch, incarnation, shard_range)
            self._at_step("range claimed")
        _sync(self._claims)
        self._at_step("all ranges claimed")

    def _claim(self, batch: str, incarnation: ShardIncarnation, shard_range: Range) -> None:
        content = msgspec.json.encode(RangeClaim(batch=batch, end=shard_range.end))
        for _ in range(MAX_ATTEMPTS):
            last = self._last_attempts(incarnation, str(shard_range.begin)).get(shard_range.begin)
            if last is not None and self._settle(last.claim.batch):
                break
            number = 0 if last is None else last.number + 1
            if _create(self._claim_path(incarnation, shard_range.begin, number), content):
                return
        raise RangeTakenError(
            f"another batch delivers shard {incarnation.shard} from cursor {shard_range.begin} on"
        )

    def _claim_path(self, incarnation: ShardIncarnation, begin: int, number: int) -> Path:
        return self._claims / f"{incarnation.shard}-{incarnation.created}-{begin}-{number}"

    def _decide(self, batch: str, decision: BatchDecision) -> bool:
        """Whether this call made the decision; False if it had been made already."""
        created = _create(self._batches / f"{batch}.json", msgspec.json.encode(decision))
        _sync(self._batches)
        return created

    def _move_files(self, batch: str, files: Iterable[str]) -> None:
        """Move the files of a committed batch into the folder. Several workers may do this at the same
        time."""
        for name in files:
            target = self.folder / f"{Path(name).stem}-{batch}{Path(name).suffix}"
            try:
                (self.stage(batch) / name).rename(target)
            except FileNotFoundError:
                if not target.exists():
                    log.warning("a file of a committed batch does not exist", file=str(target))
            self._at_step("file moved")
        _sync(self.folder)
        self.discard(batch)

    # -- resuming a shard

    def resume(
        self,
        incarnation: ShardIncarnation,
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        moved: bool = False,
    ) -> int:
        """Where a shard continues: at its checkpoint, or at the end of what was committed from exactly there
        on and is not yet in the checkpoint; with `moved` (the checkpoint was moved on purpose) at the
        checkpoint, whatever was committed. Only for the consumer that holds the shard: `confirm` raises if it
        no longer holds the shard, or has not held it ever since `checkpoint` was requested."""
        claims = self._last_attempts(incarnation)
        self._at_step("claims read")
        # If this succeeds, the claims were read before the shard could be assigned to another consumer,
        # whose work would look like leftovers next to an old checkpoint.
        confirm()
        self._at_step("confirmed")
        ends = {begin: last.claim.end for begin, last in claims.items() if self._settle(last.claim.batch)}
        self._at_step("settled")
        position = checkpoint
        while position in ends and not moved:
            position = ends.pop(position)
        for begin in ends:
            if begin >= checkpoint:  # left over from before the checkpoint was moved on purpose
                self._allow_redelivery(incarnation, begin, claims[begin].number + 1)
        return position

    def _allow_redelivery(self, incarnation: ShardIncarnation, begin: int, number: int) -> None:
        """Let a committed range be delivered again if a batch reads it. If the attempt exists already,
        another worker has done so."""
        placeholder = RangeClaim(batch=f"reopened-{secrets.token_hex(8)}", end=begin)
        _create(self._claim_path(incarnation, begin, number), msgspec.json.encode(placeholder))

    def acknowledge(self, incarnation: ShardIncarnation, checkpoint: int) -> None:
        """The service has this checkpoint: remove the claims before it, which are no longer needed."""
        batches = set()
        # In ascending order, so that a process that ends midway leaves the attempt in effect.
        for begin, number in self._attempts(incarnation):
            path = self._claim_path(incarnation, begin, number)
            claim = _read(path, RangeClaim) if begin < checkpoint else None
            if claim is not None:
                path.unlink(missing_ok=True)
                batches.add(claim.batch)
        for batch in batches:
            self._forget_if_unclaimed(batch)

    def _last_attempts(self, incarnation: ShardIncarnation, begin: str = "*") -> dict[int, Attempt]:
        """The claims in effect, by begin."""
        attempts = {}
        for at, number in self._attempts(incarnation, begin):
            claim = _read(self._claim_path(incarnation, at, number), RangeClaim)
            if claim is not None:
                attempts[at] = Attempt(number=number, claim=claim)
        return attempts

    def _attempts(self, incarnation: ShardIncarnation, begin: str = "*") -> list[tuple[int, int]]:
        """Begin and number of the existing attempts, in ascending order."""
        names = self._claims.glob(f"{incarnation.shard}-{incarnation.created}-{begin}-*")
        parts = [path.name.split("-") for path in names]
        return sorted((int(at), int(number)) for _, _, at, number in parts)

    def _settle(self, batch: str) -> bool:
        """Complete a committed batch and abort an undecided one. Returns whether the batch is committed."""
        path = self._batches / f"{batch}.json"
        if _read(path, BatchDecision) is None:
            self._decide(batch, BatchDecision(committed=False))
        decision = _read(path, BatchDecision)
        if decision is None or not decision.committed:
            self.discard(batch)
            return False
        if self.stage(batch).exists():
            self._move_files(batch, decision.files)
        return True

    def _forget_if_unclaimed(self, batch: str) -> None:
        path = self._batches / f"{batch}.json"
        decision = _read(path, BatchDecision)
        if decision is None or not decision.committed:
            return  # an abort must outlive its batch's writer; `prune` removes it
        for shard, created, begin, _ in decision.ranges:
            if any(self._claims.glob(f"{shard}-{created}-{begin}-*")):
                return
        path.unlink(missing_ok=True)

    def prune(self, *, owner: str, now_unix_s: float) -> None:
        """Settle what an earlier process of this consumer left staged (batches are named
        ``<consumer>-<token>``), and what any worker left staged for longer than `TOMBSTONE_S`. Remove aborts
        of that age."""
        for stage in (self._home / "stage").iterdir():
            if stage.name.rpartition("-")[0] == owner or _age_s(stage, now_unix_s) > TOMBSTONE_S:
                self._settle(stage.name)
        for path in self._batches.glob("*.json"):
            decision = _read(path, BatchDecision)
            if decision is not None and not decision.committed and _age_s(path, now_unix_s) > TOMBSTONE_S:
                path.unlink(missing_ok=True)


def data_files(stage: Path) -> list[Path]:
    """The files that a reader of the folder reads: neither Spark's own files, nor empty ones."""
    files = (path for path in stage.glob("*") if not path.name.startswith((".", "_")))
    return sorted(path for path in files if path.is_file() and path.stat().st_size)


def _seal(stage: Path) -> list[str]:
    """The names of the staged data files, all of them flushed to disk."""
    files = data_files(stage)
    for path in files:
        _sync(path)
    if stage.exists():
        _sync(stage)
    return [path.name for path in files]


def _create(path: Path, content: bytes) -> bool:
    """Create `path` atomically with its whole content. Returns False if it exists already."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # several machines may try at the same time
    try:
        part.write_bytes(content)
        _sync(part)
        os.link(part, path)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None


def _age_s(path: Path, now_unix_s: float) -> float:
    with contextlib.suppress(FileNotFoundError):
        return now_unix_s - path.stat().st_mtime
    return 0.0
