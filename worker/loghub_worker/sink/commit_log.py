"""Exactly once in a folder: which cursor range of which shard has which files, decided once.

What for: a batch becomes visible by one atomic step on a POSIX folder, and no range of a shard
can become visible twice, whoever tries and whenever: a worker that was stopped for an hour
between any two steps included. What it must not know: Spark, HTTP, the membership.
Read next: `loghub_worker.sink.sinks`.

Under ``<folder>/_loghub/<project>/<logstore>/<group>/``:

``stage/<batch>/``     files of a batch, written but not yet part of the sink
``claims/<shard>-<created>-<begin>-<turn>``  a batch that wants to deliver that shard from that
                       cursor. Made by hard link, so only one batch can have it; the next turn
                       is open only once the batch before it was aborted. The last turn rules
``batches/<batch>.json``  the decision over a batch, made once by hard link: committed, with its
                       ranges and files, or aborted

A batch claims each of its ranges, then decides itself committed, then moves its files into the
folder. Who takes a shard looks for the claim at the shard's checkpoint: a committed batch is
completed (its moves done) and the shard resumes at the range's end; an undecided one is decided
aborted, after which its writer can commit it no more.

Claims are removed only behind the service's checkpoint, where they say nothing any more. At or
after it a turn, once made, stands: so whoever stalls between a look and an act, and wakes when
others have gone on, can only abort what was undecided at its look, or try for a turn that was made
meanwhile, and fail. A range that is to come again, since the checkpoint was moved back on purpose,
gets one more turn, of a batch that never commits.
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

FOLDER = "_loghub"  # readers of a folder of Parquet or JSON pass names with an underscore over
MOST_TRIES = 100  # turns that others may make under our eyes while we try for one
TOMBSTONE_S = 86_400.0  # an abort is remembered for so long after its batch's writer may have died


class RangeTakenError(Exception):
    """Another batch delivered one of the ranges, or this batch was aborted by a new holder."""


class LeaseLostError(Exception):
    """The worker may no longer deliver; nothing of the batch became visible."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a batch."""

    committed: bool
    ranges: list[tuple[int, int, int, int]] = []  # shard, created, begin, end
    files: list[str] = []


class RangeClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Who delivers a shard from one cursor."""

    batch: str
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """A shard, told from one of the same number in a logstore that was made anew."""

    shard: int
    created: int  # unix seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One claim and its number at its cursor."""

    turn: int
    claim: RangeClaim


def _nothing(_step: str) -> None:
    """The default of `CommitLog.at_step`."""


