"""Groups of real Kafka clients in ``loghub group`` and ``loghub lag``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from loghub.client.port import GroupInfo, KafkaGroupStatus, KafkaMember, KafkaOffset, LogstoreShard
from loghub_cli.kafka_groups import ProjectGroup, document, overview
from loghub_cli.output import Format, render
from tests.loghub.client.contract import LOW, group_of
from tests.loghub_cli.command import STORE, Cli
from tests.support import START_GUARD_S, ServiceProcess, running_service, wait_until

FREE_NAME = "Readers of: the team"  # SLS allows no such name


@pytest.fixture(scope="module")
def port_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kafka") / "port"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, port_file: Path) -> Iterator[ServiceProcess]:
    extra = ("--kafka", "127.0.0.1:0", "--kafka-rebalance-delay", "0", "--kafka-port-file", str(port_file))
    with running_service(tmp_path_factory.mktemp("service"), extra=extra) as process:
        wait_until(port_file.exists, "the Kafka endpoint")
        yield process


Settings = Callable[..., dict[str, Any]]


@pytest.fixture
def settings(cli: Cli, port_file: Path) -> Settings:
    """The settings of a client of the project."""
    key = cli.service.credentials
    login = {
        "bootstrap.servers": port_file.read_text().strip(),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": cli.project,
        "sasl.password": f"{key.access_key_id}#{key.access_key_secret}",
    }
    return lambda **more: {**login, **{name.replace("_", "."): value for name, value in more.items()}}


@contextmanager
def consumer(settings: Settings, group: str) -> Iterator[Consumer]:
    made = Consumer(settings(group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"))
    try:
        yield made
    finally:
        made.close()


def commit(settings: Settings, group: str, **offsets: int) -> None:
    """As no member of the group."""
    with consumer(settings, group) as client:
        places = [TopicPartition(STORE, int(name[1:]), offset) for name, offset in offsets.items()]
        client.commit(offsets=places, asynchronous=False)


def produce(settings: Settings, *values: str) -> None:
    producer = Producer(settings())
    for value in values:
        producer.produce(STORE, value, partition=0)
    assert producer.flush(START_GUARD_S) == 0


@pytest.mark.long
def test_a_group_is_listed_and_shown_with_its_members_and_its_lag_in_logs(
    cli: Cli, settings: Settings
) -> None:
    produce(settings, "a", "b", "c")
    with consumer(settings, "readers") as client:
        client.subscribe([f"{STORE}.raw"])
        taken = client.consume(3, timeout=START_GUARD_S)
        assert [one.value() for one in taken] == [b"a", b"b", b"c"]
        unknown = cli.json("lag", STORE, "readers")
        assert [one["lagLogs"] for one in unknown["shards"]] == [None, None], "nothing is committed"
        assert unknown["lagLogs"] is None
        client.commit(taken[0], asynchronous=False)
        client.commit(offsets=[TopicPartition(STORE, 1, 0)], asynchronous=False)
        (row,) = cli.json("group", "list", STORE)
        assert (row["group"], row["kind"], row["state"], row["members"]) == ("readers", "kafka", "Stable", 1)
        shown = cli.json("group", "show", STORE, "readers")
        assert (shown["state"], shown["generation"], shown["assignor"]) == ("Stable", 1, "range")
        (member,) = shown["members"]
        assert (member["client"], member["host"], member["shards"]) == ("rdkafka", "127.0.0.1", [0, 1])
        assert [(one["shard"], one["member"]) for one in shown["shards"]] == [
            (0, member["member"]),
            (1, member["member"]),
        ]
        assert [one["offset"] for one in shown["shards"]] == [taken[0].offset() + 1, 0]
        lag = cli.json("lag", STORE, "readers")
        assert ([one["lagLogs"] for one in lag["shards"]], lag["lagLogs"]) == ([2, 0], 2)
        assert "Stable" in cli("group", "show", STORE, "readers").out
        last = cli("lag", STORE, "readers").out.splitlines()[-1].split()
        assert (last[0], last[-1]) == ("total", "2")
    left = cli.json("lag", STORE, "readers")
    assert (left["state"], left["lagLogs"]) == ("Empty", 2)
    assert [one["member"] for one in left["shards"]] == [None, None]


def test_groups_of_both_kinds_may_have_one_name(cli: Cli, settings: Settings) -> None:
    cli.client.put_logs(STORE, group_of("a", "b", "c"), hash_key=LOW)
    commit(settings, "readers", p0=1)
    assert cli.json("lag", STORE, "readers")["kind"] == "kafka"
    cli.client.create_group(STORE, GroupInfo(name="readers", timeout_s=60, order=False))
    assert cli.json("group", "show", STORE, "readers")["kind"] == "sls"
    assert cli.json("lag", STORE, "readers")["kind"] == "sls"
    assert cli.json("group", "show", STORE, "readers", "--kafka")["kind"] == "kafka"
    assert cli.json("lag", STORE, "readers", "--kafka")["lagLogs"] == 2
    assert [one["kind"] for one in cli.json("group", "list", STORE)] == ["sls", "kafka"]
    assert [one["kind"] for one in cli.json("lag", STORE)] == ["sls", "kafka"]
    for command in (("group", "list"), ("lag",)):
        assert [one["kind"] for one in cli.json(*command, STORE, "--kafka")] == ["kafka"]
    assert "consumer groups: 2)" in cli("logstore", "delete", STORE).err, "both would be without logs"


def test_a_name_that_sls_does_not_allow_is_found_and_a_missing_one_is_an_error(
    cli: Cli, settings: Settings
) -> None:
    commit(settings, FREE_NAME, p0=0)
    assert cli.json("lag", STORE, FREE_NAME)["group"] == FREE_NAME
    assert cli.json("group", "show", STORE, FREE_NAME)["state"] == "Empty"
    for command, what in ((("group", "show"), "group"), (("lag",), "group or subscription")):
        missing = cli(*command, STORE, "none")
        assert missing.status == 1
        assert f"logstore {STORE} has no consumer {what} none" in missing.err
        of_kafka = cli(*command, STORE, "none", "--kafka")
        assert of_kafka.status == 1
        assert f"logstore {STORE} has no group none of Kafka clients" in of_kafka.err


def test_a_group_is_shown_at_the_logstores_that_it_reads_only(cli: Cli, settings: Settings) -> None:
    cli.client.create_logstore("other", shards=1)
    commit(settings, "here", p0=0)
    assert [one["group"] for one in cli.json("group", "list", STORE)] == ["here"]
    assert cli.json("group", "list", "other") == []
    cli.client.put_logs("other", group_of("a"))
    with consumer(settings, "both") as client:
        places = [TopicPartition(name, 0, 0) for name in (STORE, "other")]
        client.commit(offsets=places, asynchronous=False)
    assert [cli.json("lag", name, "both")["lagLogs"] for name in (STORE, "other")] == [0, 1]
    assert "LogStoreNotExist" in cli("group", "list", "nothing").err


@pytest.mark.long
def test_the_names_of_both_kinds_complete(cli: Cli, settings: Settings) -> None:
    cli.client.create_group(STORE, GroupInfo(name="readers", timeout_s=60, order=False))
    commit(settings, "readers-of-kafka", p0=0)
    cli.environment |= {
        "_LOGHUB_COMPLETE": "bash_complete",
        "COMP_WORDS": f"loghub lag {STORE} rea",
        "COMP_CWORD": "3",
    }
    assert [line.split(",")[-1] for line in cli.run().out.split()] == ["readers", "readers-of-kafka"]


def test_the_vendors_client_knows_no_such_group(bare: Callable[[str], Cli]) -> None:
    cli = bare("sdk")
    cli.client.create_project()
    cli.client.create_logstore(STORE, shards=1)
    assert cli.json("lag", STORE) == []
    refused = cli("lag", STORE, "--kafka")
    assert refused.status == 1
    assert "use the http adapter" in refused.err


def test_the_overview_has_a_row_for_each_logstore_of_a_group_and_says_where_its_lag_is_not_known() -> None:
    member = KafkaMember(
        member_id="m", instance_id="", client_id="c", client_host="h",
        assigned=(LogstoreShard(logstore="a", shard=0), LogstoreShard(logstore="a", shard=1)),
    )  # fmt: skip
    offsets = tuple(
        KafkaOffset(logstore=name, shard=shard, offset=5, committed_unix_s=1, lag_logs=lag)
        for name, shard, lag in (("a", 0, 4), ("b", 0, 2), ("b", 1, 3))
    )
    group = KafkaGroupStatus(
        name="x\x1b[31m", state="Stable", generation=1, assignor="range", members=(member,), offsets=offsets
    )
    groups = [ProjectGroup("p", group), ProjectGroup("p", replace(group, members=(), offsets=()))]
    assert [(row["logstore"], row["lagLogs"]) for row in overview(groups)] == [
        *(("a", None), ("b", 5), ("", None))
    ]
    assert document(groups[0])["status"]["lag"] == {"logs": None}, "shard 1 of logstore a is not known"
    assert "\x1b" not in render(overview(groups), Format.TABLE)
