"""Scaling on lag over a real apiserver: the played workers consume, and their number follows.

The windows are as short as the spec allows; the rates are measured over real time, so that a story
takes a minute or two.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.loghub_operator.api_server import Apiserver
from tests.loghub_operator.examples import Document
from tests.loghub_operator.stage import LOGSTORE, Stage, stage

pytestmark = pytest.mark.cluster

AUTO: Document = {
    "mode": "Auto",
    "workerRate": 10,
    "catchUpSeconds": 10,
    "scaleUp": {"stabilizationSeconds": 0},
    "scaleDown": {"stabilizationSeconds": 0},
}
TO_ZERO = {**AUTO, "toZero": {"afterSeconds": 10}}
FIRST_KEYS = "0" * 32


def test_auto_up_to_the_shards_down_to_one_to_none_and_back(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        on.player.groups_at_once = 1
        await on.apply({"scaling": AUTO})
        await on.until_phase("Running", "1/1")
        on.put(2000)
        await on.until_phase("Running", "4/4")
        limited = await on.condition("ScalingLimited")
        assert (limited["status"], limited["reason"]) == ("True", "TooFewShards")
        scaling = (await on.status())["scaling"]
        assert (scaling["mode"], scaling["recommended"], scaling["applied"]) == ("Auto", 4, 4)
        assert scaling["formula"].startswith("ceil((")
        up = next(step for step in scaling["steps"] if step["after"] == 4)
        assert (up["of"], up["before"], up["reason"]) == ("workers", 1, "ScalingUp")

        on.player.groups_at_once = 1000
        await on.until_phase("Running", "1/1")
        assert on.player.stopped_without_leaving == []
        status = await on.status()
        assert {shard["holder"] for shard in status["shards"]} == {"access-0"}
        assert status["scaling"]["steps"][0]["reason"] == "ScalingDown"

        await on.apply({"scaling": TO_ZERO})
        await on.until_phase("Running", "0/0")
        assert (await on.condition("ScalingActive"))["reason"] == "Idle"
        on.put(4)
        await on.until_phase("Running", "1/1")
        assert on.player.stopped_without_leaving == []

    stage(server, tmp_path, story)


def test_recommended_is_told_and_a_hot_shard_is_split_once_it_may_be(
    server: Apiserver, tmp_path: Path
) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"scaling": {**AUTO, "mode": "Recommend"}})
        await on.until_phase("Running", "1/1")
        on.player.groups_at_once = 1

        async def recommended() -> bool:
            return (await on.status()).get("scaling", {}).get("recommended") == 4

        await _under_load(on, "4 recommended", recommended)
        assert (await on.condition("ScalingActive"))["reason"] == "Recommending"
        assert (await on.status())["workers"] == "1/1"

        async def hot() -> bool:
            return (await on.condition("HotShard")).get("reason") == "TooBusy"

        await _under_load(on, "a hot shard", hot)
        assert (await on.condition("HotShard"))["message"].startswith("shard 0: ")
        assert len(on.hub.list_shards(LOGSTORE)) == 4
        shards = {"autoSplit": True, "maxShards": 5, "minShards": 5}
        await on.apply({"scaling": {**AUTO, "mode": "Fixed", "shards": shards}})

        async def split() -> bool:
            return len(on.hub.list_shards(LOGSTORE)) == 6

        await _under_load(on, "shard 0 split", split)
        await on.stop_operator()  # what it remembers goes; the list of shards does not
        on.start_operator()
        goal = on.rounds + 20

        async def looked_again() -> bool:
            return on.rounds >= goal

        await _under_load(on, "20 rounds", looked_again)
        by_number = {shard.shard: shard for shard in on.hub.list_shards(LOGSTORE)}
        assert [number for number, shard in by_number.items() if shard.read_only] == [0]
        steps = (await on.status())["scaling"]["steps"]
        (noted,) = [step for step in steps if step["of"] == "shards"]
        assert (noted["before"], noted["after"], noted["reason"]) == (4, 5, "ShardSplit")

    stage(server, tmp_path, story)


async def _under_load(on: Stage, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    """Far more than ten log groups a second, into the first shard. Fed at each look, not by a task: Kopf
    ends with what was begun in its loop after it."""

    async def fed() -> bool:
        on.put(5, hash_key=FIRST_KEYS)
        return await holds()

    await on.until(what, fed)
