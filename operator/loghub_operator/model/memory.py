"""What one reconcile of a group leaves for the next."""

from dataclasses import dataclass

from loghub_operator.model.drift_state import NO_DRIFT_HISTORY, DriftHistory
from loghub_operator.model.scaling_state import NOTHING, ScalingState


@dataclass(frozen=True, slots=True, kw_only=True)
class Stillness:
    """The checkpoints as they have been since then: shard, cursor, time. ``moved_by`` are the consumers that
    saved the last ones that differ.
    """

    since_unix_s: float
    checkpoints: tuple[tuple[int, str, float | None], ...]
    moved_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A restart of the operator forgets it, so nothing that must survive is kept in it.

    ``last_error`` is the message of the action that failed in the previous reconcile, "" if none did;
    ``service_error`` is the same if it was the log service that failed or refused. ``committed`` is how many
    checkpoints it committed for a reset; 0 if that failed. ``failed_looks`` is how many
    observations in a row the log service did not answer, and ``failed_tries`` in how many reconciles in a row
    the API server was too busy for an action. ``deletion_seen_unix_s`` is when this operator
    first saw that the object is being deleted, and ``stillness`` is what it knows of the checkpoints since no
    worker exists.
    """

    scaling: ScalingState = NOTHING
    drift: DriftHistory = NO_DRIFT_HISTORY
    last_error: str = ""
    service_error: str = ""
    committed: int = 0
    failed_looks: int = 0
    failed_tries: int = 0
    deletion_seen_unix_s: float | None = None
    stillness: Stillness | None = None


NO_MEMORY = Memory()
