"""Decides when to reconcile a group again.

A change in the cluster enqueues its group (`loghub_operator.controller.handlers`), so a group that only waits
for its pods is not polled: the resync finds an event that was missed. The log service sends no notifications,
so the operator polls it: soon while a change is in progress, with exponential back-off while nothing changes,
and at the resync period when all is well, or sooner if the load drives scaling. So are the Secrets and
ConfigMaps that an object refers to, which are not watched.

An operation that ends by itself at the log service (the handover of a shard, the departure of a worker) is
polled every few seconds for as long as it lasts: no watch reports its end, and the next step waits for it.
Workers that resume after a checkpoint reset need no polling, because their pods change.
"""

import zlib
from collections.abc import Sequence

from loghub.backoff import backoff_s
from loghub_operator.api.conditions import ConditionType, LagReason, WorkersReason
from loghub_operator.api.status import CheckpointResetPhase, Phase, Status
from loghub_operator.model.actions import Action
from loghub_operator.model.observed import ServiceErrorReason

SOON_S = 1.0  # after a change of ours, whose effect is observed next
UNSETTLED_S = 2.0  # the first interval while something is awaited; it doubles
LOAD_EVERY_S = 10.0  # where the load decides, by the operator or by an autoscaler that reads its metrics
IN_PROGRESS_S = 8.0  # longest interval while an operation is in progress
THROTTLED_S = 300.0  # longest interval while the log service asks for fewer requests
_IN_PROGRESS = (Phase.REBALANCING, Phase.TERMINATING)
_LEAVING = (CheckpointResetPhase.STOPPING_WORKERS, CheckpointResetPhase.COMMITTING)
_NOT_BY_PODS = (WorkersReason.PIPELINE_CODE_NOT_FOUND, WorkersReason.LOG_SERVICE_UNAVAILABLE)
_SPREAD = 0.25  # of a pause: enough to spread the groups of one start over a resync


def requeue_after_s(actions: Sequence[Action], status: Status, *, unchanged: int, resync_s: float) -> float:
    """Seconds until the next reconcile; the last ``unchanged`` reconciles in a row found nothing new."""
    if _is_throttled(status):
        return backoff_s(unchanged + 1, first_s=resync_s, max_s=max(THROTTLED_S, resync_s))
    if actions:
        return SOON_S
    later_s = backoff_s(unchanged + 1, first_s=UNSETTLED_S, max_s=resync_s)
    if status.phase in _IN_PROGRESS or _moves_checkpoints(status):
        return min(later_s, IN_PROGRESS_S)
    if not _settled(status):
        if not _waits_for_pods(status):
            return later_s
        if not status.ready_replicas:
            return resync_s
    by_load = status.scaling is not None and status.scaling.mode != "Fixed"  # by the operator or externally
    return min(LOAD_EVERY_S, resync_s) if by_load else resync_s


def _is_throttled(status: Status) -> bool:
    return any(one.reason == ServiceErrorReason.THROTTLED for one in status.conditions)


def _moves_checkpoints(status: Status) -> bool:
    return status.checkpoint_reset is not None and status.checkpoint_reset.phase in _LEAVING


def _waits_for_pods(status: Status) -> bool:
    """Whether nothing but its pods keeps the group from being settled."""
    conditions = {one.type: one for one in status.conditions}
    group, workers = (
        conditions.get(ConditionType.GROUP_SYNCED),
        conditions.get(ConditionType.WORKERS_AVAILABLE),
    )
    if group is None or workers is None or group.status != "True" or _unassigned(status):
        return False
    if status.phase is Phase.UPDATING:
        return workers.reason not in _NOT_BY_PODS
    return workers.status == "False" and workers.reason not in _NOT_BY_PODS


def _unassigned(status: Status) -> bool:
    """Whether a shard has no consumer although a worker is ready."""
    return bool(status.ready_replicas) and any(shard.state == "not_alloc" for shard in status.shards)


def _settled(status: Status) -> bool:
    if status.phase is Phase.SUSPENDED:
        return True
    if any(one.reason == LagReason.LOG_SERVICE_UNAVAILABLE for one in status.conditions):
        return False  # whether that was chance is known soon
    if status.phase is not Phase.RUNNING or status.ready_replicas < status.replicas:
        return False
    return not _unassigned(status)


def jitter(pause_s: float, name: str) -> float:
    """Shortens the pause by up to a quarter, by the name, so that groups that start together drift apart."""
    return pause_s * (1.0 - _SPREAD * zlib.crc32(name.encode()) / 2**32)
