"""When to look at a group again.

What for: how long a task rests after a round. What it must not know: tasks, real time. Read next:
`loghub_operator.controller.reconciler`.

A change in the cluster wakes a group by itself (`loghub_operator.controller.handlers`). What happens at the
log service tells nobody, so it is looked for: soon where something is on its way, ever later
where nothing moves, and at the resync where all is well, or sooner where the load decides.
Hundreds of groups that wait for a node, say, then cost no more than as many that run.

What ends by itself at the log service (a shard's transfer, a worker's leave) is looked for every few
seconds however long it lasts: no watch tells of its end, and the next step waits for it. Workers
that come back after their checkpoints were moved are no such thing: their StatefulSet tells.
"""

import zlib
from collections.abc import Sequence

from loghub_operator.api.status import CheckpointResetPhase, Phase, Status
from loghub_operator.model.actions import Action
from loghub_operator.plan.status.write_policy import LAG_EVERY_S

SOON_S = 1.0
UNSETTLED_S = 2.0
ON_ITS_WAY_S = 8.0  # at most
_ON_ITS_WAY = (Phase.REBALANCING, Phase.TERMINATING)
_LEAVING = (CheckpointResetPhase.STOPPING_WORKERS, CheckpointResetPhase.COMMITTING)
_SPREAD = 0.25


def requeue_after_s(actions: Sequence[Action], status: Status, *, unchanged: int, resync_s: float) -> float:
    """Seconds until the next round; ``unchanged`` rounds in a row found nothing new."""
    if actions:
        return SOON_S
    later_s = min(UNSETTLED_S * 2.0 ** min(unchanged, 10), resync_s)
    if status.phase in _ON_ITS_WAY or _moves_checkpoints(status):
        return min(later_s, ON_ITS_WAY_S)
    if not _settled(status):
        return later_s
    behind = status.lag is not None and bool(status.lag.logs or status.lag.seconds)
    by_load = status.scaling is not None and status.scaling.mode != "Fixed"  # here or elsewhere
    return min(LAG_EVERY_S, resync_s) if behind or by_load else resync_s


def _moves_checkpoints(status: Status) -> bool:
    return status.checkpoint_reset is not None and status.checkpoint_reset.phase in _LEAVING


def _settled(status: Status) -> bool:
    if status.phase is Phase.SUSPENDED:
        return True
    if status.phase is not Phase.RUNNING or status.ready_replicas < status.replicas:
        return False
    return not any(shard.state == "not_alloc" for shard in status.shards) or not status.ready_replicas


def jitter(pause_s: float, name: str) -> float:
    """Up to a quarter less, by the name: groups that were begun together do not stay in step."""
    return pause_s * (1.0 - _SPREAD * zlib.crc32(name.encode()) / 2**32)
