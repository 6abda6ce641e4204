"""How far a Delta table has each shard, and who may take it further. Pure.

A table keeps two application transactions for each shard (`SetTransaction` of the Delta protocol, a number
under a name, of which a snapshot has the last one):

``loghub/<project>/<logstore>/<group>/<shard>/<created>``        the cursor up to which it has the shard
``loghub/<project>/<logstore>/<group>/<shard>/<created>/turns``  how often that was moved back on purpose

A commit with rows carries the first for each shard of its batch, in the one file that makes the rows visible.
A worker remembers the position that it found when it opened a shard or has committed itself. It may commit
only if a snapshot still has that position, and only onto that snapshot: a commit of another worker with the
same name in between makes the Delta library refuse it, whatever it retries.

Why no interleaving doubles or loses a log: within one turn the cursor only rises, and each commit replaces
exactly the position that it was planned from. So the committed ranges follow one another without overlap,
whichever workers made them, and however long one of them was stopped. A worker that was stopped finds another
position and plans again from there. Without the turns, a position could come back after the cursor was moved
back, and a worker that slept through both could take it for the one it knew.

Between two ranges lies only what need not be delivered: ranges without rows, which are not committed, logs
that had expired, and what the checkpoint was moved past.

What it does not give: of two workers that both believe to hold a shard, not the one that opened it later
wins, but the one that commits first; the other one's batch is discarded and read again after it. Both deliver
the same logs, so the table is the same. If their settings differ, the one that was replaced can deliver one
last batch with the old ones; the membership prevents that as long as its clock is right.
"""

from dataclasses import dataclass

from loghub_worker.sink.range_claims import ShardIncarnation
from loghub_worker.sink.resumption import CheckpointOrigin, continues_at


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePosition:
    """A shard in a snapshot of a table. `end` is the cursor up to which the table has it; None: no rows."""

    end: int | None
    turns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A change of a shard's position, which is valid only as long as the table has `before`."""

    shard: ShardIncarnation
    before: TablePosition
    after: TablePosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Where a shard continues. With `after`, the table must be given that position first."""

    cursor: int
    after: TablePosition | None = None


def resumption(found: TablePosition, checkpoint: int, origin: CheckpointOrigin) -> Resumption:
    """Where a shard continues whose position in the table is `found`.

    A checkpoint that was moved back must be in the table before it is saved under a worker's name: from then
    on nothing else tells the next worker.
    """
    cursor = continues_at(found.end, checkpoint, origin)
    if found.end is None or found.end <= cursor:
        return Resumption(cursor=cursor)
    return Resumption(cursor=cursor, after=TablePosition(end=cursor, turns=found.turns + 1))


def delivered(before: TablePosition, *, begin: int, end: int) -> TablePosition | None:
    """The position after the range from `begin` to `end`; None if the table has some of it already."""
    if before.end is not None and begin < before.end:
        return None
    return TablePosition(end=end, turns=before.turns)


def transactions(prefix: str, move: Move) -> dict[str, int]:
    """The application transactions of a move. `prefix` names the group."""
    name = position_name(prefix, move.shard)
    assert move.after.end is not None  # a position is never taken away
    numbers = {name: move.after.end}
    if move.after.turns != move.before.turns:
        numbers[turns_name(prefix, move.shard)] = move.after.turns
    return numbers


def position_name(prefix: str, shard: ShardIncarnation) -> str:
    """The application id of a shard's cursor."""
    return f"{prefix}/{shard.shard}/{shard.created}"


def turns_name(prefix: str, shard: ShardIncarnation) -> str:
    """The application id of the number of times that a shard was moved back."""
    return f"{position_name(prefix, shard)}/turns"
