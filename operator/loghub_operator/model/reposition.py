"""The values of a checkpoint move: what it records, and what is observed for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from loghub_operator.api.status import CheckpointResetPhase
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """What was written down before checkpoints were moved; shard -> cursor, "" for none."""

    ordered_at: str  # as in the status of the order it belongs to
    before: Mapping[int, str]
    goals: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveObserved:
    """What an order to move checkpoints needs to know; looked for only while one is under way.

    ``positions`` are cursors asked now: where the order leads, or, with ``to: checkpoints``, the
    initial position. ``source`` is the ConfigMap of the order, None where there is none.
    """

    record: MoveRecord | None = None
    positions: Mapping[int, str] = field(default_factory=dict)
    ends: Mapping[int, str] = field(default_factory=dict)
    source: Mapping[str, str] | None = None
    trouble: str = ""  # why something of it could not be looked at, in a person's words


def needs_a_look(resource: LogHubConsumerGroup) -> bool:
    """Is an order in a phase in which `ObservedState.move` is asked for?"""
    last = resource.status.checkpoint_reset
    if last is None or last.nonce != resource.spec.reset_nonce:
        return False
    return last.phase in (CheckpointResetPhase.STOPPING_WORKERS, CheckpointResetPhase.COMMITTING)


def record_name(resource: LogHubConsumerGroup) -> str:
    """Of the ConfigMap that this order leaves for undo."""
    return f"{resource.metadata.name}-checkpoints-{resource.spec.reset_nonce}"
