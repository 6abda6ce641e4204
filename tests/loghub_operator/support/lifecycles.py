"""Stories of a whole group, each of which must end the same even if the operator dies meanwhile
(`tests.faults.test_crash_points`).
"""

from loghub.client.port import GroupInfo
from loghub_operator.api.labels import ANNOTATION_REVISION, worker_selector
from loghub_operator.clients.kube import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
)
from loghub_operator.model.revision import Revision
from tests.apiserver.test_operations import checkpoints, cursors, fill, until_moved
from tests.loghub_operator.support.examples import Document
from tests.loghub_operator.support.harness import GROUP, LOGSTORE, Stage

FIRST_KEYS = "0" * 32
SETTINGS = GroupInfo(name=GROUP, timeout_s=30, order=False)


def _spec(replicas: int, **more: Document | int) -> Document:
    return {"replicas": replicas, "deletionPolicy": "Delete", **more}


async def whole_life(on: Stage) -> None:
    """Made, more workers, fewer, other settings, deleted with its group."""
    await on.apply(_spec(2))
    await on.until_phase("Running", "2/2")
    assert on.client.list_groups(LOGSTORE) == (SETTINGS,)
    await on.apply(_spec(3))
    await on.until_phase("Running", "3/3")
    await on.apply(_spec(1))
    await on.until_phase("Running", "1/1")
    assert on.player.stopped_without_leaving == []
    sql = "SELECT contents FROM logs"
    await on.apply(_spec(1, timeoutSeconds=40, pipeline={"sql": sql}))
    await _until_rolled(on, sql)
    await on.until_phase("Running", "1/1")
    assert on.client.list_groups(LOGSTORE) == (GroupInfo(name=GROUP, timeout_s=40, order=False),)
    status = await on.status()
    assert status["groupOrigin"] == "Created"
    assert {shard["consumer"] for shard in status["shards"]} == {"access-0"}
    await on.remove()
    await on.until_deleted()
    await _nothing_is_left(on)
    assert on.client.list_groups(LOGSTORE) == ()


async def life_with_orders(on: Stage) -> None:
    """Repositioned, suspended, resumed, deleted; its group and checkpoints are retained."""
    fill(on.server)
    await on.apply({"replicas": 2})
    await on.until_phase("Running", "2/2")
    before, end = checkpoints(on), cursors(on, "end")
    assert before != end
    await on.apply({"replicas": 2, "resetCheckpoints": {"to": "End", "nonce": "one"}})
    done = await until_moved(on, "one", "Succeeded")
    assert checkpoints(on) == end
    retained = await on.get(CONFIG_MAP, done["backupConfigMap"])
    assert retained is not None
    assert retained["data"] == {str(shard): cursor for shard, cursor in before.items()}
    await on.until_phase("Running", "2/2")
    await on.apply({"replicas": 2, "suspend": True})
    await on.until_phase("Suspended", "0/0")
    assert on.player.stopped_without_leaving == []
    await on.apply({"replicas": 1})
    await on.until_phase("Running", "1/1")
    await on.remove()
    await on.until_deleted()
    await _nothing_is_left(on)
    assert on.client.list_groups(LOGSTORE) == (SETTINGS,)
    assert checkpoints(on) == end


async def adopted_life(on: Stage) -> None:
    """Found, given the spec's settings, and left with its checkpoints, whatever the policy says."""
    fill(on.server)
    on.client.create_group(LOGSTORE, GroupInfo(name=GROUP, timeout_s=60, order=True))
    end = cursors(on, "end")
    for shard, cursor in end.items():
        on.client.update_checkpoint(LOGSTORE, GROUP, shard=shard, cursor=cursor, consumer="", force=True)
    await on.apply(_spec(2))
    await on.until_phase("Running", "2/2")
    assert (await on.status())["groupOrigin"] == "Adopted"
    assert on.client.list_groups(LOGSTORE) == (SETTINGS,)
    await on.remove()
    await on.until_deleted()
    await _nothing_is_left(on)
    assert on.client.list_groups(LOGSTORE) == (SETTINGS,)
    assert checkpoints(on) == end


async def life_with_a_split(on: Stage) -> None:
    """A shard that is too busy for one worker is split, once, and its halves are held."""
    on.player.groups_at_once = 1
    shards = {"autoSplit": True, "maxShards": 5, "minShards": 5}
    await on.apply(_spec(1, scaling={"workerCapacity": 1, "catchUpSeconds": 10, "shards": shards}))
    await on.until_phase("Running", "1/1")

    # Fed here, not by a task: Kopf ends with what was begun in its loop after it.
    async def split() -> bool:
        on.put(4, hash_key=FIRST_KEYS)
        return len(on.client.list_shards(LOGSTORE)) == 6

    await on.until("shard 0 split", split)

    async def noted() -> bool:
        steps = (await on.status()).get("scaling", {}).get("history", [])
        return [(one["target"], one["from"], one["to"]) for one in steps] == [("Shards", 4, 5)]

    await on.until("the split noted", noted)

    async def held() -> bool:
        reported = (await on.status()).get("shards", [])
        return len(reported) == 6 and all(
            one.get("consumer") == "access-0" for one in reported if not one["readOnly"]
        )

    await on.until("the halves held", held)
    listed = on.client.list_shards(LOGSTORE)
    assert [one.shard for one in listed if one.read_only] == [0]
    assert len(listed) == 6, "split once"
    await on.remove()
    await on.until_deleted()
    await _nothing_is_left(on)


async def _until_rolled(on: Stage, sql: str) -> None:
    """The one worker runs with these settings."""

    async def holds() -> bool:
        pod = await on.get(POD, "access-0")
        if pod is None or not pod.get("status", {}).get("containerStatuses", [{}])[0].get("ready"):
            return False
        name = f"{GROUP}-{Revision.parse(pod['metadata']['annotations'][ANNOTATION_REVISION]).settings}"
        config = await on.get(CONFIG_MAP, name)
        return config is not None and sql in config["data"]["worker.json"]

    await on.until("access-0 with the new settings", holds)


async def _nothing_is_left(on: Stage) -> None:
    """In the cluster."""
    assert on.player.stopped_without_leaving == []
    for kind in (STATEFUL_SET, POD, SERVICE, CONFIG_MAP, DISRUPTION_BUDGET, SERVICE_ACCOUNT):
        assert await on.kube.list(kind, on.namespace, worker_selector(GROUP)) == []
