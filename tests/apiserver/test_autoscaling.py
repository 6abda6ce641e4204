"""Scaling on lag over a real apiserver: simulated workers consume, and their number follows the load.

The windows are as short as the spec allows; the rates are measured over real time, so a story takes a minute
or two.
"""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document
from tests.loghub_operator.support.harness import LOGSTORE, Stage, stage

pytestmark = pytest.mark.cluster

AUTO: Document = {
    "mode": "Auto",
    "workerCapacity": 10,
    "catchUpSeconds": 10,
    "scaleUp": {"stabilizationWindowSeconds": 0},
    "scaleDown": {"stabilizationWindowSeconds": 0},
}
TO_ZERO = {**AUTO, "scaleToZero": {"idleSeconds": 10}}
FIRST_KEYS = "0" * 32
LOAD_PER_S = 50  # log groups: far more than one worker is said to do


def test_auto_scales_up_to_the_shards_down_to_zero_and_back(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        on.player.groups_at_once = 1
        await on.apply({"scaling": AUTO})
        await on.until_phase("Running", "1/1")
        on.put(2000)
        limited = await on.until_reason("ScalingLimited", "TooFewShards")  # until they have caught up
        assert limited["status"] == "True"
        scaling = (await on.status())["scaling"]
        assert (scaling["mode"], scaling["recommendedReplicas"], scaling["desiredReplicas"]) == ("Auto", 4, 4)
        assert scaling["formula"].startswith("ceil((")
        up = next(step for step in scaling["history"] if step["to"] == 4)
        assert (up["target"], up["from"], up["reason"]) == ("Workers", 1, "ScalingUp")
        await on.until_phase("Running", "4/4")

        on.player.groups_at_once = 1000
        await on.until_phase("Running", "1/1")
        assert on.player.stopped_without_leaving == []
        status = await on.status()
        assert {shard["consumer"] for shard in status["shards"]} == {"access-0"}
        assert status["scaling"]["history"][0]["reason"] == "ScalingDown"

        await on.apply({"scaling": TO_ZERO})
        await on.until_phase("Running", "0/0")
        assert (await on.condition("ScalingActive"))["reason"] == "Idle"
        on.put(4)
        await on.until_phase("Running", "1/1")
        assert on.player.stopped_without_leaving == []

    stage(server, tmp_path, story)


def test_a_recommendation_is_reported_and_a_hot_shard_is_split_once_allowed(
    server: Apiserver, tmp_path: Path
) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"scaling": {**AUTO, "mode": "Recommend"}})
        await on.until_phase("Running", "1/1")
        on.player.groups_at_once = 1

        async def recommended() -> bool:
            return (await on.status()).get("scaling", {}).get("recommendedReplicas") == 4

        await _under_load(on, "4 recommended", recommended)
        assert (await on.condition("ScalingActive"))["reason"] == "RecommendOnly"
        assert (await on.status())["workers"] == "1/1"

        async def hot() -> bool:
            return (await on.condition("HotShard")).get("reason") == "ShardOverloaded"

        await _under_load(on, "a hot shard", hot)
        assert (await on.condition("HotShard"))["message"].startswith("shard 0: ")
        assert len(on.client.list_shards(LOGSTORE)) == 4
        shards = {"autoSplit": True, "maxShards": 8, "minShards": 5}
        await on.apply({"scaling": {**AUTO, "mode": "Fixed", "shards": shards}})

        async def split() -> bool:
            return len(on.client.list_shards(LOGSTORE)) == 6

        await _under_load(on, "shard 0 split", split)
        await on.stop_operator()  # what it remembers goes; the list of shards does not
        on.start_operator()

        async def half_is_hot() -> bool:
            """And would be split next, were it not made just now."""
            return (await on.condition("HotShard"))["message"].startswith("shard 4: ")

        await _under_load(on, "the half that takes all as hot", half_is_hot)
        await on.until_rounds(3)
        by_number = {shard.shard: shard for shard in on.client.list_shards(LOGSTORE)}
        assert [number for number, shard in by_number.items() if shard.read_only] == [0]
        steps = (await on.status())["scaling"]["history"]
        (noted,) = [step for step in steps if step["target"] == "Shards"]
        assert (noted["from"], noted["to"], noted["reason"]) == (4, 5, "ShardSplit")

    stage(server, tmp_path, story)


async def _under_load(on: Stage, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    """`LOAD_PER_S` into the first shard, however rarely it is checked. Written at each check, not by a task:
    Kopf cancels what was begun in its loop after it."""
    began_s, fed = time.monotonic(), 0

    async def fed_and_holds() -> bool:
        nonlocal fed
        due = round(LOAD_PER_S * (time.monotonic() - began_s))
        on.put(due - fed, hash_key=FIRST_KEYS)
        fed = due
        return await holds()

    await on.until(what, fed_and_holds)
