"""Exactly-once delivery of files: decides once which cursor range of which shard has which files.

A batch becomes visible by one atomic step, and no range of a shard can become visible twice, whichever worker
attempts it and whenever, including a worker that was stopped for an hour between any two steps. The steps are
those of a `LogStorage`: a POSIX folder, or a prefix of a bucket.

Under ``<sink>/_loghub/<project>/<logstore>/<group>/``:

``stage/<batch>/``     files of a batch, written but not yet part of the sink
``range-claims/<shard>-<created>-<begin>-<number>``  the claim of the batch that delivers that shard from
                       that cursor. It is created by hard link, so only one batch can have it. The
                       number counts the attempts at one cursor: the next attempt is possible only
                       once the batch of the previous one was aborted. The last attempt is in effect
``openings/<shard>-<created>``  the worker that opened the shard last, and may deliver it
``batches/<batch>.json``  the decision on a batch, created only if absent: committed, with its
                       claims and files, or aborted

A batch claims each of its ranges, checks that no other worker has opened one of the shards, then decides
itself committed, then moves its files into the sink. A worker that is assigned a shard opens it, reads the
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

import errno
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import structlog

from loghub_worker.batch_plan import Range
from loghub_worker.sink.log_storage import DamagedRecordError, LogStorage, create, decode_json, read_json
from loghub_worker.sink.range_claims import Attempt, ClaimFile, RangeClaims, ShardIncarnation, claim_name
from loghub_worker.sink.shard_openings import ShardOpenings

__all__ = ["CommitLog", "RangeTakenError", "SessionLostError", "ShardIncarnation"]

log = structlog.get_logger()

BATCHES = "batches"
MAX_ATTEMPTS = 100  # attempts of other workers that may come first before a claim fails
TOMBSTONE_S = 86_400.0  # an abort is kept for this long, since its batch's writer may still run
REMEMBERED_DECISIONS = 1024  # of this process's own batches, so that an acknowledgement need not read them


class RangeTakenError(Exception):
    """Another batch delivered one of the ranges, or another worker opened one of the shards."""


class SessionLostError(Exception):
    """The worker's session is over, so it may no longer deliver; nothing of the batch became visible."""


class BatchDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a batch. Once made, it never changes."""

    committed: bool
    claims: list[str] = []  # names of claims
    files: list[str] = []


ABORTED = BatchDecision(committed=False)


def _ignore_step(_step: str) -> None:
    """The default of `CommitLog.at_step`."""


class CommitLog:
    """The records of one group in one sink. Several workers use them at the same time, and several threads of
    each: one that publishes, and others that open and acknowledge shards."""

    def __init__(self, storage: LogStorage, *, at_step: Callable[[str], None] = _ignore_step) -> None:
        """`at_step` is called after each step with its name (tests end or hold the process there)."""
        self._storage = storage
        self._at_step = at_step
        self._decisions: dict[str, BatchDecision] = {}
        self._remembering = threading.Lock()
        self._claims = RangeClaims(storage)
        self._openings = ShardOpenings(storage)
        self._found: dict[ShardIncarnation, dict[int, Attempt]] = {}  # the claims of shards being opened

    # -- delivering a batch

    def stage(self, batch: str) -> Path:
        """Where the files of a batch are written before they are part of the sink."""
        return self._storage.stage(batch)

    def publish(
        self,
        batch: str,
        ranges: Iterable[tuple[ShardIncarnation, Range]],
        *,
        may_commit: Callable[[], bool],
        written: Collection[str] = (),
    ) -> None:
        """Make the staged files of `batch` part of the sink, once and permanently. Those `written` must still
        be there.

        Raises `RangeTakenError` or `SessionLostError`; nothing is visible then. After an `OSError` it may not
        be known whether the batch is committed; the next worker that finds its claims settles it.
        """
        ordered = sorted(ranges, key=lambda pair: pair[1])
        # Those of now: if this worker opens a shard once more, it is for another batch.
        openings = self._openings.ours(incarnation for incarnation, _ in ordered)
        try:
            files = self._storage.seal(batch)
            if missing := sorted(set(written) - set(files)):
                # Without its rows the batch would count as delivered.
                raise OSError(errno.ENOENT, "a staged file was removed", str(self.stage(batch) / missing[0]))
            self._at_step("sealed")
            claims = self._claim_all(batch, ordered)
            # A worker that opens a shard from now on finds the claim and aborts this batch. If one has opened
            # it already, the checks detect it: usually this worker's session is over.
            if not may_commit():
                raise SessionLostError
            self._at_step("session checked")
            lost = self._openings.lost(openings)
            if lost is not None:
                raise RangeTakenError(f"shard {lost.shard} was opened by another worker")
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
        """Remove what is staged of a batch: all its files that are not part of the sink."""
        self._storage.discard(batch)

    def _claim_all(self, batch: str, ordered: list[tuple[ShardIncarnation, Range]]) -> list[str]:
        """Claim all ranges of a batch and return the names of the claims."""
        rows = [(i.shard, i.created, r.begin, r.end) for i, r in ordered]
        names = []
        with self._storage.creating(_claim_file(batch, rows)) as create_as:
            for incarnation, shard_range in ordered:
                names.append(self._claim(batch, create_as, incarnation, shard_range.begin))
                self._at_step("range claimed")
        self._claims.flush()
        self._at_step("all ranges claimed")
        return names

    def _claim(
        self, batch: str, create_as: Callable[[str], bytes], incarnation: ShardIncarnation, begin: int
    ) -> str:
        last = self._claims.last(incarnation, begin)
        for _ in range(MAX_ATTEMPTS):
            if last is not None and self._settle(last.batch):
                break
            number = 0 if last is None else last.number + 1
            last = self._claims.claim(create_as, incarnation, begin, number)
            if last.batch == batch:
                return claim_name(incarnation, last)
        raise RangeTakenError(f"another batch delivers shard {incarnation.shard} from cursor {begin} on")

    def _decide(self, batch: str, decision: BatchDecision) -> BatchDecision:
        """Make this decision unless one was made. Return the decision in effect."""
        name = _decision_name(batch)
        content = create(self._storage, name, msgspec.json.encode(decision))
        self._storage.flush(BATCHES)
        in_effect = decode_json(self._storage, name, content, BatchDecision)
        if in_effect.committed:
            with self._remembering:
                self._decisions[batch] = in_effect
                if len(self._decisions) > REMEMBERED_DECISIONS:
                    del self._decisions[next(iter(self._decisions))]
        return in_effect

    def _move_files(self, batch: str, files: Iterable[str]) -> None:
        """Move the files of a committed batch into the sink. Several workers may do this at the same time."""
        for name in files:
            target = f"{Path(name).stem}-{batch}{Path(name).suffix}"
            if not self._storage.place(batch, name, target):
                log.warning("a file of a committed batch does not exist", file=target)
            self._at_step("file moved")
        self._storage.flush_files()
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
        with self._storage.creating(_claim_file(f"reopened-{secrets.token_hex(8)}", [row])) as create_as:
            self._claims.claim(create_as, incarnation, begin, number)

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
        decision = self._read_decision(batch) or self._decide(batch, ABORTED)
        if not decision.committed:
            self.discard(batch)
        elif self._storage.is_staged(batch):
            self._storage.flush(BATCHES)  # the one who decided may not have done so yet
            self._move_files(batch, decision.files)
        return decision.committed

    def _forget_if_unclaimed(self, batch: str) -> None:
        decision = self._decisions.get(batch) or self._read_decision(batch)
        # An abort must outlive its batch's writer; `prune` removes it. The claims are acknowledged shard by
        # shard, so the last one shows soonest that some are left.
        if decision is None or not decision.committed or self._claims.any_exists(reversed(decision.claims)):
            return
        self._storage.remove(_decision_name(batch))
        with self._remembering:
            self._decisions.pop(batch, None)

    def _read_decision(self, batch: str) -> BatchDecision | None:
        return read_json(self._storage, _decision_name(batch), BatchDecision)

    def prune(self, *, owner: str, now_unix_s: float) -> None:
        """Settle what an earlier process of this consumer left staged (batches are named
        ``<consumer>-<token>``), and what any worker left staged for longer than `TOMBSTONE_S`. Remove aborts
        of that age, and files that never got their name."""
        for batch, age_s in self._storage.staged_ages_s(now_unix_s).items():
            if batch.rpartition("-")[0] == owner or age_s > TOMBSTONE_S:
                with _damage_logged():
                    self._settle(batch)
        for name, age_s in self._storage.ages_s(BATCHES, now_unix_s).items():
            if not name.endswith(".json") or age_s <= TOMBSTONE_S:
                continue
            with _damage_logged():
                decision = self._read_decision(name.removesuffix(".json"))
                if decision is not None and not decision.committed:
                    self._storage.remove(f"{BATCHES}/{name}")
        self._storage.remove_parts(older_than_s=TOMBSTONE_S, now_unix_s=now_unix_s)


@contextmanager
def _damage_logged() -> Iterator[None]:
    """Damage concerns the shards of one batch, which report it when they are resumed."""
    try:
        yield
    except DamagedRecordError as error:
        log.warning("a record of the sink is damaged", message=str(error))


def _claim_file(batch: str, rows: list[tuple[int, int, int, int]]) -> bytes:
    return msgspec.json.encode(ClaimFile(batch=batch, ranges=rows))


def _decision_name(batch: str) -> str:
    return f"{BATCHES}/{batch}.json"
