"""Decides when to reconcile a group again.

A change in the cluster enqueues its group (`loghub_operator.controller.handlers`). The log service sends no
notifications, so the operator polls it: soon while a change is in progress, with exponential back-off while
nothing changes, and at the resync period when all is well, or sooner if the load drives scaling. Hundreds of
groups that wait for a node, for example, then cost no more than as many that run.

An operation that ends by itself at the log service (the handover of a shard, the departure of a worker) is
polled every few seconds for as long as it lasts: no watch reports its end, and the next step waits for it.
Workers that resume after a checkpoint reset need no polling, because their StatefulSet changes.
"""

import zlib
from collections.abc import Sequence

from loghub_operator.api.status import CheckpointResetPhase, Phase, Status
from loghub_operator.model.actions import Action
from loghub_operator.plan.status.write_policy import LAG_EVERY_S

SOON_S = 1.0
UNSETTLED_S = 2.0
ON_ITS_WAY_S = 8.0  # longest interval while an operation is in progress
_ON_ITS_WAY = (Phase.REBALANCING, Phase.TERMINATING)
_LEAVING = (CheckpointResetPhase.STOPPING_WORKERS, CheckpointResetPhase.COMMITTING)
_SPREAD = 0.25


def requeue_after_s(actions: Sequence[Action], status: Status, *, unchanged: int, resync_s: float) -> float:
    """Seconds until the next reconcile; the last ``unchanged`` reconciles in a row found nothing new."""
    if actions:
        return SOON_S
    later_s = min(UNSETTLED_S * 2.0 ** min(unchanged, 10), resync_s)
    if status.phase in _ON_ITS_WAY or _moves_checkpoints(status):
        return min(later_s, ON_ITS_WAY_S)
    if not _settled(status):
        return later_s
    behind = status.lag is not None and bool(status.lag.logs or status.lag.seconds)
    by_load = status.scaling is not None and status.scaling.mode != "Fixed"  # by the operator or externally
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
    """Shortens the pause by up to a quarter, by the name, so that groups that start together drift apart."""
    return pause_s * (1.0 - _SPREAD * zlib.crc32(name.encode()) / 2**32)
