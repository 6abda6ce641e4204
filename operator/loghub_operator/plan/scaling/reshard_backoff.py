"""Reports a split or merge that the log service rejects, and retries it with a backoff.

At a limit of shards, or without the permission, an attempt at each reconcile would change nothing. A
rejection is forgotten when any client has created a shard since, when shards may no longer be changed, and
with everything else that is remembered.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from loghub_operator.api.conditions import rfc3339
from loghub_operator.model.actions import ReshardRefused, SplitShard
from loghub_operator.model.observed import ShardObserved
from loghub_operator.model.scaling_state import Rejection, ScalingState

FIRST_PAUSE_S = 60.0  # doubles after each further rejection
LONGEST_PAUSE_S = 3600.0


def with_rejection(state: ScalingState, error: ReshardRefused, now: float) -> ScalingState:
    """Remembers a rejection; ``now`` in unix seconds."""
    kind: Literal["split", "merge"] = "split" if isinstance(error.action, SplitShard) else "merge"
    before = rejection_of(state, kind)
    new = Rejection(of=kind, message=str(error), at_unix_s=now, times=1 + (before.times if before else 0))
    return replace(state, rejections=(*(one for one in state.rejections if one != before), new))


def rejection_of(state: ScalingState, kind: Literal["split", "merge"]) -> Rejection | None:
    """The last rejection of this kind."""
    return next((one for one in state.rejections if one.of == kind), None)


def still_valid(state: ScalingState, shards: Iterable[ShardObserved]) -> ScalingState:
    """Without the rejections since which a shard was created: the change may be accepted now."""
    youngest = max((one.created_unix_s or 0.0 for one in shards), default=0.0)
    return replace(state, rejections=tuple(one for one in state.rejections if one.at_unix_s >= youngest))


def again_unix_s(rejection: Rejection) -> float:
    """From then on the change may be tried again."""
    return rejection.at_unix_s + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(rejection.times - 1, 10))


def rejection_message(rejection: Rejection) -> str:
    """The message for users; it stays the same until the next attempt."""
    again = rfc3339(again_unix_s(rejection))
    return f"the log service refuses to {rejection.of} ({rejection.message}); tried again after {again}"
