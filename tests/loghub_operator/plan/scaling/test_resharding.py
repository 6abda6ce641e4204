"""Hot shards and cold neighbours: split, merged, or only reported.

The decisions are those of `plan`, over a simulated group whose workers consume ten log groups per second.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.loghub_operator.plan.scaling.simulation import Shard, World, evenly, world

RATE = 10.0
HOT = {
    "shards": {"autoSplit": True, "autoMerge": True, "maxShards": 12, "minShards": 4, "cooldownSeconds": 300}
}


SPLIT_ONLY = {"shards": {**HOT["shards"], "minShards": 12}}


@pytest.mark.long
@pytest.mark.parametrize("order", [False, True])
def test_a_hot_shard_is_split_until_no_shard_is_hot(*, order: bool) -> None:
    simulated = world(SPLIT_ONLY, _by_range(32.0), shards=4, spec={"inOrder": order})
    simulated.arrival = _by_range(32.0, simulated)
    simulated.run(1800)
    splits = [event for event in simulated.events if event.reason == "ShardSplit"]
    assert 2 <= len(splits) <= 3
    births = sorted({one.born for one in simulated.shards if one.parents})
    assert all(b - a >= 300 for a, b in pairwise(births))
    assert all(
        simulated.arrival(one.number, simulated.now) < RATE for one in simulated.shards if not one.read_only
    )
    hot = next(one for one in simulated.status.conditions if one.type == "HotShard")
    # With order a child waits for its parent, and has what came meanwhile to work off.
    assert order or hot.status == "False"
    assert simulated.status.scaling is not None
    assert {one.reason for one in simulated.status.scaling.history if one.target == "Shards"} == {
        "ShardSplit"
    }


def test_a_hot_shard_is_only_reported_if_splitting_is_disabled() -> None:
    simulated = world({}, _by_range(32.0), shards=4)
    simulated.arrival = _by_range(32.0, simulated)
    simulated.run(300)
    hot = next(one for one in simulated.status.conditions if one.type == "HotShard")
    assert hot.status == "True"
    assert len(simulated.shards) == 4


def test_a_restarted_operator_does_not_repeat_a_split() -> None:
    simulated = world(HOT, _by_range(60.0), shards=4)
    simulated.arrival = _by_range(60.0, simulated)
    while not [event for event in simulated.events if event.reason == "ShardSplit"]:
        simulated.run(1)
        assert simulated.now < 600
    for _ in range(5):
        simulated.restart_operator()
        simulated.status = simulated.status.model_copy(update={"scaling": None})
        simulated.run(50)
    assert len([one for one in simulated.shards if one.parents]) == 2


@pytest.mark.long
def test_cold_neighbours_are_merged_down_to_the_minimum() -> None:
    simulated = world({**HOT, "workerCapacity": int(RATE)}, evenly(lambda _: 2.0)).run(2700)
    writable = [one for one in simulated.shards if not one.read_only]
    assert len(writable) == 4
    assert {event.reason for event in simulated.events if event.reason.startswith("Shard")} == {
        "ShardsMerged"
    }
    assert simulated.reversals() == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "spec", "minimum"),
    [("Fixed", {"replicas": 3}, 3), ("External", {"replicas": 3}, 3), ("Auto", {"replicas": 1}, 2)],
)
def test_merging_keeps_one_shard_for_each_worker(mode: str, spec: dict[str, object], minimum: int) -> None:
    """Too few for them while the two that are merged are worked off, and for good, it would be otherwise."""
    shards = {"autoMerge": True, "minShards": 1, "cooldownSeconds": 60}
    scaling = {"mode": mode, "workerCapacity": int(RATE), "minReplicas": 2, "shards": shards}
    simulated = world(scaling, evenly(lambda _: 1.0), spec=spec).run(1800)
    assert sum(not one.read_only for one in simulated.shards) == minimum
    assert simulated.condition("ScalingLimited").reason != "TooFewShards"


@pytest.mark.long
@pytest.mark.parametrize(
    ("shards", "arrival", "rate", "left"),
    [
        ({"autoSplit": True, "minShards": 1}, 2.0, 10, 4),  # a switch of its own
        ({"autoMerge": True}, 2.0, 10, 4),  # as many as the user chose
        ({"autoMerge": True, "minShards": 1}, 2.0, 10, 1),
        # One worker reads them all. Producers need them: SLS takes 500 writes/s in a shard.
        ({"autoMerge": True, "minShards": 1}, 1400.0, 5000, 4),
    ],
)
def test_merging_takes_no_shard_that_producers_need(
    shards: dict[str, Any], arrival: float, rate: int, left: int
) -> None:
    given = {**shards, "cooldownSeconds": 60}
    scaling = {"mode": "Fixed", "workerCapacity": rate, "shards": given}
    simulated = world(
        scaling, evenly(lambda _: arrival, 4), shards=4, spec={"replicas": 1}, rate=float(rate)
    ).run(900)
    assert sum(not one.read_only for one in simulated.shards) == left


@pytest.mark.long
def test_shards_that_another_group_reads_are_not_merged() -> None:
    simulated = world({**HOT, "workerCapacity": int(RATE)}, evenly(lambda _: 2.0), other_groups=1).run(2700)
    assert simulated.tries == []
    assert "are not merged: another consumer group" in simulated.condition("HotShard").message


@pytest.mark.long
def test_a_rejected_split_is_reported_and_retried_later_each_time() -> None:
    simulated = world(
        SPLIT_ONLY, _by_range(32.0), shards=4, refuses="ShardQuotaExceed, HTTP 403: no more than 4"
    )
    simulated.arrival = _by_range(32.0, simulated)
    simulated.run(2700)
    pauses = [b - a for a, b in pairwise(simulated.tries)]
    assert 4 <= len(simulated.tries) <= 7
    assert all(later >= earlier for earlier, later in pairwise(pauses))
    assert [event for event in simulated.events if event.reason == "ShardSplit"] == []
    hot = simulated.condition("HotShard")
    assert (hot.status, hot.reason) == ("True", "SplitRejected")
    assert "no more than 4" in hot.message
    assert simulated.condition("Ready").reason != "ReconcileError"
    simulated.refuses = ""
    simulated.run(2100)  # the pause is twice as long after each
    assert [event.reason for event in simulated.events if event.reason == "ShardSplit"]
    assert simulated.state.rejections == ()
    assert simulated.condition("HotShard").reason != "SplitRejected"


@pytest.mark.long
def test_a_rejected_merge_is_reported_and_retried_later_each_time() -> None:
    simulated = world(
        {**HOT, "workerCapacity": int(RATE)}, evenly(lambda _: 2.0), refuses="Unauthorized, HTTP 403: no"
    )
    simulated.run(1800)
    assert 3 <= len(simulated.tries) <= 6
    cold = simulated.condition("HotShard")
    assert (cold.status, cold.reason) == ("False", "MergeRejected")
    tried = len(simulated.tries)
    simulated.run(60)
    assert len(simulated.tries) == tried
    assert simulated.condition("HotShard") == cold  # nothing new to write meanwhile


def _by_range(total: float, of: World | None = None) -> Callable[[int, float], float]:
    """All of it to the first quarter of the keys, evenly."""

    def arrival(number: int, _: float) -> float:
        shards = [] if of is None else of.shards
        shard: Shard | None = next((one for one in shards if one.number == number), None)
        if shard is None:
            return 0.0
        quarter = 1 << 126
        inside = max(0, min(shard.keys.end, quarter) - shard.keys.begin)
        return total * inside / quarter

    return arrival


def _splits(simulated: World) -> int:
    return sum(event.reason == "ShardSplit" for event in simulated.events)


def _hot_reason(simulated: World) -> str:
    return next(one.reason for one in simulated.status.conditions if one.type == "HotShard")


@pytest.mark.long
def test_a_slow_sink_that_makes_every_shard_too_busy_splits_none() -> None:
    shards = {"autoSplit": True, "cooldownSeconds": 60}
    simulated = world({"shards": shards, "maxReplicas": 8}, evenly(lambda _: 400.0), shards=8)
    simulated.maximum = 40.0
    simulated.run(1800)
    assert (_splits(simulated), _hot_reason(simulated)) == (0, "IneffectiveSplit")


@pytest.mark.long
def test_after_a_split_without_effect_no_shard_is_split_for_hours() -> None:
    """One shard has all logs, and there is no second worker for its children."""
    shards = {"autoSplit": True, "cooldownSeconds": 60, "maxShards": 64}
    simulated = world({"mode": "Fixed", "shards": shards}, _by_range(200.0), shards=4, spec={"replicas": 1})
    simulated.arrival = _by_range(200.0, simulated)
    simulated.run(3600)
    assert (_splits(simulated), _hot_reason(simulated)) == (1, "IneffectiveSplit")


@pytest.mark.long
def test_by_default_there_are_at_most_twice_as_many_shards_as_were_found() -> None:
    shards = {"autoSplit": True, "cooldownSeconds": 60, "minShards": 4}
    simulated = world({"shards": shards}, _by_range(300.0), shards=3)
    simulated.arrival = _by_range(300.0, simulated)
    simulated.run(3600)
    writable = [one for one in simulated.shards if not one.read_only]
    assert len(writable) == 6
    assert "may charge" in next(one.message for one in simulated.events if one.reason == "ShardSplit")


def test_a_failing_worker_holds_splits_back() -> None:
    simulated = world(SPLIT_ONLY, _by_range(32.0), shards=4)
    simulated.arrival = _by_range(32.0, simulated)
    simulated.failing = True
    simulated.run(900)
    assert _splits(simulated) == 0
