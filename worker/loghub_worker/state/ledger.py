"""The record of what the state of a stateful pipeline consists of, next to Spark's checkpoint directory.

For each shard it says from which cursor to which cursor the state has its logs, and why it does not begin
earlier. It is written before a batch is published, and once the sink has the batch; Spark's own commit comes
later. So after a crash at any moment it is known whether Spark must deliver its last batch, or only compute
its state.
"""

import shutil
import threading
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path

import msgspec
import structlog

from loghub.atomic_file import replace_file
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.state.checkpoint_folder import DurableFolder, forget_cut_off, last_commit

log = structlog.get_logger()

NONE = -1  # no batch


class Why(StrEnum):
    """Why the state of a shard does not have its earlier logs."""

    COMPLETE = ""  # it has them all
    ELSEWHERE = "Elsewhere"  # another worker has read them, or this one without this state, or they are of a
    # shard that was split or merged
    RESET = "Reset"  # its checkpoint was moved on purpose
    CHANGED = "Changed"  # the query or the function is another one
    UNUSABLE = "Unusable"  # Spark cannot read the state, or it is damaged


class StateIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a state belongs to."""

    pipeline: str  # a digest of the group, and of the query or the function
    reset: str  # the last reset of the group's checkpoints
    former: str = ""  # the digest of earlier releases; not stored


class ShardStateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The logs of one shard that the state consists of: the cursors from `since` up to `until`."""

    created: int  # of the shard, unix seconds: a shard of the same number may be another one
    since: int
    until: int
    why: str = Why.COMPLETE


class StateFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What Spark says of the state after a batch, and of the rows that it has dropped as late."""

    rows: int = 0
    bytes: int = 0  # in memory
    watermark_ms: int = 0  # during the batch; 0: there was none
    is_ahead: bool = False  # it lies after the receipt of the batch's logs
    late_rows: int = 0  # of this batch as an argument of `delivered`, of all batches in the ledger
    late_unix_s: float | None = None  # when there were late rows last

    def after(self, before: "StateFigures") -> "StateFigures":
        """The figures of one batch, with the late rows of all batches before."""
        return msgspec.structs.replace(
            self,
            late_rows=before.late_rows + self.late_rows,
            late_unix_s=self.late_unix_s if self.late_rows else before.late_unix_s,
        )


class _Ledger(msgspec.Struct, frozen=True, kw_only=True):
    identity: StateIdentity
    why: str  # of a shard that was read before and is not among `shards`
    batch: int = NONE  # the last batch that the sink has
    publishing: int = NONE  # a batch that the sink may have
    ends: dict[int, int] = {}  # of the ranges of that batch, by shard
    shards: dict[int, ShardStateRecord] = {}
    figures: StateFigures = StateFigures()


class StateLedger:
    """The record in one folder, which also has Spark's checkpoint directory. Thread-safe."""

    def __init__(self, folder: Path, identity: StateIdentity) -> None:
        """Begin with an empty state if the state in the folder belongs to anything else. Raises `OSError`."""
        self.checkpoint = folder / "checkpoint"
        self._file = folder / "ledger.json"
        self._lock = threading.Lock()
        self._discarded: Why | None = None
        self._measured: tuple[int, StateFigures] | None = None  # of the batch that is delivered next
        self._files = DurableFolder(self.checkpoint)
        ledger = _read(self._file)
        why = _misfit(ledger, identity, self.checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        stored = msgspec.structs.replace(identity, former="")
        if ledger is not None and why is Why.COMPLETE:
            self._ledger = msgspec.structs.replace(ledger, identity=stored)
            if ledger.identity != stored:
                self._write(self._ledger)
            return
        if why is not Why.ELSEWHERE:
            log.warning("the state does not fit and is removed", why=why)
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        late = StateFigures() if ledger is None else _of_late_rows(ledger.figures)
        self._ledger = _Ledger(identity=stored, why=why, figures=late)
        self._write(self._ledger)

    # -- the shard manager's thread

    def continue_at(
        self, incarnation: ShardIncarnation, position: int, *, is_first: bool, moved: bool
    ) -> int:
        """Where a shard continues that was opened at this position: not before the end of its logs in the
        state. `is_first`: no consumer has read the shard before; `moved`: its checkpoint was moved on
        purpose."""
        shard = incarnation.shard
        with self._lock:
            ledger = self._ledger
            state = ledger.shards.get(shard)
            if state is not None and state.created == incarnation.created:
                if moved and position < state.until:
                    self._discarded = Why.RESET
                elif position <= state.until:
                    return state.until
                elif ledger.publishing > ledger.batch and ledger.ends.get(shard) == position:
                    return position  # the sink has the batch, and its state will be computed
            why = Why.ELSEWHERE if ledger.batch > NONE else _known(ledger.why)
            why = Why.COMPLETE if is_first else Why.RESET if moved else why
            begun = ShardStateRecord(
                created=incarnation.created, since=position, until=position, why=why.value
            )
            self._write(msgspec.structs.replace(ledger, shards={**ledger.shards, shard: begun}))
        if why is not Why.COMPLETE:
            log.warning("the state does not have the earlier logs of a shard", shard=shard, since=position)
        return position

    # -- the query's thread

    def is_delivered(self, batch: int) -> bool:
        """Whether the sink is known to have this batch."""
        return batch <= self._ledger.batch

    def may_be_delivered(self, batch: int) -> bool:
        """Whether the sink may have this batch."""
        return batch <= self._ledger.publishing

    def publishing(self, batch: int, ranges: Iterable[Range]) -> None:
        """The sink gets this batch now. What Spark needs to compute its state again is durable before."""
        self._files.flush()
        with self._lock:
            ends = {part.shard: part.end for part in ranges}
            self._write(msgspec.structs.replace(self._ledger, publishing=batch, ends=ends))

    def measured(self, batch: int, figures: StateFigures) -> None:
        """What Spark says of the state after this batch; the record that the sink has the batch contains it.
        So the late rows of a batch are counted once, however often it is repeated."""
        self._measured = (batch, figures)

    def delivered(self, batch: int, ranges: Iterable[Range]) -> None:
        """The sink has this batch, and its logs are part of the state."""
        with self._lock:
            shards = dict(self._ledger.shards)
            for part in ranges:
                state = shards.get(part.shard) or ShardStateRecord(
                    created=0, since=part.begin, until=part.begin, why=Why.ELSEWHERE.value
                )
                shards[part.shard] = msgspec.structs.replace(state, until=part.end)
            of_batch, figures = self._measured or (NONE, StateFigures())
            before = self._ledger.figures
            self._write(
                msgspec.structs.replace(
                    self._ledger,
                    batch=batch,
                    publishing=NONE,
                    ends={},
                    shards=shards,
                    figures=figures.after(before) if of_batch == batch else before,
                )
            )

    def rolled_back(self, positions: Mapping[int, int]) -> None:
        """The batch that was not delivered is forgotten, and the shards continue at these positions."""
        with self._lock:
            shards = {
                shard: state
                if positions.get(shard, state.until) == state.until
                else msgspec.structs.replace(
                    state, since=positions[shard], until=positions[shard], why=Why.ELSEWHERE.value
                )
                for shard, state in self._ledger.shards.items()
            }
            self._write(msgspec.structs.replace(self._ledger, publishing=NONE, ends={}, shards=shards))

    def discard(self, why: Why) -> None:
        """The state cannot be used any more: `empty` removes it before the query starts again."""
        with self._lock:
            self._discarded = why

    @property
    def is_discarded(self) -> bool:
        """Whether `empty` must be called before another batch."""
        return self._discarded is not None

    def empty(self, positions: Mapping[int, int]) -> None:
        """Remove the state if it cannot be used. Shards at these positions continue there. No query runs."""
        with self._lock:
            why, ledger = self._discarded, self._ledger
            if why is None:
                return
            log.warning("the state is removed", why=why)
            shards = {
                shard: ShardStateRecord(created=state.created, since=at, until=at, why=why.value)
                for shard, state in ledger.shards.items()
                for at in [positions.get(shard)]
                if at is not None
            }
            shutil.rmtree(self.checkpoint, ignore_errors=True)
            late = _of_late_rows(ledger.figures)
            self._write(_Ledger(identity=ledger.identity, why=why.value, shards=shards, figures=late))
            self._discarded = None

    # -- any thread

    @property
    def figures(self) -> StateFigures | None:
        """The figures after the last batch that the sink has; None before the first batch."""
        return self._ledger.figures if self._ledger.batch > NONE or self._ledger.figures.late_rows else None

    def incomplete(self, held: Collection[int]) -> dict[int, ShardStateRecord]:
        """The shards among these whose earlier logs the state does not have."""
        shards = self._ledger.shards
        return {shard: shards[shard] for shard in sorted(held) if shard in shards and shards[shard].why}

    def _write(self, ledger: _Ledger) -> None:
        replace_file(self._file, msgspec.json.encode(ledger), durable=True)
        self._ledger = ledger


def _of_late_rows(figures: StateFigures) -> StateFigures:
    """The figures that remain when the state is removed."""
    return StateFigures(late_rows=figures.late_rows, late_unix_s=figures.late_unix_s)


def _read(file: Path) -> _Ledger | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Ledger)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _known(why: str) -> Why:
    """A later release may have other causes."""
    return Why(why) if why in list(Why) else Why.UNUSABLE


def _misfit(ledger: _Ledger | None, identity: StateIdentity, checkpoint: Path) -> Why:
    """Why the state in the folder cannot be continued; `COMPLETE` if it can, perhaps without the cut-off end
    of its last batches."""
    if ledger is None:
        return Why.UNUSABLE if checkpoint.exists() else Why.ELSEWHERE
    if ledger.identity.pipeline not in (identity.pipeline, identity.former):
        return Why.CHANGED
    if ledger.identity.reset != identity.reset:
        return Why.RESET
    if not forget_cut_off(checkpoint, delivered=ledger.batch, publishing=ledger.publishing):
        return Why.UNUSABLE
    committed = last_commit(checkpoint)
    return Why.COMPLETE if ledger.batch in (committed, committed + 1) else Why.UNUSABLE
