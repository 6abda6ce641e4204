"""Which shards a consumer begins and gives up, as a value, from what the membership holds."""

from collections.abc import Mapping
from dataclasses import dataclass

from loghub_worker.consumer.shard_flow import FlowPhase, ShardFlow
from loghub_worker.membership.membership import HeldShard, ShardPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """The shards by what happens to them. `revoked` end their batch, `announce` have no batch any more and
    wait for the listener, `ended` are released, and so are `unbegun`, which were revoked before they
    began."""

    assigned: tuple[HeldShard, ...] = ()
    revoked: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    announce: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    unbegun: tuple[HeldShard, ...] = ()


def rebalance(flows: Mapping[int, ShardFlow], held: tuple[HeldShard, ...]) -> Rebalance:
    """What to do now. A shard that returns waits until the processor of its earlier assignment has ended, so
    that the order of its logs is kept."""
    by_shard = {shard.shard: shard for shard in held}
    revoked, lost, announce, ended = [], [], [], []
    for number, flow in sorted(flows.items()):
        shard = by_shard.get(number)
        is_ours = shard is not None and shard.epoch == flow.epoch and not shard.refused
        if flow.phase is FlowPhase.ENDED:
            ended.append(number)
        elif flow.phase is FlowPhase.LOST:
            continue
        elif not is_ours:
            lost.append(number)
        elif flow.phase is FlowPhase.DRAINING:
            if not flow.is_busy and not flow.is_announced:
                announce.append(number)
        elif shard is not None and shard.phase is not ShardPhase.OPEN:
            revoked.append(number)
    opened = (s for s in held if s.phase is ShardPhase.OPEN and s.position is not None)
    return Rebalance(
        assigned=tuple(s for s in opened if s.shard not in flows),
        revoked=tuple(revoked),
        lost=tuple(lost),
        announce=tuple(announce),
        ended=tuple(ended),
        unbegun=tuple(s for s in held if s.phase is ShardPhase.DRAINING and s.shard not in flows),
    )
