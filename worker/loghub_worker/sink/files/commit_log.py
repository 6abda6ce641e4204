"""Exactly-once delivery of files: decides once which cursor range of which shard has which files.

A batch becomes visible by one atomic step, and no range of a shard can become visible twice, whichever worker
attempts it and whenever, including a worker that was stopped for an hour between any two steps. The steps are
the methods of a `LogStorage`: a POSIX folder, or a prefix of a bucket.

Under ``<sink>/_loghub/<project>/<logstore>/<group>/``:

``stage/<batch>/``     files of a batch, written but not yet part of the sink, in the folders of their
                       partitions
``range-claims/<shard>-<created>-<begin>-<number>``  the claim of the batch that delivers that shard from
                       that cursor. It is created by hard link, so only one batch can have it. The
                       number counts the attempts at one cursor: the next attempt is possible only
                       once the batch of the previous one was aborted. The last attempt is in effect
``openings/<shard>-<created>``  the worker that opened the shard last, and may deliver it
``batches/<batch>.json``  the decision on a batch, created only if absent: committed, with its
                       claims and files, or aborted

A batch is delivered in four steps:

1. It claims each of its ranges.
2. It checks that no other worker has opened one of the shards.
3. It decides itself committed.
4. It moves its files into the sink.

A worker that is assigned a shard does the following:

1. It opens the shard, and reads the claims.
2. It requests the checkpoint, and searches for the claim at the checkpoint.
3. It completes a committed batch (finishes its moves), and the shard resumes at the range's end. So the files
   of a batch, which are several in several partitions, become visible one after another, but none without all
   others in the end.
4. It decides an undecided batch aborted, after which the batch's writer can no longer commit it.

So if two workers both believe to hold a shard, the worker that opens it last finds every claim of the other
worker, or the other worker finds the shard opened. A claim that the opener no longer finds was removed
because the checkpoint that it requests next is past the claim. If a claim is removed after it was found, it
says nothing any more: its decision may be removed too, and the requested checkpoint may be an older one, so
the shard is opened once more. Staged files are deleted only if the decision in effect is an abort, or by a
writer that has never tried to commit.

Claims are removed only before the service's checkpoint. The last committed claim among them stays, with its
decision: it says how far the sink has the shard, should the checkpoint be lost. At or after the checkpoint,
an attempt is never undone. A process that stalls between reading and acting, and continues after other
processes have moved on, can therefore only abort a batch that was undecided when it read, or try for an
attempt that was made in the meantime, and fail. A range that must be delivered again, because the checkpoint
was moved back on purpose, gets one more attempt, of a batch that never commits.

``batches/<batch>.json`` is created only if absent, so there is one decision for a batch, which never changes.
The decision is removed with the batch's last claim. The claims of a batch are acknowledged shard by shard, by
several threads at the same time. If each thread asked the storage whether the other claims are gone, the
requests would grow with the square of the number of shards. So this process remembers which claims it has
removed and is removing: of the threads that remove claims of one batch only the last one asks, and only for
the claims that other processes may have removed.
"""

import errno
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import msgspec
import structlog

from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation, continues_at, delivered_until
from loghub_worker.sink.files.range_claims import FOLDER as CLAIMS
from loghub_worker.sink.files.range_claims import Attempt, ClaimFile, RangeClaims, ShardOpenings, claim_name
from loghub_worker.sink.files.storage import (
    CreateRecords,
    DamagedRecordError,
    LogStorage,
    decode_json,
    read_json,
)

log = structlog.get_logger()


FOLDER = "batches"
REMEMBERED = 1024  # decisions to commit, so that an acknowledgement need not read them


class BatchDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a batch. Once made, it never changes."""

    committed: bool
    claims: list[str] = []  # names of claims
    files: list[str] = []  # their staged names, with the folders of their partitions


ABORTED = BatchDecision(committed=False)


class BatchDecisions:
    """The decisions in one storage, which several workers make at the same time. Thread-safe."""

    def __init__(self, storage: LogStorage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._known: dict[str, BatchDecision] = {}

    def make(self, batch: str, decision: BatchDecision, *, names_in: str | None = None) -> BatchDecision:
        """Make this decision unless one was made; the names of the records in `names_in` are durable before.
        Return the decision in effect."""
        name = _name(batch)
        with self._storage.creating(msgspec.json.encode(decision), names_in=names_in) as create_as:
            (content,) = create_as([name])
        self.flush()
        in_effect = decode_json(self._storage, name, content, BatchDecision)
        self._remember({batch: in_effect})
        return in_effect

    def _remember(self, decisions: Mapping[str, BatchDecision]) -> None:
        """Remember the decisions to commit, which are read again when their claims are acknowledged."""
        with self._lock:
            self._known |= {batch: one for batch, one in decisions.items() if one.committed}
            while len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]

    def flush(self) -> None:
        """Make all decisions durable, including decisions of other workers."""
        self._storage.flush(FOLDER)

    def read(self, batches: Collection[str]) -> dict[str, BatchDecision]:
        """The decisions on these batches, as far as they were made."""
        names = {_name(batch): batch for batch in batches}
        contents = self._storage.read(names.keys())
        decisions = {
            names[name]: decode_json(self._storage, name, content, BatchDecision)
            for name, content in contents.items()
        }
        self._remember(decisions)
        return decisions

    def known(self, batches: Iterable[str]) -> dict[str, BatchDecision]:
        """The decisions on these batches, as far as they were made. Decisions that this process has made or
        read are remembered."""
        wanted = list(batches)
        with self._lock:
            decisions = {batch: self._known[batch] for batch in wanted if batch in self._known}
        return decisions | self.read([batch for batch in wanted if batch not in decisions])

    def remove(self, batches: Collection[str]) -> None:
        """Remove decisions that are no longer needed."""
        self._storage.remove([_name(batch) for batch in batches])
        with self._lock:
            for batch in batches:
                self._known.pop(batch, None)

    def remove_aborts(self, *, older_than_s: float, now_unix_s: float) -> list[str]:
        """Remove the aborts of this age. Return the batches of this age that are committed."""
        committed = []
        for name, age_s in self._storage.ages_s(FOLDER, now_unix_s).items():
            if not name.endswith(".json") or age_s <= older_than_s:
                continue
            with damage_logged():
                decision = read_json(self._storage, f"{FOLDER}/{name}", BatchDecision)
                if decision is not None and decision.committed:
                    committed.append(name.removesuffix(".json"))
                elif decision is not None:
                    self._storage.remove([f"{FOLDER}/{name}"])
        return committed


@contextmanager
def damage_logged() -> Iterator[None]:
    """Log damage and continue: it concerns only the shards of one batch, which report it when they are
    resumed."""
    try:
        yield
    except DamagedRecordError as error:
        log.warning("a record of the sink is damaged", message=str(error))


def _name(batch: str) -> str:
    return f"{FOLDER}/{batch}.json"


class ClaimRemovals:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._removing: Counter[str] = Counter()  # threads by batch
        self._removed: dict[str, set[str]] = {}  # names of claims by batch

    @contextmanager
    def removing(self, claims: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
        """The body removes these claims, given by batch. When it has ended, the list has the batches of which
        no other thread removes claims any more. If the body raises, it is unknown which claims were
        removed."""
        last: list[str] = []
        with self._lock:
            self._removing.update(claims.keys())
        is_done = False
        try:
            yield last
            is_done = True
        finally:
            with self._lock:
                for batch, names in claims.items():
                    self._removing[batch] -= 1
                    if is_done:
                        self._removed.setdefault(batch, set()).update(names)
                    if not self._removing[batch]:
                        del self._removing[batch]
                        last.append(batch)
                while len(self._removed) > REMEMBERED:
                    del self._removed[next(iter(self._removed))]

    def others(self, batch: str, claims: Sequence[str]) -> list[str]:
        """The claims of a batch that this process has not removed."""
        with self._lock:
            removed: Collection[str] = self._removed.get(batch, ())
            return [name for name in claims if name not in removed]

    def forget(self, batches: Collection[str]) -> None:
        """These batches have no claims any more."""
        with self._lock:
            for batch in batches:
                self._removed.pop(batch, None)


MAX_ATTEMPTS = 100  # attempts of other workers that may come first before a claim fails
TOMBSTONE_S = 86_400.0  # an abort is kept for this long, since its batch's writer may still run


class RangeTakenError(Exception):
    """Another batch delivered one of the ranges, or another worker opened one of the shards."""


class SessionLostError(Exception):
    """The worker's session is over, so it may no longer deliver; nothing of the batch became visible."""


