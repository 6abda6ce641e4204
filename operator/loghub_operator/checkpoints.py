"""Ask the log service where an order to move checkpoints leads, and force checkpoints.

What for: the log service half of a reposition, for the cluster and for `loghub up`, on the real SLS as
on the embedded service: it needs cursors and forced checkpoints only. What it must not know: whether
the order makes sense. Read next: `loghub_operator.goals`, `loghub.client.port`.
"""

from collections.abc import Iterable, Mapping
from typing import cast

from loghub.client.port import LogHub, Position
from loghub.wire.errors import LogHubException
from loghub_operator.api.patterns import unix_s
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.logservice import GroupKey
from loghub_operator.model import MoveCheckpoints, MoveObserved, MoveRecord, ShardObserved


def look_ahead(
    hub: LogHub,
    resource: LogHubConsumerGroup,
    shards: Iterable[ShardObserved],
    *,
    record: MoveRecord | None,
    source: Mapping[str, str] | None,
) -> MoveObserved:
    """What `Observed.move` tells; positions are asked only until they stand in a record. Never raises
    for an answer of the log service."""
    order = resource.spec.reposition
    if record is not None or order is None:
        return MoveObserved(record=record, source=source)
    chosen = [one.shard for one in shards if order.shards is None or one.shard in order.shards]
    logstore = resource.spec.logstore
    try:
        positions = {one: hub.get_cursor(logstore, one, _position(resource)) for one in chosen}
        undo = order.to == "checkpoints"
        ends = {one: hub.get_cursor(logstore, one, "end") for one in chosen} if undo else {}
    except LogHubException as error:
        return MoveObserved(source=source, trouble=f"the log service gives no cursor: {error}")
    return MoveObserved(positions=positions, ends=ends, source=source)


def _position(resource: LogHubConsumerGroup) -> Position:
    order = resource.spec.reposition
    assert order is not None
    match order.to:
        case "begin" | "end":
            return order.to
        case "time":
            return unix_s(cast(str, order.time))
        case "checkpoints":
            return resource.spec.initial_position_or_time()


def move_checkpoints(hub: LogHub, key: GroupKey, action: MoveCheckpoints) -> None:
    """Force them, one after the other. No consumer is named, since none holds these shards."""
    for shard, cursor in action.moves:
        hub.update_checkpoint(key.logstore, key.group, shard=shard, cursor=cursor, consumer="", force=True)
