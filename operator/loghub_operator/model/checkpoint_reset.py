"""The values of a checkpoint reset: the backup that is written before, and what is observed for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from loghub_operator.api.status import CheckpointResetPhase
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBackup:
    """What was saved before the checkpoints changed; shard -> cursor, "" for none."""

    requested_at: str  # as in the status of the reset that it belongs to
    before: Mapping[int, str]
    targets: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoints:
    """What is stored about a reset, apart from the object; ``source`` is as in `ResetObserved`."""

    backup: CheckpointBackup | None = None
    source: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetObserved:
    """What a checkpoint reset needs to know; observed only while a reset is in progress.

    ``positions`` are cursors read now: the targets of the reset or, with ``to: ConfigMap``, where a shard
    without a checkpoint begins. ``source`` is the ConfigMap of the reset, None if it does not exist.
    """

    backup: CheckpointBackup | None = None
    positions: Mapping[int, str] = field(default_factory=dict)
    ends: Mapping[int, str] = field(default_factory=dict)
    source: Mapping[str, str] | None = None
    error: str = ""  # why something of it could not be read, as a message for users


def needs_observation(resource: LogHubConsumerGroup) -> bool:
    """Whether a reset is in a phase that needs `ObservedState.reset`. A deletion finishes one that has
    begun to change checkpoints, and begins none."""
    last = resource.status.checkpoint_reset
    if last is None or last.nonce != resource.spec.reset_nonce:
        return False
    if resource.metadata.deletion_timestamp is not None:
        return last.phase == CheckpointResetPhase.COMMITTING
    return last.phase in (CheckpointResetPhase.STOPPING_WORKERS, CheckpointResetPhase.COMMITTING)


def backup_name(resource: LogHubConsumerGroup) -> str:
    """Name of the ConfigMap that this reset leaves for undo."""
    return f"{resource.metadata.name}-checkpoints-{resource.spec.reset_nonce}"
