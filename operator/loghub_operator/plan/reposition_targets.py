"""Determines the target cursor for each shard of a checkpoint reset, or why there is none.

Everything that can be wrong with a reset is found before any checkpoint changes. A cursor beyond the end of a
shard never existed and is rejected. A cursor before the shard's oldest log is accepted: a checkpoint from
before retention is there, and the log service continues from the oldest log that it has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import MalformedCursor
from loghub_operator.api.checkpoint_reset import ResetCheckpoints, ResetTarget
from loghub_operator.model.observed import ShardObserved
from loghub_operator.model.reposition import MoveObserved

MOST_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCursors:
    """A cursor for each shard, or the problem as a message for users."""

    cursors: Mapping[int, str] = field(default_factory=dict)
    problem: str = ""


def goals_of(order: ResetCheckpoints, shards: Iterable[ShardObserved], move: MoveObserved) -> TargetCursors:
    """Pure; needs `MoveObserved.positions` and ``ends`` for every shard of the reset."""
    there = {one.shard for one in shards}
    unknown = [shard for shard in order.shards or () if shard not in there]
    if unknown:
        return _refused(f"the logstore has no shard {_numbers(unknown)}")
    if order.to is ResetTarget.CONFIG_MAP:
        return _from_config_map(order, there, move)
    return TargetCursors(cursors={shard: move.positions[shard] for shard in order.shards or sorted(there)})


def same_cursor(one: str, other: str) -> bool:
    """Equal as numbers; an absent checkpoint equals nothing."""
    try:
        return wire_cursor.decode(one) == wire_cursor.decode(other)
    except MalformedCursor:
        return False


def _refused(problem: str) -> TargetCursors:
    return TargetCursors(problem=problem)


def _numbers(shards: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(shards)[:MOST_NAMED]))


def _from_config_map(order: ResetCheckpoints, there: set[int], move: MoveObserved) -> TargetCursors:
    name = f"ConfigMap {order.config_map_name}"
    if move.source is None:
        return _refused(f"{name} does not exist")
    if not move.source:
        return _refused(f"{name} contains no checkpoints")
    if not all(_is_shard(key) and _is_cursor(value) for key, value in move.source.items()):
        # The message quotes nothing from it: a user who requests a reset may lack the right to read it.
        return _refused(f"{name} does not map shard IDs to cursors")
    saved = {int(key): cursor for key, cursor in move.source.items()}
    missing = [shard for shard in order.shards or () if shard not in saved]
    if missing:
        return _refused(f"{name} does not contain shard {_numbers(missing)}")
    gone = set(saved) - there if order.shards is None else set()
    if gone:
        hint = "list the other shards in spec.resetCheckpoints.shards"
        return _refused(f"{name} contains shard {_numbers(gone)}, which the logstore does not have; {hint}")
    chosen = {shard: saved[shard] for shard in sorted(order.shards or saved)}
    beyond = [shard for shard, cursor in chosen.items() if _is_beyond(cursor, move.ends[shard])]
    if beyond:
        return _refused(f"{name}: the cursor of shard {_numbers(beyond)} is beyond the end of the shard")
    # Without a checkpoint a worker starts at spec.startPosition, so that is what "" restores.
    return TargetCursors(cursors={shard: cursor or move.positions[shard] for shard, cursor in chosen.items()})


def _is_shard(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 10 and str(int(key)) == key


def _is_cursor(value: str) -> bool:
    """Accepts "" too, which stands for no checkpoint."""
    return value == "" or same_cursor(value, value)


def _is_beyond(cursor: str, end: str) -> bool:
    return cursor != "" and wire_cursor.decode(cursor) > wire_cursor.decode(end)
