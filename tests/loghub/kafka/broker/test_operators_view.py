"""What operators see of Kafka groups and clients: the list of groups, lag in logs, and metrics."""

import json
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from loghub.service.api.kafka_groups import list_kafka_groups
from tests.loghub.kafka.broker.broker_place import Place, run
from tests.loghub.kafka.broker.test_group_calls import GROUP, commit, member_of
from tests.loghub.kafka.broker.test_offsets import GROUP as STEP
from tests.loghub.kafka.broker.test_offsets import of_demo, write_groups


async def listed(place: Place, query: dict[str, str] | None = None) -> list[dict[str, object]]:
    response = await list_kafka_groups(place.engine, of_demo("GET", query))
    return json.loads(response.body)["groups"]


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
        registry = CollectorRegistry()
        registry.register(place.endpoint)  # type: ignore[arg-type]
        lines = set(generate_latest(registry).decode().splitlines())
        prefix = "loghub_service_kafka_"
        assert {
            f'{prefix}connections{{authenticated="true"}} 1.0',
            f'{prefix}requests_total{{api="PRODUCE"}} 3.0',
            f'{prefix}errors_total{{api="PRODUCE",error="UNKNOWN_TOPIC_OR_PARTITION"}} 1.0',
            f'{prefix}errors_total{{api="FETCH",error="UNKNOWN_TOPIC_OR_PARTITION"}} 1.0',
            f"{prefix}produced_logs_total 6.0",
            f'{prefix}groups{{state="Empty"}} 1.0',
            f"{prefix}lag_logs 3.0",
            f"{prefix}requests_failed_total 0.0",
        } <= lines

    run(scenario, tmp_path / "d")


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
