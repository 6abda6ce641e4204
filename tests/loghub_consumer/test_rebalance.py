"""Which shards a consumer begins and gives up: plain values in, plain values out."""

from dataclasses import replace

import msgspec

from loghub_consumer import held_shard as hs
from loghub_consumer.held_shard import HeldShardState, Rebalance, rebalance
from loghub_consumer.membership.membership import MemberShard, ShardPhase

OPEN = MemberShard(shard=0, epoch=1, phase=ShardPhase.OPEN, position=5, saved=5)
DRAINING = replace(OPEN, phase=ShardPhase.DRAINING)
FLOW = hs.initialized(HeldShardState(shard=0, epoch=1, position=5, read_to=5), now=0)


def test_an_open_shard_is_assigned_once() -> None:
    assert rebalance({}, (OPEN,)) == Rebalance(assigned=(OPEN,))
    assert rebalance({0: FLOW}, (OPEN,)) == Rebalance()
    assert rebalance({}, (replace(OPEN, phase=ShardPhase.OPENING, position=None),)) == Rebalance()


def test_a_shard_that_the_group_takes_is_revoked_announced_and_released() -> None:
    assert rebalance({0: FLOW}, (DRAINING,)) == Rebalance(revoked=(0,))
    drained = hs.revoked(FLOW)
    assert rebalance({0: msgspec.structs.replace(drained, is_busy=True)}, (DRAINING,)) == Rebalance(), (
        "its batch runs"
    )
    assert rebalance({0: drained}, (DRAINING,)) == Rebalance(announce=(0,))
    announced = hs.announced(drained)
    assert rebalance({0: announced}, (DRAINING,)) == Rebalance()
    assert rebalance({0: hs.shut_down(announced)}, (DRAINING,)) == Rebalance(ended=(0,))


def test_a_shard_that_is_not_held_or_refused_or_held_again_is_lost() -> None:
    for held in ((), (replace(DRAINING, refused=True),), (replace(OPEN, epoch=2),)):
        assert rebalance({0: FLOW}, held) == Rebalance(lost=(0,))
        assert rebalance({0: hs.revoked(FLOW)}, held) == Rebalance(lost=(0,)), "also while it drains"


def test_a_shard_that_returns_waits_for_the_processor_of_its_earlier_assignment() -> None:
    returned = replace(OPEN, epoch=2)
    assert rebalance({0: hs.lost(FLOW)}, (returned,)) == Rebalance()
    assert rebalance({0: hs.shut_down(hs.lost(FLOW))}, (returned,)) == Rebalance(ended=(0,))
    assert rebalance({}, (returned,)) == Rebalance(assigned=(returned,))


def test_a_shard_that_is_taken_before_it_began_is_released() -> None:
    """Its processor would never end, and nobody else would get it."""
    assert rebalance({}, (DRAINING,)) == Rebalance(unbegun=(DRAINING,))
    again = replace(DRAINING, epoch=2)
    assert rebalance({0: hs.lost(FLOW)}, (again,)) == Rebalance(), "the processor of the earlier one runs"
