"""What operators see of Kafka groups and clients: the list of groups, lag in logs, and metrics."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from loghub_service.api import extensions, shards
from loghub_service.api.kafka_groups import list_kafka_groups
from loghub_service.kafka.coordinator.group import CommittedOffset, Group, TopicPartition
from loghub_service.kafka.groups import KafkaGroupKey
from loghub_service.kafka.store.metrics import MAX_GROUP_LAGS, LogstoreLag, largest_of_each_project
from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.groups import DeleteGroupsRequest
from loghub_service.kafka.wire.logs import EARLIEST_TIMESTAMP
from tests.loghub_service.kafka.broker.broker_place import PROJECT, TOPIC, Place, run
from tests.loghub_service.kafka.broker.test_admin_calls import create
from tests.loghub_service.kafka.broker.test_group_calls import GROUP, commit, heartbeat, member_of
from tests.loghub_service.kafka.broker.test_offsets import GROUP as STEP
from tests.loghub_service.kafka.broker.test_offsets import expire_all, of_demo, write_groups


async def listed(place: Place, query: dict[str, str] | None = None) -> list[dict[str, Any]]:
    response = await list_kafka_groups(place.engine, of_demo("GET", query))
    return json.loads(response.body)["groups"]


def exposed(place: Place) -> str:
    """What Prometheus gets."""
    registry = CollectorRegistry()
    registry.register(place.endpoint)  # type: ignore[arg-type]
    return generate_latest(registry).decode()


def test_a_group_is_listed_with_its_members_and_its_lag_in_logs(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        await write_groups(client, 5, 1, 7)
        member_id, generation = await member_of(client)
        for offset, lag in ((0, 13), (2, 11), (5, 8), (77, 8), (STEP, 8), (STEP + 1, 7), (2 * STEP + 7, 0)):
            assert await commit(client, offset, member_id, generation) == 0
            (group,) = await listed(place)
            assert (group["name"], group["state"], group["generation"]) == (GROUP, "Stable", generation)
            (saved,) = group["offsets"]
            assert (saved["logstore"], saved["shard"], saved["offset"]) == ("access", 0, offset)
            assert saved["lag_logs"] == lag, offset
        (member,) = group["members"]
        assert (member["member_id"], member["client_host"]) == (member_id, "127.0.0.1")
        assert await listed(place, {"group": "nothing"}) == []

    run(scenario, tmp_path / "d")


def test_metrics_count_clients_requests_errors_and_lag(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        await write_groups(client, 5, 1)
        await client.fetch(0, topic="nothing")
        await client.produce("x", partition=5)
        assert await commit(client, 3) == 0
        await place.endpoint.lag.refresh()
        lines = set(exposed(place).splitlines())
        prefix = "loghub_service_kafka_"
        assert {
            f'{prefix}connections{{authenticated="true"}} 1.0',
            f'{prefix}requests_total{{api="PRODUCE"}} 3.0',
            f'{prefix}errors_total{{api="PRODUCE",error="UNKNOWN_TOPIC_OR_PARTITION"}} 1.0',
            f'{prefix}errors_total{{api="FETCH",error="UNKNOWN_TOPIC_OR_PARTITION"}} 1.0',
            f"{prefix}produced_logs_total 6.0",
            f'{prefix}groups{{state="Empty"}} 1.0',
            f"{prefix}lag_logs 3.0",
            f'{prefix}group_lag_logs{{group="{GROUP}",logstore="access",project="demo"}} 3.0',
            f"{prefix}group_lags_left_out 0.0",
            f"{prefix}requests_failed_total 0.0",
        } <= lines

    run(scenario, tmp_path / "d")


def test_each_group_has_its_lag_by_logstore_until_it_is_deleted(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        assert (await create(client, "other")).error_code == 0
        await write_groups(client, 5)
        await client.produce("x", topic="other")
        lag = place.endpoint.lag
        for group, topic, offset in (("a", "access", 1), ("a", "other", 0), ('b"', "access", 3)):
            assert await commit(client, offset, group=group, topic=topic) == 0
        await lag.refresh()
        by_group = {(one.group, one.logstore): one.logs for one in lag.largest}
        assert by_group == {("a", "access"): 4, ("a", "other"): 1, ('b"', "access"): 2}
        assert (lag.total, lag.left_out) == (7, 0)
        assert f'group="b{chr(92)}"",logstore="access"' in exposed(place)
        await client.call(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=("a",)))
        await lag.refresh()
        assert [one.group for one in lag.largest] == ['b"']

    run(scenario, tmp_path / "d")


def test_the_largest_lags_are_reported_and_no_project_leaves_out_those_of_another() -> None:
    def of(project: str, *logs: int) -> list[LogstoreLag]:
        return [
            LogstoreLag(project=project, group=f"g{index}", logstore="access", logs=lag)
            for index, lag in enumerate(logs)
        ]

    crowd, single = of("crowd", *range(100, 200)), of("single", 0, 7)
    reported = largest_of_each_project([*crowd, *single], maximum=6)
    assert [(one.project, one.logs) for one in reported] == [
        *(("crowd", 199), ("single", 7), ("crowd", 198), ("single", 0), ("crowd", 197), ("crowd", 196))
    ]
    assert len(largest_of_each_project([*crowd, *single])) == 102
    assert len(largest_of_each_project(of("crowd", *range(2 * MAX_GROUP_LAGS)))) == MAX_GROUP_LAGS


def test_the_lag_follows_what_is_written_and_what_is_committed(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        client = await place.client()
        lag = place.endpoint.lag
        await lag.refresh()
        assert lag.total == 0
        await write_groups(client, 5)
        await commit(client, 1)
        for more, total in ((0, 4), (2, 6), (0, 6)):
            if more:
                await write_groups(client, more)
            await lag.refresh()
            assert lag.total == total
        await commit(client, STEP + 2)
        await lag.refresh()
        assert lag.total == 0

    run(scenario, tmp_path / "d")


@pytest.mark.parametrize("gone", ["deleted", "expired"])
def test_the_lag_of_a_group_at_rest_is_without_what_nobody_can_read_any_more(
    tmp_path: Path, gone: str
) -> None:
    async def scenario(place: Place) -> None:
        client, lag = await place.client(), place.endpoint.lag
        await write_groups(client, 5)
        await commit(client, 1)
        await lag.refresh()
        assert lag.total == 4
        if gone == "deleted":
            split = of_demo("POST", {"action": "split"})
            await shards.change_shard(place.engine, split, ls=TOPIC, shard="0")
            await shards.delete_shard(place.engine, of_demo("DELETE"), ls=TOPIC, shard="0")
        else:
            await expire_all(place)
        await lag.refresh()
        assert lag.total == 0

    run(scenario, tmp_path / "d")


def test_damage_of_one_log_leaves_the_lag_of_others_known_and_is_an_error_where_it_is_read(
    tmp_path: Path,
) -> None:
    """It is unknown where it cannot be counted, and never an error of a whole list."""

    async def before(place: Place) -> None:
        client = await place.client()
        assert (await create(client, "other")).error_code == 0
        for _ in range(10):
            await client.produce("x" * 1000)
        await client.produce("x", topic="other")
        for group, topic in (("damaged", TOPIC), ("good", "other")):
            assert await commit(client, 0, group=group, topic=topic) == 0
        store = place.engine.catalog.projects[PROJECT].logstores[TOPIC]
        shards_now = place.engine.log_shards(store)
        await place.engine.groups.create(
            logstore=store.saved.id, name="native", timeout_s=30, order=False, shards=shards_now
        )

    async def after(place: Place) -> None:
        client, lag = await place.client(), place.endpoint.lag
        await lag.refresh()
        assert [(one.group, one.logs) for one in lag.largest] == [("good", 1)]
        assert lag.total == 1
        groups = {str(group["name"]): group["offsets"] for group in await listed(place)}
        assert {name: [one["lag_logs"] for one in offsets] for name, offsets in groups.items()} == {
            "damaged": [None],
            "good": [1],
        }
        answer = await extensions.group_status(place.engine, of_demo("GET"), ls=TOPIC, cg="native")
        assert [shard["lag_logs"] for shard in json.loads(answer.body)["shards"]] == [None]
        assert (await client.offset(0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.fetch(0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.offset(EARLIEST_TIMESTAMP)).offset == 0
        assert await heartbeat(client, "nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID  # it is still connected

    run(before, tmp_path / "d")
    sealed = sorted((tmp_path / "d" / "logs" / "00000001").rglob("*.seg"))[0]
    content = bytearray(sealed.read_bytes())
    content[500] ^= 1
    sealed.write_bytes(content)
    run(after, tmp_path / "d")


def test_the_lag_of_many_groups_leaves_the_event_loop_to_others_and_is_measured_where_something_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a million offsets took 1.7 s in one piece; each that had moved took a thread of its own."""
    threads = 0
    to_thread = asyncio.to_thread

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal threads
        threads += 1
        return await to_thread(*args, **kwargs)

    monkeypatch.setattr(asyncio, "to_thread", counted)

    async def scenario(place: Place) -> None:
        nonlocal threads
        client = await place.client()
        await write_groups(client, 3)
        for number in range(20):
            offsets = {
                TopicPartition(*key): CommittedOffset(offset=0, metadata="", commit_unix_ms=0)
                for key in place.engine.logs
            }
            group = Group(group_id=f"g{number}", offsets=offsets)
            place.engine.kafka_groups._groups.put(KafkaGroupKey(PROJECT, group.group_id), group)
        lag, turns = place.endpoint.lag, 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        beside = asyncio.create_task(others())
        await asyncio.sleep(0)
        for expected in (20, 0):  # a thread for each group, and none if nothing has moved
            threads = turns = 0
            await lag.refresh()
            assert threads == expected
            assert lag.total == 60
        assert turns == 0  # 20 groups that have not moved are 20 steps
        for key, group in list(place.engine.kafka_groups.of(PROJECT)):
            again = replace(group, offsets=dict(group.offsets))  # as after a commit that moved nothing
            place.engine.kafka_groups._groups.put(key, again)
        await lag.refresh()
        assert turns >= 20 * 64 // 200
        assert (threads, lag.total) == (0, 60)
        beside.cancel()

    run(scenario, tmp_path / "d", shards=64)
