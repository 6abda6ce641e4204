"""What another number of workers would do; tests/apiserver/test_plugin.py compares it with what happens."""

import pytest

from loghub_cli.plugin.forecast import forecast
from tests.loghub_cli.plugin.objects import group, shard

SHARDS = "the shards that a worker can hold"
RATES = {"inputs": {"arrivalPerSecond": 100.0, "workerPerSecond": 60.0, "lagLogGroups": 600}}


@pytest.mark.parametrize(
    ("asked", "runs", "limit"),
    [(3, 3, None), (9, 4, SHARDS), (99, 4, SHARDS), (0, 1, "spec.scaling.minReplicas")],
)
def test_the_bounds_are_those_of_the_operator(asked: int, runs: int, limit: str | None) -> None:
    scaling = {"mode": "Fixed", "minReplicas": 1, "maxReplicas": 10}
    plan = forecast(group(spec={"scaling": scaling}), asked)
    assert (plan["requested"], plan["wouldRun"], plan["runsNow"], plan["limitedBy"]) == (
        asked,
        runs,
        2,
        limit,
    )


def test_as_few_shards_as_possible_move_and_each_worker_is_listed() -> None:
    plan = forecast(group(), 3)
    rows = plan["workers"]
    assert isinstance(rows, list)
    assert [row["worker"] for row in rows] == ["access-0", "access-1", "access-2"]
    assert plan["shardsThatMove"] == 1
    assert rows[2]["now"] == []
    assert len(rows[2]["then"]) == 1
    fewer = forecast(group(), 1)["workers"]
    assert isinstance(fewer, list)
    assert [(row["worker"], row["then"], row["gives"]) for row in fewer] == [
        ("access-0", [0, 1, 2, 3], []),
        ("access-1", [], [1, 3]),
    ]


def test_a_shard_that_waits_or_is_over_is_dealt_to_nobody() -> None:
    shards = [shard(0, "access-0"), shard(1, state="wait"), shard(2, state="over")]
    rows = forecast(group(shards=shards, shardSummary={"total": 3, "assignable": 1}), 2)["workers"]
    assert isinstance(rows, list)
    assert [row["then"] for row in rows] == [[0], []]


def test_the_worker_with_the_most_shards_is_decisive() -> None:
    """Three workers of which one has two of four shards consume no more than two would."""
    two, three, four = (forecast(group(scaling=RATES), count) for count in (2, 3, 4))
    assert (two["capacityPerSecond"], three["capacityPerSecond"]) == (120.0, 120.0)
    assert four["capacityPerSecond"] == 240.0
    assert two["secondsToCatchUp"] == 30.0
    assert forecast(group(scaling=RATES), 1)["secondsToCatchUp"] is None, "never"
    unknown = forecast(group(), 2)
    assert (unknown["capacityPerSecond"], unknown["secondsToCatchUp"]) == (None, None)


@pytest.mark.parametrize(
    ("changes", "spec", "word"),
    [
        ({}, {"scaling": {"mode": "Auto", "minReplicas": 1, "maxReplicas": 10}}, "the load decides"),
        ({}, {"suspend": True}, "is paused"),
        (
            {"shards": [shard(0, "access-0", state="transfer", nextConsumer="access-1")]},
            {},
            "in state transfer",
        ),
        ({"shards": [shard(0, "access-0", state="unknown")]}, {}, "a guess"),
        ({"shardSummary": {"total": 300, "assignable": 300}}, {}, "does not list all"),
        ({"replicas": 5}, {}, "access-4 first"),
        ({"scaling": {"inputs": {"arrivalPerSecond": 500.0, "workerPerSecond": 60.0}}}, {}, "lag grows"),
    ],
)
def test_what_else_is_to_be_known_is_said(
    changes: dict[str, object], spec: dict[str, object], word: str
) -> None:
    notes = forecast(group(spec=spec, **changes), 2)["notes"]
    assert word in str(notes)


def test_the_workers_of_a_subscription_share_its_shards() -> None:
    plan = forecast(group(spec={"subscription": {"type": "Shared"}}), 9)
    assert (plan["wouldRun"], plan["shardsThatMove"], plan["limitedBy"]) == (9, 0, None)
