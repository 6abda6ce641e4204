"""The Kafka sink on a real Spark and a real broker, read by a client that is not Kafka's own.

`test_kafka_worker` has the same with whole workers.
"""

import json
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import DataFrame, SparkSession

from loghub.contract.sinks import KafkaSink
from loghub_worker.query.batch_errors import failure_of, is_outage
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.kafka import KafkaTopic, outage
from loghub_worker.sink.sink_start import NO_CREDENTIALS, CredentialFiles
from loghub_worker.spark_errors import SPARK_ERRORS
from tests import kafka
from tests.kafka import Broker, running_broker
from tests.ports import free_ports

pytestmark = pytest.mark.spark

POSITION = "0 AS __shard__; CAST(100 + id AS BIGINT) AS __cursor__; 7 AS __index__"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if missing := kafka.missing():
        pytest.skip(missing)
    with running_broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    return broker.create_topic(f"t-{abs(hash(request.node.name))}")


def sink(
    broker: Broker,
    topic: str | None,
    credentials: CredentialFiles = NO_CREDENTIALS,
    *,
    timeout_s: float = 120.0,
    **settings: Any,
) -> KafkaTopic:
    given = {"bootstrap_servers": broker.plain, "topic": topic, **settings}
    return KafkaTopic(KafkaSink(**given), credentials, client_id="tests", batch_timeout_s=timeout_s)


def secret(folder: Path, **values: str) -> CredentialFiles:
    """Values as files; a line break at the end is not part of them."""
    for name, value in values.items():
        (folder / name.replace("ca", "ca.crt")).write_text(f"{value}\n")
    return CredentialFiles(folder)


def ids(spark: SparkSession, columns: str, *, count: int = 10) -> DataFrame:
    return spark.range(count).selectExpr(*columns.split("; "))


def headers(record: Message) -> list[tuple[str, bytes | None]]:
    return list(record.headers() or [])


