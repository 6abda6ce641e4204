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
from loghub_operator.model.checkpoint_reset import ResetObserved
from loghub_operator.model.observed import ShardObserved
from loghub_operator.plan.listing import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCursors:
    """A cursor for each shard, or the problem as a message for users."""

    cursors: Mapping[int, str] = field(default_factory=dict)
    problem: str = ""


def target_cursors(
    requested: ResetCheckpoints, shards: Iterable[ShardObserved], observed: ResetObserved
) -> TargetCursors:
    """Pure; needs `ResetObserved.positions` and ``ends`` for every shard of the reset."""
    existing = {shard.shard for shard in shards}
    unknown = [shard for shard in requested.shards or () if shard not in existing]
    if unknown:
        return _invalid(f"the logstore has no shard {_numbers(unknown)}")
    if requested.to is ResetTarget.CONFIG_MAP:
        return _from_config_map(requested, existing, observed)
    return TargetCursors(
        cursors={shard: observed.positions[shard] for shard in requested.shards or sorted(existing)}
    )


def same_cursor(first: str, second: str) -> bool:
    """Equal as numbers; an absent checkpoint equals nothing."""
    try:
        return wire_cursor.decode(first) == wire_cursor.decode(second)
    except MalformedCursor:
        return False


def _invalid(problem: str) -> TargetCursors:
    return TargetCursors(problem=problem)


def _numbers(shards: Iterable[int]) -> str:
    return listed(sorted(shards))


def _from_config_map(
    requested: ResetCheckpoints, existing: set[int], observed: ResetObserved
) -> TargetCursors:
    name = f"ConfigMap {requested.config_map_name}"
    if observed.source is None:
        return _invalid(f"{name} does not exist")
    if not observed.source:
        return _invalid(f"{name} contains no checkpoints")
    if not all(_is_shard(key) and _is_cursor(value) for key, value in observed.source.items()):
        # The message quotes nothing from it: a user who requests a reset may lack the right to read it.
        return _invalid(f"{name} does not map shard IDs to cursors")
    saved = {int(key): cursor for key, cursor in observed.source.items()}
    missing = [shard for shard in requested.shards or () if shard not in saved]
    if missing:
        return _invalid(f"{name} does not contain shard {_numbers(missing)}")
    deleted = set(saved) - existing if requested.shards is None else set()
    if deleted:
        hint = "list the other shards in spec.resetCheckpoints.shards"
        return _invalid(
            f"{name} contains shard {_numbers(deleted)}, which the logstore does not have; {hint}"
        )
    chosen = {shard: saved[shard] for shard in sorted(requested.shards or saved)}
    beyond = [shard for shard, cursor in chosen.items() if _is_beyond(cursor, observed.ends[shard])]
    if beyond:
        return _invalid(f"{name}: the cursor of shard {_numbers(beyond)} is beyond the end of the shard")
    # "" restores the absence of a checkpoint, so the shard begins where a worker would begin it.
    return TargetCursors(
        cursors={shard: cursor or observed.positions[shard] for shard, cursor in chosen.items()}
    )


def _is_shard(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 10 and str(int(key)) == key


def _is_cursor(value: str) -> bool:
    """Accepts "" too, which means no checkpoint."""
    return value == "" or same_cursor(value, value)


def _is_beyond(cursor: str, end: str) -> bool:
    return cursor != "" and wire_cursor.decode(cursor) > wire_cursor.decode(end)