class CommitLog:
    """The records of one group in one sink folder. Used by several workers at a time."""

    def __init__(
        self, folder: Path, *, home: tuple[str, ...], at_step: Callable[[str], None] = _nothing
    ) -> None:
        """`home` is project, logstore, group. `at_step` is called before each step with its name
        (tests end or hold the process there)."""
        self.folder = folder
        self._home = folder.joinpath(FOLDER, *home)
        self._claims = self._home / "claims"
        self._batches = self._home / "batches"
        self._at_step = at_step
        for path in (self._claims, self._batches, self._home / "stage"):
            path.mkdir(parents=True, exist_ok=True)

    def try_out(self) -> None:
        """Raises `OSError` where the folder cannot be written, or knows no hard links."""
        trial = self._batches / f"trial-{secrets.token_hex(8)}"  # nobody reads it: a decision ends in .json
        _create(trial, bytes(4096))
        trial.unlink()

    # -- delivering a batch

    def stage(self, batch: str) -> Path:
        """Where the files of a batch are written before they count."""
        return self._home / "stage" / batch

    def publish(
        self,
        batch: str,
        ranges: Iterable[tuple[Incarnation, Range]],
        *,
        may_commit: Callable[[], bool],
    ) -> None:
        """Make the staged files of `batch` part of the sink, once and for good.

        Raises `RangeTakenError` or `LeaseLostError` with nothing made visible.
        """
        ordered = sorted(ranges, key=lambda pair: pair[1])
        try:
            files = _seal(self.stage(batch))
            self._at_step("sealed")
            self._claim_all(batch, ordered)
            # Whoever takes a shard from here on finds the claim and aborts this batch; who took
            # one before is found out by the lease.
            if not may_commit():
                raise LeaseLostError
            self._at_step("lease checked")
        except (RangeTakenError, LeaseLostError, OSError):
            self.abort(batch)
            raise
        rows = [(i.shard, i.created, r.begin, r.end) for i, r in ordered]
        # An OSError leaves open whether it was decided: who finds its claims next settles it.
        if not self._decide(batch, Decision(committed=True, ranges=rows, files=files)):
            self.abort(batch)
            raise RangeTakenError(f"batch {batch} was aborted by another holder")
        self._at_step("decided")
        self._place(batch, files)
        self._at_step("placed")

    def abort(self, batch: str) -> None:
        """Give a batch up that is not committed; its claims then stand in nobody's way. Only for its
        writer: its files go first, since a full disk may not even take the decision."""
        self.discard(batch)
        if self._decide(batch, Decision(committed=False)):
            self._at_step("aborted")

    def discard(self, batch: str) -> None:
        """Remove the staged files of a batch that is not committed, or was never to be."""
        shutil.rmtree(self.stage(batch), ignore_errors=True)

    def _claim_all(self, batch: str, ordered: Iterable[tuple[Incarnation, Range]]) -> None:
        for incarnation, piece in ordered:
            self._claim(batch, incarnation, piece)
            self._at_step("claimed one")
        _sync(self._claims)
        self._at_step("claimed all")

    def _claim(self, batch: str, incarnation: Incarnation, piece: Range) -> None:
        content = msgspec.json.encode(RangeClaim(batch=batch, end=piece.end))
        for _ in range(MOST_TRIES):
            last = self._last_turns(incarnation, str(piece.begin)).get(piece.begin)
            if last is not None and self._settle(last.claim.batch):
                break
            turn = 0 if last is None else last.turn + 1
            if _create(self._claim_path(incarnation, piece.begin, turn), content):
                return
        raise RangeTakenError(f"shard {incarnation.shard} from cursor {piece.begin} is another batch's")

    def _claim_path(self, incarnation: Incarnation, begin: int, turn: int) -> Path:
        return self._claims / f"{incarnation.shard}-{incarnation.created}-{begin}-{turn}"

    def _decide(self, batch: str, decision: Decision) -> bool:
        """Whether this call made the decision; False if one stood already."""
        made = _create(self._batches / f"{batch}.json", msgspec.json.encode(decision))
        _sync(self._batches)
        return made

    def _place(self, batch: str, files: Iterable[str]) -> None:
        """Move the files of a committed batch into the folder; may be done by several at a time."""
        for name in files:
            target = self.folder / f"{Path(name).stem}-{batch}{Path(name).suffix}"
            try:
                (self.stage(batch) / name).rename(target)
            except FileNotFoundError:
                if not target.exists():
                    log.warning("file of a committed batch is gone", file=str(target))
            self._at_step("placed one")
        _sync(self.folder)
        self.discard(batch)

    # -- taking a shard

    def resume(
        self, incarnation: Incarnation, checkpoint: int, *, confirm: Callable[[], None], moved: bool = False
    ) -> int:
        """Where a shard goes on: at its checkpoint, or at the end of what was committed from
        exactly there on and not yet checkpointed; with `moved` (put there on purpose) at the
        checkpoint, whatever was committed. Only for the shard's holder: `confirm` raises if it is
        no more, or was not all the time since `checkpoint` was asked for."""
        claims = self._last_turns(incarnation)
        self._at_step("claims seen")
        # What was seen is then from before the shard could go to another, whose work an old
        # checkpoint would make look like leftovers.
        confirm()
        self._at_step("confirmed")
        ends = {begin: last.claim.end for begin, last in claims.items() if self._settle(last.claim.batch)}
        self._at_step("settled")
        position = checkpoint
        while position in ends and not moved:
            position = ends.pop(position)
        for begin in ends:
            if begin >= checkpoint:  # left by a checkpoint moved on purpose
                self._open_again(incarnation, begin, claims[begin].turn + 1)
        return position

    def _open_again(self, incarnation: Incarnation, begin: int, turn: int) -> None:
        """Let a committed range be delivered anew if it comes up. If the turn is there already,
        another has done so."""
        nobody = RangeClaim(batch=f"nobody-{secrets.token_hex(8)}", end=begin)
        _create(self._claim_path(incarnation, begin, turn), msgspec.json.encode(nobody))

    def acknowledge(self, incarnation: Incarnation, checkpoint: int) -> None:
        """The service has this checkpoint: claims before it have done their duty."""
        batches = set()
        # Upwards, so that a process that ends half-way leaves the turn that rules.
        for begin, turn in self._turns(incarnation):
            path = self._claim_path(incarnation, begin, turn)
            claim = _read(path, RangeClaim) if begin < checkpoint else None
            if claim is not None:
                path.unlink(missing_ok=True)
                batches.add(claim.batch)
        for batch in batches:
            self._forget_if_unclaimed(batch)

    def _last_turns(self, incarnation: Incarnation, begin: str = "*") -> dict[int, Attempt]:
        """The claims that rule, by begin."""
        found = {}
        for at, turn in self._turns(incarnation, begin):
            claim = _read(self._claim_path(incarnation, at, turn), RangeClaim)
            if claim is not None:
                found[at] = Attempt(turn=turn, claim=claim)
        return found

    def _turns(self, incarnation: Incarnation, begin: str = "*") -> list[tuple[int, int]]:
        """Begin and turn of the claims there are, upwards."""
        names = self._claims.glob(f"{incarnation.shard}-{incarnation.created}-{begin}-*")
        parts = [path.name.split("-") for path in names]
        return sorted((int(at), int(turn)) for _, _, at, turn in parts)

    def _settle(self, batch: str) -> bool:
        """Bring a batch to its end: whether it was committed. An undecided one is aborted."""
        path = self._batches / f"{batch}.json"
        if _read(path, Decision) is None:
            self._decide(batch, Decision(committed=False))
        decision = _read(path, Decision)
        if decision is None or not decision.committed:
            self.discard(batch)
            return False
        if self.stage(batch).exists():
            self._place(batch, decision.files)
        return True

    def _forget_if_unclaimed(self, batch: str) -> None:
        path = self._batches / f"{batch}.json"
        decision = _read(path, Decision)
        if decision is None or not decision.committed:
            return  # an abort must outlive its batch's writer: `prune`
        for shard, created, begin, _ in decision.ranges:
            if any(self._claims.glob(f"{shard}-{created}-{begin}-*")):
                return
        path.unlink(missing_ok=True)

    def prune(self, *, owner: str, now_unix_s: float) -> None:
        """Bring to an end what an earlier process of this consumer left staged (batches are named
        ``<consumer>-<token>``), and forget what is long over."""
        for stage in (self._home / "stage").iterdir():
            if stage.name.rpartition("-")[0] == owner or _age_s(stage, now_unix_s) > TOMBSTONE_S:
                self._settle(stage.name)
        for path in self._batches.glob("*.json"):
            decision = _read(path, Decision)
            if decision is not None and not decision.committed and _age_s(path, now_unix_s) > TOMBSTONE_S:
                path.unlink(missing_ok=True)


def data_files(stage: Path) -> list[Path]:
    """What a reader of the folder would read: neither Spark's own files, nor one with nothing in it."""
    files = (path for path in stage.glob("*") if not path.name.startswith((".", "_")))
    return sorted(path for path in files if path.is_file() and path.stat().st_size)


def _seal(stage: Path) -> list[str]:
    """Names of the staged data files, all of them on disk for good."""
    files = data_files(stage)
    for path in files:
        _sync(path)
    if stage.exists():
        _sync(stage)
    return [path.name for path in files]


def _create(path: Path, content: bytes) -> bool:
    """Create `path` with its whole content at once; False if it is there already."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # several machines may try at once
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
