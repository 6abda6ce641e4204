"""Resolves the target cursors of a checkpoint reset, and forces checkpoints.

This is the log-service half of a checkpoint reset, in a cluster and for `loghub up`. It needs only cursors
and forced checkpoints, so it works with the real SLS and with the embedded service. Whether a reset is
valid is decided in `loghub_operator.plan.reset_targets`.
"""

from collections.abc import Iterable
from typing import cast

from loghub.client.port import LogHub, Position
from loghub.clock import Clock
from loghub.wire.errors import LogHubException
from loghub.worker_contract import first_position
from loghub_operator.api.checkpoint_reset import ResetTarget
from loghub_operator.api.patterns import unix_s
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.logservice.deadline import Deadline
from loghub_operator.logservice.group_key import GroupKey
from loghub_operator.model.actions import CommitCheckpoints
from loghub_operator.model.checkpoint_reset import ResetObserved, StoredCheckpoints
from loghub_operator.model.observed import ShardObserved

AHEAD_S = 45.0  # together with the observation before it, below the bound of liveness
FORCE_S = 30.0
TOO_SLOW = f"the log service did not return the target cursors of all shards within {AHEAD_S:.0f} s"


def resolve_targets(
    client: LogHub,
    resource: LogHubConsumerGroup,
    shards: Iterable[ShardObserved],
    stored: StoredCheckpoints,
    *,
    last_initial_shard: int | None,
    clock: Clock,
) -> ResetObserved:
    """Returns the value of `ObservedState.reset`; positions are requested only until a backup contains them.
    Never raises for a response of the log service."""
    requested, source = resource.spec.reset_checkpoints, stored.source
    if stored.backup is not None or requested is None:
        return ResetObserved(backup=stored.backup, source=source)
    chosen = [shard.shard for shard in shards if requested.shards is None or shard.shard in requested.shards]
    logstore = resource.spec.logstore
    undo, deadline = requested.to is ResetTarget.CONFIG_MAP, Deadline(clock, AHEAD_S)
    positions, ends = dict[int, str](), dict[int, str]()
    try:
        for shard in chosen:
            if deadline.is_over():
                return ResetObserved(source=source, error=TOO_SLOW)
            positions[shard] = client.get_cursor(
                logstore, shard, _position(resource, shard, last_initial_shard)
            )
            if undo:
                ends[shard] = client.get_cursor(logstore, shard, "end")
    except LogHubException as error:
        return ResetObserved(source=source, error=f"the log service returned no cursor: {error}")
    return ResetObserved(positions=positions, ends=ends, source=source)


def _position(resource: LogHubConsumerGroup, shard: int, last_initial_shard: int | None) -> Position:
    requested = resource.spec.reset_checkpoints
    assert requested is not None
    match requested.to:
        case ResetTarget.BEGIN:
            return "begin"
        case ResetTarget.END:
            return "end"
        case ResetTarget.TIMESTAMP:
            return unix_s(cast(str, requested.timestamp))
        case ResetTarget.CONFIG_MAP:
            start = resource.spec.start_position.begin_end_or_unix_s()
            return first_position(shard, start, last_initial_shard=last_initial_shard)


def commit_checkpoints(client: LogHub, key: GroupKey, action: CommitCheckpoints, clock: Clock) -> None:
    """Forces the checkpoints one after the other until the deadline; the next reconcile forces the rest.
    Names no consumer, because none holds these shards."""
    deadline = Deadline(clock, FORCE_S)
    for shard, cursor in action.cursors:
        if deadline.is_over():
            return
        client.update_checkpoint(key.logstore, key.group, shard=shard, cursor=cursor, consumer="", force=True)