def _ignore_step(_step: str) -> None:
    """The default of `CommitLog.at_step`."""


class CommitLog:
    """The records of one group in one sink. Several workers use them at the same time, and several threads of
    each: one that publishes, and others that open and acknowledge shards."""

    def __init__(self, storage: LogStorage, *, at_step: Callable[[str], None] = _ignore_step) -> None:
        """`at_step` is called after each step with its name (tests end or hold the process there)."""
        self._storage = storage
        self._at_step = at_step
        self._decisions = BatchDecisions(storage)
        self._claims = RangeClaims(storage)
        self._removals = ClaimRemovals()
        self._openings = ShardOpenings(storage)
        self._found: dict[ShardIncarnation, dict[int, Attempt]] = {}  # the claims of shards being opened
        self._flushing = threading.Lock()
        self._unflushed: set[str] = set()  # folders of the sink into which files were moved

    # -- delivering a batch

    def stage(self, batch: str) -> Path:
        """Where the files of a batch are written before they are part of the sink."""
        return self._storage.stage(batch)

    def obstacle(self, batch: str) -> str | None:
        """Why a staged file of `batch` could never become part of the sink; None if all could."""
        obstacles = (
            self._storage.obstacle(batch, name, _target(batch, name))
            for name in self._storage.staged_files(batch)
        )
        return next((one for one in obstacles if one is not None), None)

    def publish(
        self,
        batch: str,
        ranges: Iterable[tuple[ShardIncarnation, Range]],
        *,
        may_commit: Callable[[], bool],
        written: Collection[str] = (),
    ) -> None:
        """Make the staged files of `batch` part of the sink, once and permanently. The `written` files must
        still be there.

        Raises `RangeTakenError` or `SessionLostError`; nothing is visible then. After an `OSError` it may be
        unknown whether the batch is committed; the next worker that finds its claims settles it.
        """
        ordered = sorted(ranges, key=lambda pair: pair[1])
        # The current openings: if this worker opens a shard once more, it is for another batch.
        openings = self._openings.ours(incarnation for incarnation, _ in ordered)
        try:
            files = self._storage.staged_files(batch)
            if missing := sorted(set(written) - set(files)):
                # Without its rows the batch would count as delivered.
                raise OSError(errno.ENOENT, "a staged file was removed", str(self.stage(batch) / missing[0]))
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
        commit = BatchDecision(committed=True, claims=claims, files=files)
        decision = self._decisions.make(batch, commit, names_in=CLAIMS)
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
            self._settle([batch])
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
        """Make the files of a batch durable, claim all its ranges, and return the names of the claims."""
        rows = [(i.shard, i.created, r.begin, r.end) for i, r in ordered]
        names = []
        with self._storage.creating(_claim_file(batch, rows), files_of=batch) as create_as:
            self._at_step("sealed")
            places = [(i, r.begin, self._next_number(i, r.begin)) for i, r in ordered]
            # Usually none of these cursors has a claim, so all can be claimed together.
            attempts = self._claims.claim(create_as, places)
            for (incarnation, begin, _), attempt in zip(places, attempts, strict=True):
                if attempt.batch != batch:
                    attempt = self._claim_later(batch, create_as, incarnation, attempt)
                assert attempt.begin == begin
                names.append(claim_name(incarnation, attempt))
                self._at_step("range claimed")
        self._at_step("all ranges claimed")
        return names

    def _claim_later(
        self, batch: str, create_as: CreateRecords, incarnation: ShardIncarnation, last: Attempt
    ) -> Attempt:
        """Claim a range after the attempts of other batches, unless one of these is committed."""
        for _ in range(MAX_ATTEMPTS):
            number = self._next_number(incarnation, last.begin)
            last = next(self._claims.claim(create_as, [(incarnation, last.begin, number)]))
            if last.batch == batch:
                return last
        raise _taken(incarnation, last.begin)

    def _next_number(self, incarnation: ShardIncarnation, begin: int) -> int:
        """The number of the next attempt at a cursor, as far as this process knows. Raises `RangeTakenError`
        if the batch of the last attempt is committed; otherwise aborts that batch."""
        last = self._claims.last(incarnation, begin)
        if last is None:
            return 0
        if self._settle([last.batch]):
            raise _taken(incarnation, begin)
        return last.number + 1

    def _move_files(self, batch: str, files: Collection[str]) -> None:
        """Move the files of a committed batch into the sink. Several workers may do this at the same time.
        The names of the files need not be durable before the claims are removed: until then, a worker that
        reads a claim moves the files that are still staged. A missing staging folder means that its files
        were moved before: no file system removes a folder with files."""
        targets = {name: _target(batch, name) for name in files}
        for target, exists in zip(targets.values(), self._storage.place(batch, targets), strict=True):
            if not exists:
                log.warning("a file of a committed batch does not exist", file=target)
            self._at_step("file moved")
        self._note_moved(files)
        self.discard(batch)

    def _note_moved(self, files: Iterable[str]) -> None:
        with self._flushing:
            self._unflushed |= {str(PurePosixPath(name).parent) for name in files}

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
        origin: CheckpointOrigin = CheckpointOrigin.SAVED,
    ) -> int:
        """Where a shard continues, by the committed batches and by the checkpoint
        (`loghub_consumer.resumption`). Only for the consumer that holds the shard: `confirm` raises if it no
        longer holds the shard, or has not held it ever since it was opened (`open_shard`). Raises `OSError`,
        also if another worker acknowledges a checkpoint meanwhile."""
        claims = self._found.pop(incarnation)
        # A worker that stalled here would abort the batch that the next consumer is about to commit, and
        # would take its files for leftovers.
        confirm()
        self._at_step("confirmed")
        committed = self._settle(dict.fromkeys(last.batch for last in claims.values()))
        self._require_claims(incarnation, [last for last in claims.values() if last.batch not in committed])
        ends = {begin: last.end for begin, last in claims.items() if last.batch in committed}
        self._at_step("settled")
        position = continues_at(delivered_until(ends, checkpoint, origin), checkpoint, origin)
        for begin, end in ends.items():
            if end > position:  # left over from before the checkpoint was moved on purpose
                self._allow_redelivery(incarnation, begin, claims[begin].number + 1)
        return position

    def _require_claims(self, incarnation: ShardIncarnation, aborted: Collection[Attempt]) -> None:
        """A batch is aborted only while its claim is there. The decision to commit is removed after the
        claim, and what reads as aborted then is a decision that was made too late."""
        names = {claim_name(incarnation, attempt) for attempt in aborted}
        removed = names - self._claims.existing(names) if names else names
        if removed:
            raise OSError(
                errno.EAGAIN,
                f"another worker saved a checkpoint of shard {incarnation.shard} while this one opened it,"
                " and removed claims",
                self._storage.describe(f"{CLAIMS}/{min(removed)}"),
            )

    def _allow_redelivery(self, incarnation: ShardIncarnation, begin: int, number: int) -> None:
        """Let a committed range be delivered again if a batch reads it. If the attempt exists already,
        another worker has done so."""
        row = (incarnation.shard, incarnation.created, begin, begin)
        with self._storage.creating(_claim_file(f"reopened-{secrets.token_hex(8)}", [row])) as create_as:
            for _ in self._claims.claim(create_as, [(incarnation, begin, number)]):
                self._at_step("redelivery allowed")

    def acknowledge(self, incarnation: ShardIncarnation, checkpoint: int) -> None:
        """The service has this checkpoint: remove the claims before it, which are no longer needed, except
        for the last one that was committed."""
        before = self._claims.before(incarnation, checkpoint)
        if not before:
            return
        last = self._last_committed(before)
        attempts = [attempt for attempt in before if attempt != last]
        removed: dict[str, list[str]] = {}
        for attempt in attempts:
            removed.setdefault(attempt.batch, []).append(claim_name(incarnation, attempt))
        with self._removals.removing(removed) as last_removed:
            self._flush_files()
            self._at_step("files flushed")
            self._claims.remove(incarnation, attempts)
        self._forget_unclaimed(last_removed)

    def _last_committed(self, attempts: Collection[Attempt]) -> Attempt | None:
        """The last of these attempts whose batch is committed. They are in ascending order."""
        in_effect = {attempt.begin: attempt for attempt in attempts}
        for attempt in reversed(in_effect.values()):
            decision = self._decisions.known([attempt.batch]).get(attempt.batch)
            if decision is not None and decision.committed:
                return attempt
        return None

    def _flush_files(self) -> None:
        """Make durable what this process has moved, or has found moved, since it was called last."""
        with self._flushing:
            folders, self._unflushed = self._unflushed, set()
            try:
                if folders:
                    self._storage.flush_files(folders)
            except OSError:
                self._unflushed |= folders
                raise

    def _settle(self, batches: Collection[str]) -> frozenset[str]:
        """Complete the committed batches and abort the undecided ones. Returns the committed ones."""
        decided = self._decisions.read(batches)
        decisions = {batch: decided.get(batch) or self._decisions.make(batch, ABORTED) for batch in batches}
        staged = self._storage.staged()  # after the decisions: a writer may have made its own just now
        for batch, decision in decisions.items():
            if not decision.committed:
                if batch in staged:
                    self.discard(batch)
            elif batch in staged:
                self._decisions.flush()  # the worker that decided may not have done so yet
                self._move_files(batch, decision.files)
            else:
                self._note_moved(decision.files)  # the worker that moved them may not have made that durable
        return frozenset(batch for batch, decision in decisions.items() if decision.committed)

    def _forget_unclaimed(self, batches: Iterable[str]) -> None:
        """Remove the decisions to commit that have no claim left. An abort must outlive its batch's writer;
        `prune` removes it."""
        claims = {
            batch: self._removals.others(batch, decision.claims)
            for batch, decision in self._decisions.known(batches).items()
            if decision.committed
        }
        # The claims are acknowledged shard by shard, so the last one shows soonest that some are left.
        lasts = {names[-1]: batch for batch, names in claims.items() if names}
        for name in self._claims.existing(lasts.keys()):
            del claims[lasts[name]]
        left = self._claims.existing({name for names in claims.values() for name in names})
        unclaimed = [batch for batch, names in claims.items() if not left.intersection(names)]
        self._decisions.remove(unclaimed)
        self._removals.forget(unclaimed)

    def prune(self, *, owner: str) -> None:
        """Settle what is staged of an earlier process of this consumer (batches are named
        ``<consumer>-<token>``), and what any worker left staged for longer than `TOMBSTONE_S`. Remove aborts
        of that age, commits of that age without claims, and files that never got their name. Ages are
        measured by the clock of the storage: by a clock of this machine that is ahead, an abort would seem to
        be old while its batch's writer still runs."""
        now_unix_s = self._storage.now_unix_s()
        for batch, age_s in self._storage.staged_ages_s(now_unix_s).items():
            if batch.rpartition("-")[0] == owner or age_s > TOMBSTONE_S:
                with damage_logged():
                    self._settle([batch])
        committed = self._decisions.remove_aborts(older_than_s=TOMBSTONE_S, now_unix_s=now_unix_s)
        # A worker that ended between the two has removed a batch's claims, but not its decision.
        self._forget_unclaimed(committed)
        self._storage.remove_parts(older_than_s=TOMBSTONE_S, now_unix_s=now_unix_s)


def _claim_file(batch: str, rows: list[tuple[int, int, int, int]]) -> bytes:
    return msgspec.json.encode(ClaimFile(batch=batch, ranges=rows))


def _target(batch: str, name: str) -> str:
    """The name in the sink of a staged file, with the folders of its partition."""
    path = PurePosixPath(name)
    return str(path.with_name(f"{path.stem}-{batch}{path.suffix}"))


def _taken(incarnation: ShardIncarnation, begin: int) -> RangeTakenError:
    return RangeTakenError(f"another batch delivers shard {incarnation.shard} from cursor {begin} on")
