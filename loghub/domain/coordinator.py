"""The coordinator of one consumer group: one event in, the next state and the answer out.

What for: every decision about who holds which shard (architecture.md, "The FSM's edges").
What it must not know: HTTP, storage, real time, logging. Read next: `group` (the values),
`fsm` (the table), `balance`.

The caller's duties, in this order: hand the events of one group in one at a time, with a
``now`` that never goes back; persist ``facts`` in one transaction; log ``transitions``, one
line each; only then answer and keep ``state``. When persisting fails, drop the step: the old
state still holds. After each step arm one timer for `next_deadline` and hand in a `Tick` then;
a late tick is harmless.

    made = create_group(group="g", timeout_s=30.0, order=False, shards=(LogShard(shard=0),), now=0.0)
    beat = step(made.state, Heartbeat(consumer="a"), now=1.0)
    assert beat.answer == (0,)
"""

from collections.abc import Iterable

from loghub.domain.group import (
    Checkpoint,
    Configure,
    ConsumerEntry,
    Event,
    Fact,
    GroupSaved,
    GroupState,
    Heartbeat,
    Leave,
    LogShard,
    Refusal,
    SavedCheckpoint,
    ShardEntry,
    ShardForgotten,
    ShardSaved,
    ShardsChanged,
    Step,
    Tick,
    Transition,
)

__all__ = [
    "Checkpoint",
    "Configure",
    "ConsumerEntry",
    "Event",
    "Fact",
    "GroupSaved",
    "GroupState",
    "Heartbeat",
    "Leave",
    "LogShard",
    "Refusal",
    "SavedCheckpoint",
    "ShardEntry",
    "ShardForgotten",
    "ShardSaved",
    "ShardsChanged",
    "Step",
    "Tick",
    "Transition",
    "create_group",
    "next_deadline",
    "restore",
    "step",
]


def create_group(
    *, group: str, timeout_s: float, order: bool, shards: tuple[LogShard, ...], now: float
) -> Step:
    """A new group without consumers over the shards of its logstore; ``facts`` hold all of it."""
    raise NotImplementedError


def restore(
    *, group: str, timeout_s: float, order: bool, entries: Iterable[ShardEntry], now: float
) -> GroupState:
    """The group as it was persisted, after a restart of the service.

    Holders and next holders get a fresh lease of the whole timeout from ``now`` on: nobody
    can tell how long they have been silent while nobody listened, and a lease too long only
    delays, while one too short lets two consumers hold one shard. Consumers without shards
    are not persisted; they come back with their next heartbeat. Hand in a `ShardsChanged`
    right after, since the logstore may have changed.
    """
    raise NotImplementedError


def next_deadline(state: GroupState) -> float | None:
    """When the next consumer times out if nobody beats, monotonic seconds; None without consumers."""
    return min((c.last_heartbeat_s + state.timeout_s for c in state.consumers.values()), default=None)


def step(state: GroupState, event: Event, *, now: float) -> Step:
    """Apply one event; ``state`` is not changed. Bad requests are refusals, never exceptions."""
    raise NotImplementedError