def test_without_a_value_the_other_columns_are_the_value_and_the_position_is_in_headers(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    columns = f"CAST(id AS STRING) AS key; id; 'ü\n' AS text; map('a', id) AS `m``.`; {POSITION}"
    written = sink(broker, topic)
    rows = ids(spark, columns)
    written.check(rows.limit(0))
    assert broker.records(topic) == []
    assert written.write(rows, "b") == 10
    records = sorted(broker.records(topic), key=lambda one: int(one.key()))
    assert [json.loads(one.value()) for one in records] == [
        {"id": n, "text": "ü\n", "m`.": {"a": n}} for n in range(10)
    ]
    assert [headers(one) for one in records] == [
        [("__shard__", b"0"), ("__cursor__", b"%d" % (100 + n)), ("__index__", b"7")] for n in range(10)
    ]


def test_the_columns_of_a_record_are_used_as_they_are(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    columns = (
        "unhex('00FF') AS key; unhex('FE') AS value; id AS partition; '{}' AS topic;"
        " array(named_struct('key', 'h', 'value', unhex('01'))) AS headers; 3 AS __shard__"
    )
    rows = ids(spark, columns.format(topic), count=2)
    assert sink(broker, None).write(rows, "b") == 2
    records = broker.records(topic)
    assert [(one.partition(), one.key(), one.value()) for one in records] == [
        (0, b"\x00\xff", b"\xfe"),
        (1, b"\x00\xff", b"\xfe"),
    ]
    assert headers(records[0]) == [("h", b"\x01"), ("__shard__", b"3")]


def test_records_with_equal_keys_stay_in_order(spark: SparkSession, broker: Broker, topic: str) -> None:
    rows = ids(spark, "CAST(id % 7 AS STRING) AS key; CAST(id AS STRING) AS value", count=20_000).coalesce(1)
    assert sink(broker, topic, keep_order=True).write(rows, "b") == 20_000
    by_key = defaultdict(list)
    for record in broker.records(topic):
        by_key[record.key()].append(int(record.value()))
    assert dict(by_key) == {b"%d" % key: list(range(key, 20_000, 7)) for key in range(7)}


@pytest.mark.parametrize(
    ("columns", "settings", "message"),
    [
        ("id AS key", {}, "no column for the value"),
        ("id", {"topic": None}, "no topic: set sink.kafka.topic, or return the column topic"),
        ("id; 'x' AS partition", {}, "partition must be a whole number"),
        ("id; map('a', 'b') AS headers", {}, "headers must be an array of structs"),
        ("id", {"keep_order": True}, "must return the column key"),
    ],
)
def test_columns_that_cannot_be_written_are_found_without_rows(
    spark: SparkSession, broker: Broker, columns: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sink(broker, **({"topic": "any"} | settings)).check(ids(spark, columns).limit(0))


def test_a_shuffle_is_refused_if_the_group_consumes_in_order(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    rows = ids(spark, "id AS key; id AS value").repartition(3)
    with pytest.raises(ValueError, match="moves rows between Spark's tasks"):
        sink(broker, topic, keep_order=True).write(rows, "b")
    assert broker.records(topic) == []


def test_a_record_that_is_too_large_is_of_its_log_group_and_not_an_outage(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    rows = ids(spark, f"repeat('x', {2 << 20}) AS value", count=1)
    with pytest.raises(SPARK_ERRORS) as caught:
        sink(broker, topic).write(rows, "b")
    assert not is_outage(caught.value)
    assert "max.request.size" in failure_of(caught.value).message
    assert sink(broker, topic, max_request_bytes=3 << 20, compression="none").write(rows, "b") == 1
    # What the topic does not allow is refused by the broker.
    larger = ids(spark, f"repeat('x', {4 << 20}) AS value", count=1)
    with pytest.raises(SPARK_ERRORS) as caught:
        sink(broker, topic, max_request_bytes=8 << 20, compression="none").write(larger, "b")
    assert not is_outage(caught.value)


def test_of_several_topics_one_that_does_not_exist_is_of_its_rows(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    several = sink(broker, None, timeout_s=4.0)
    several.check(ids(spark, "id; 'x' AS topic").limit(0))
    with pytest.raises(SPARK_ERRORS) as caught:
        several.write(ids(spark, "id; 'absent' AS topic", count=1), "b")
    assert not is_outage(caught.value)


def test_a_topic_that_does_not_exist_is_found_at_start(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(InvalidSinkError, match=r"UnknownTopicOrPartition.*Create the topic"):
        sink(broker, "absent").check(ids(spark, "id").limit(0))


@pytest.mark.parametrize(
    ("sasl", "username", "password"),
    [("PLAIN", "alice", kafka.PASSWORDS["alice"]), ("SCRAM-SHA-512", "carol", kafka.SCRAM_PASSWORD)],
)
def test_a_login_is_read_from_the_secret(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, sasl: str, username: str, password: str
) -> None:
    credentials = secret(tmp_path, username=username, password=password)
    logged_in = sink(broker, topic, credentials, bootstrap_servers=broker.sasl, sasl=sasl)
    logged_in.check(ids(spark, "id").limit(0))
    assert logged_in.write(ids(spark, "id"), "b") == 10
    assert len(broker.records(topic)) == 10
    # A new password is used by the next batch.
    secret(tmp_path, password="wrong")
    with pytest.raises(ConnectionError, match="Authentication") as caught:
        logged_in.write(ids(spark, "id"), "b")
    assert is_outage(caught.value)
    with pytest.raises(InvalidSinkError, match=r"SaslAuthentication") as invalid:
        logged_in.check(ids(spark, "id").limit(0))
    assert password not in f"{caught.value}{invalid.value}"
    secret(tmp_path, password=password)
    assert logged_in.write(ids(spark, "id"), "b") == 10


def test_a_login_without_a_secret_is_refused_before_spark_starts() -> None:
    settings = KafkaSink(bootstrap_servers="b:1", topic="t", sasl="PLAIN")
    with pytest.raises(InvalidSinkError, match="needs 'username'"):
        KafkaTopic(settings, NO_CREDENTIALS, client_id="tests", batch_timeout_s=120.0)


def test_a_user_without_rights_is_refused_at_start(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    credentials = secret(tmp_path, username="bob", password=kafka.PASSWORDS["bob"])
    bobs = sink(broker, topic, credentials, bootstrap_servers=broker.sasl, sasl="PLAIN", timeout_s=20.0)
    with pytest.raises(InvalidSinkError, match="TopicAuthorization"):
        bobs.check(ids(spark, "id").limit(0))
    may_describe = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:bob", "*", AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    for done in broker.admin.create_acls([may_describe]).values():
        done.result(60)
    with pytest.raises(InvalidSinkError, match=f"no right to write to the topic {topic}"):
        bobs.check(ids(spark, "id").limit(0))


def test_tls_trusts_the_authority_of_the_secret_and_nothing_else(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    credentials = secret(tmp_path, ca=broker.authority)
    trusting = sink(broker, topic, credentials, bootstrap_servers=broker.tls, tls=True)
    trusting.check(ids(spark, "id").limit(0))
    assert trusting.write(ids(spark, "id"), "b") == 10
    assert len(broker.records(topic)) == 10
    with pytest.raises(InvalidSinkError, match="SslAuthentication"):
        sink(broker, topic, bootstrap_servers=broker.tls, tls=True).check(ids(spark, "id").limit(0))
    # A plain listener.
    with pytest.raises((InvalidSinkError, OSError), match=r"Ssl|Timeout"):
        sink(broker, topic, credentials, tls=True, timeout_s=8.0).check(ids(spark, "id").limit(0))


@pytest.mark.parametrize("listener", ["tls", "sasl", "nobody"])
def test_without_an_answer_the_sink_is_unavailable(
    spark: SparkSession, broker: Broker, listener: str
) -> None:
    (free,) = free_ports(1)
    address = f"127.0.0.1:{broker.ports.get(listener, free)}"
    silent = sink(broker, "t", bootstrap_servers=address, timeout_s=8.0)
    with pytest.raises(ConnectionError, match=r"Timeout.*expects TLS"):
        silent.check(ids(spark, "id").limit(0))


@pytest.mark.parametrize("timeout_s", [30.0, 600.0, 86_400.0])
def test_a_producer_waits_for_all_replicas_and_gives_up_before_the_batch_does(timeout_s: float) -> None:
    settings = KafkaSink(bootstrap_servers="b:1", topic="t")
    topic = KafkaTopic(settings, NO_CREDENTIALS, client_id="tests", batch_timeout_s=timeout_s)
    producer = topic._producer_settings()
    assert (producer["acks"], producer["enable.idempotence"]) == ("all", "true")
    metadata_ms, delivery_ms, request_ms = (
        int(producer[name]) for name in ("max.block.ms", "delivery.timeout.ms", "request.timeout.ms")
    )
    assert metadata_ms + delivery_ms < timeout_s * 1000
    assert request_ms <= delivery_ms <= 120_000


def test_a_broker_that_hangs_ends_the_write_and_the_next_one_works(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    """It is stopped and not ended, so its connections stay."""
    assert broker.process is not None
    hanging = sink(broker, topic, timeout_s=6.0)
    assert hanging.write(ids(spark, "id"), "b") == 10
    broker.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(ConnectionError, match=r"Kafka at .*Timeout"):
            hanging.write(ids(spark, "id"), "b")
    finally:
        broker.process.send_signal(signal.SIGCONT)
    assert hanging.write(ids(spark, "id"), "b") == 10
    written = Counter(record.value() for record in broker.records(topic))
    assert written.keys() == {b'{"id":%d}' % n for n in range(10)}
    assert min(written.values()) >= 2


@pytest.mark.parametrize(
    ("name", "message", "one_topic", "expected"),
    [
        ("org.apache.kafka.common.errors.TimeoutException", "Expiring 3 records", False, True),
        ("org.apache.kafka.common.errors.TimeoutException", "Topic x not present in metadata", True, True),
        ("org.apache.kafka.common.errors.TimeoutException", "Topic x not present in metadata", False, False),
        ("org.apache.kafka.common.errors.TopicAuthorizationException", "x", True, True),
        ("org.apache.kafka.common.errors.TopicAuthorizationException", "x", False, False),
        ("org.apache.kafka.common.errors.RecordTooLargeException", "x", True, False),
        ("org.apache.kafka.common.KafkaException", "Failed to construct kafka producer", True, True),
        ("org.apache.spark.SparkException", "Job aborted", True, False),
    ],
)
def test_what_concerns_every_record_is_an_outage(
    name: str, message: str, one_topic: bool, expected: bool
) -> None:
    causes = [("org.apache.spark.SparkException", "Job aborted"), (name, message)]
    assert (outage(causes, one_topic=one_topic) is not None) == expected
