"""Exactly-once delivery into a folder: decides once which cursor range of which shard has which files.

A batch becomes visible by one atomic step on a POSIX folder, and no range of a shard can become visible
twice, whichever worker attempts it and whenever, including a worker that was stopped for an hour between any
two steps.

Under ``<folder>/_loghub/<project>/<logstore>/<group>/``:

``stage/<batch>/``     files of a batch, written but not yet part of the sink
``range-claims/<shard>-<created>-<begin>-<number>``  the claim of the batch that delivers that shard from
                       that cursor. It is created by hard link, so only one batch can have it. The
                       number counts the attempts at one cursor: the next attempt is possible only
                       once the batch of the previous one was aborted. The last attempt is in effect
``openings/<shard>-<created>``  the worker that opened the shard last, and may deliver it
``batches/<batch>.json``  the decision on a batch, made once by hard link: committed, with its
                       claims and files, or aborted
``parts/``             files that are about to get one of these names

A batch claims each of its ranges, checks that no other worker has opened one of the shards, then decides
itself committed, then moves its files into the folder. A worker that is assigned a shard opens it, reads the
claims, then requests the checkpoint, and searches for the claim there. It completes a committed batch
(finishes its moves), and the shard resumes at the range's end. It decides an undecided batch aborted, after
which the batch's writer can no longer commit it. So of two workers that both believe to hold a shard, the
one that opens it last finds every claim of the other, or the other finds it opened; and a claim that it no
longer finds was removed because the checkpoint that it requests next is past it. Staged files are deleted
only if the decision that is in effect is an abort, or by a writer that has never tried to commit.

Claims are removed only before the service's checkpoint, where they have no meaning any more. At or after the
checkpoint, an attempt is never undone. A process that stalls between reading and acting, and continues when
others have moved on, can therefore only abort what was undecided when it read, or try for an attempt that was
made in the meantime, and fail. A range that must be delivered again, since the checkpoint was moved back on
purpose, gets one more attempt, of a batch that never commits.
"""

import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import structlog

from loghub_worker.batch_plan import Range
from loghub_worker.sink.exclusive_files import (
    DamagedRecordError,
    age_s,
    create_exclusively,
    decode_json,
    read_json,
    sync,
    unlinked_file,
)
from loghub_worker.sink.range_claims import Attempt, ClaimFile, RangeClaims, ShardIncarnation, claim_name
from loghub_worker.sink.shard_openings import ShardOpenings

__all__ = [
    "CommitLog",
    "EarlierLayoutError",
    "RangeTakenError",
    "SessionLostError",
    "ShardIncarnation",
    "data_files",
]

log = structlog.get_logger()

FOLDER = "_loghub"  # readers of a folder of Parquet or JSON skip names that begin with an underscore
MAX_ATTEMPTS = 100  # attempts of other workers that may come first before a claim fails
TOMBSTONE_S = 86_400.0  # an abort is kept for this long, since its batch's writer may still run
REMEMBERED_DECISIONS = 1024  # of this process's own batches, so that an acknowledgement need not read them


class RangeTakenError(Exception):
    """Another batch delivered one of the ranges, or another worker opened one of the shards."""


class SessionLostError(Exception):
    """The worker's session is over, so it may no longer deliver; nothing of the batch became visible."""


class EarlierLayoutError(Exception):
    """The folder has claims of an earlier release, which this one does not read."""


class BatchDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a batch. Once made, it never changes."""

    committed: bool
    claims: list[str] = []  # names of claims
    files: list[str] = []


ABORTED = BatchDecision(committed=False)


def _ignore_step(_step: str) -> None:
    """The default of `CommitLog.at_step`."""


class CommitLog:
    """The records of one group in one sink folder. Several workers use them at the same time."""

    def __init__(
        self, folder: Path, *, group_path: tuple[str, ...], at_step: Callable[[str], None] = _ignore_step
    ) -> None:
        """`group_path` is project, logstore, group. `at_step` is called after each step with its name (tests
        end or hold the process there). Raises `EarlierLayoutError`."""
        self.folder = folder
        self._home = folder.joinpath(FOLDER, *group_path)
        self._batches = self._home / "batches"
        self._parts = self._home / "parts"
        self._at_step = at_step
        self._decisions: dict[str, BatchDecision] = {}
        self._claims = RangeClaims(self._home / "range-claims")
        self._openings = ShardOpenings(self._home / "openings")
        self._found: dict[ShardIncarnation, dict[int, Attempt]] = {}  # the claims of shards being opened
        for path in (self._batches, self._parts, self._home / "stage"):
            path.mkdir(parents=True, exist_ok=True)
        earlier = self._home / "claims"
        if earlier.is_dir() and any(earlier.iterdir()):
            raise EarlierLayoutError(
                f"{earlier} has range claims of an earlier release, which this one does not read: run the"
                " workers of that release once more and suspend the group, which saves the checkpoints and"
                " removes the claims"
            )

    def check_folder(self) -> None:
        """Raises `OSError` if the folder is not writable, or does not support hard links."""
        trial = self._batches / f"trial-{secrets.token_hex(8)}"  # never read: decisions end in .json
        create_exclusively(self._parts, trial, bytes(4096))
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

        Raises `RangeTakenError` or `SessionLostError`; nothing is visible then. After an `OSError` it may not
        be known whether the batch is committed; the next worker that finds its claims settles it.
        """
        ordered = sorted(ranges, key=lambda pair: pair[1])
        try:
            files = _seal(self.stage(batch))
            self._at_step("sealed")
            claims = self._claim_all(batch, ordered)
            # A worker that opens a shard from now on finds the claim and aborts this batch. If one has opened
            # it already, the checks detect it: usually this worker's session is over.
            if not may_commit():
                raise SessionLostError
            self._at_step("session checked")
            for incarnation, _ in ordered:
                if not self._openings.is_last(incarnation):
                    raise RangeTakenError(f"shard {incarnation.shard} was opened by another worker")
            self._at_step("openings checked")
        except (RangeTakenError, SessionLostError, OSError):
            self.abort(batch)
            raise
        decision = self._decide(batch, BatchDecision(committed=True, claims=claims, files=files))
        if not decision.committed:
            self.discard(batch)
            raise RangeTakenError(f"batch {batch} was aborted by the next holder of one of its shards")
        self._at_step("decided")
        self._move_files(batch, files)
        self._at_step("files moved")

    def abort(self, batch: str) -> None:
        """Abort a batch; its claims then block no other batch. Only for the batch's writer, which has not
        tried to commit it."""
        try:
            self._settle(batch)
            self._at_step("aborted")
        except OSError as error:
            # A full disk may have no room for the decision, and only the writer could commit the batch. Its
            # claims are settled by the next batch that meets them.
            log.warning("batch not recorded as aborted", batch=batch, message=str(error))
            self.discard(batch)

    def discard(self, batch: str) -> None:
        """Remove the staging folder of a batch, with all files that are not part of the sink."""
        shutil.rmtree(self.stage(batch), ignore_errors=True)

    def _claim_all(self, batch: str, ordered: list[tuple[ShardIncarnation, Range]]) -> list[str]:
        """Claim all ranges of a batch and return the names of the claims."""
        rows = [(i.shard, i.created, r.begin, r.end) for i, r in ordered]
        names = []
        with unlinked_file(self._parts, _claim_file(batch, rows)) as part:
            for incarnation, shard_range in ordered:
                names.append(self._claim(batch, part, incarnation, shard_range.begin))
                self._at_step("range claimed")
        self._claims.sync()
        self._at_step("all ranges claimed")
        return names

    def _claim(self, batch: str, part: Path, incarnation: ShardIncarnation, begin: int) -> str:
        last = self._claims.last(incarnation, begin)
        for _ in range(MAX_ATTEMPTS):
            if last is not None and self._settle(last.batch):
                break
            number = 0 if last is None else last.number + 1
            last = self._claims.claim(part, incarnation, begin, number)
            if last.batch == batch:
                return claim_name(incarnation, last)
        raise RangeTakenError(f"another batch delivers shard {incarnation.shard} from cursor {begin} on")

    def _decide(self, batch: str, decision: BatchDecision) -> BatchDecision:
        """Make this decision unless one was made. Return the decision in effect."""
        path = self._decision_path(batch)
        content = create_exclusively(self._parts, path, msgspec.json.encode(decision))
        sync(self._batches)
        in_effect = decode_json(path, content, BatchDecision)
        if in_effect.committed:
            self._decisions[batch] = in_effect
            if len(self._decisions) > REMEMBERED_DECISIONS:
                del self._decisions[next(iter(self._decisions))]
        return in_effect

    def _decision_path(self, batch: str) -> Path:
        return self._batches / f"{batch}.json"

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
        sync(self.folder)
        self.discard(batch)

    # -- resuming a shard

    def open_shard(self, incarnation: ShardIncarnation) -> None:
        """Make this worker the one that may deliver the shard, and read what others have claimed. Call it
        before the checkpoint is requested that `resume` gets. Raises `OSError`."""
        self._openings.open(incarnation)
        self._at_step("opened")
        self._found[incarnation] = self._claims.read(incarnation)
        self._at_step("claims read")

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
        no longer holds the shard, or has not held it ever since it was opened (`open_shard`)."""
        claims = self._found.pop(incarnation)
        # A worker that stalled here would abort what the next consumer is about to commit, and take its work
        # for leftovers.
        confirm()
        self._at_step("confirmed")
        ends = {begin: last.end for begin, last in claims.items() if self._settle(last.batch)}
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
        row = (incarnation.shard, incarnation.created, begin, begin)
        with unlinked_file(self._parts, _claim_file(f"reopened-{secrets.token_hex(8)}", [row])) as part:
            self._claims.claim(part, incarnation, begin, number)

    def acknowledge(self, incarnation: ShardIncarnation, checkpoint: int) -> None:
        """The service has this checkpoint: remove the claims before it, which are no longer needed."""
        batches = set()
        # In ascending order, so that a process that ends midway leaves the attempt in effect.
        for attempt in self._claims.before(incarnation, checkpoint):
            self._claims.remove(incarnation, attempt)
            batches.add(attempt.batch)
        for batch in batches:
            self._forget_if_unclaimed(batch)

    def _settle(self, batch: str) -> bool:
        """Complete a committed batch and abort an undecided one. Returns whether the batch is committed."""
        decision = read_json(self._decision_path(batch), BatchDecision) or self._decide(batch, ABORTED)
        if not decision.committed:
            self.discard(batch)
        elif self.stage(batch).exists():
            sync(self._batches)  # the one who decided may not have done so yet
            self._move_files(batch, decision.files)
        return decision.committed

    def _forget_if_unclaimed(self, batch: str) -> None:
        path = self._decision_path(batch)
        decision = self._decisions.get(batch) or read_json(path, BatchDecision)
        # An abort must outlive its batch's writer; `prune` removes it. The claims are acknowledged shard by
        # shard, so the last one shows soonest that some are left.
        if decision is None or not decision.committed or self._claims.any_exists(reversed(decision.claims)):
            return
        path.unlink(missing_ok=True)
        self._decisions.pop(batch, None)

    def prune(self, *, owner: str, now_unix_s: float) -> None:
        """Settle what an earlier process of this consumer left staged (batches are named
        ``<consumer>-<token>``), and what any worker left staged for longer than `TOMBSTONE_S`. Remove aborts
        of that age, and files that never got their name."""
        for stage in (self._home / "stage").iterdir():
            if stage.name.rpartition("-")[0] == owner or age_s(stage, now_unix_s) > TOMBSTONE_S:
                with _damage_logged():
                    self._settle(stage.name)
        for path in self._batches.glob("*.json"):
            with _damage_logged():
                decision = read_json(path, BatchDecision)
                if decision is not None and not decision.committed and age_s(path, now_unix_s) > TOMBSTONE_S:
                    path.unlink(missing_ok=True)
        for part in self._parts.iterdir():
            if age_s(part, now_unix_s) > TOMBSTONE_S:
                part.unlink(missing_ok=True)


@contextmanager
def _damage_logged() -> Iterator[None]:
    """Damage concerns the shards of one batch, which report it when they are resumed."""
    try:
        yield
    except DamagedRecordError as error:
        log.warning("a record of the sink is damaged", message=str(error))


def _claim_file(batch: str, rows: list[tuple[int, int, int, int]]) -> bytes:
    return msgspec.json.encode(ClaimFile(batch=batch, ranges=rows))


def data_files(stage: Path) -> list[Path]:
    """The files that a reader of the folder reads: neither Spark's own files, nor empty ones."""
    files = (path for path in stage.glob("*") if not path.name.startswith((".", "_")))
    return sorted(path for path in files if path.is_file() and path.stat().st_size)


def _seal(stage: Path) -> list[str]:
    """The names of the staged data files, all of them flushed to disk."""
    files = data_files(stage)
    for path in files:
        sync(path)
    if stage.exists():
        sync(stage)
    return [path.name for path in files]
