"""A whole worker that writes to a real Kafka broker, which is away when the worker starts, and ends and comes
back later. `test_kafka` has each of the outages, and `test_spark_format` that no plan shows a password."""

import json
from collections import Counter
from pathlib import Path

import pytest

from loghub.contract.sinks import KafkaSink
from loghub.contract.worker import ENV_SINK_CREDENTIALS_DIR
from tests import kafka
from tests.loghub_worker.support import GUARD_S, Producer, all_saved, prepare, worker_config, worker_processes
from tests.support import running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.deep(minutes=5), pytest.mark.timeout(1800)]

PRINT_EVERYTHING = {
    "spark.log.level": "DEBUG",
    "spark.sql.planChangeLog.level": "ERROR",
    # The worker's own setting is in force, whatever the user's is.
    "spark.sql.redaction.options.regex": "nothing",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


def test_a_broker_that_is_gone_for_a_while_costs_no_log_and_the_password_is_in_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark prints the plan of each write here, and Kafka its settings."""
    if missing := kafka.missing():
        pytest.skip(missing)
    password = kafka.PASSWORDS["alice"]
    (tmp_path / "secret").mkdir()
    for name, value in {"username": "alice", "password": password}.items():
        (tmp_path / "secret" / name).write_text(value)
    monkeypatch.setenv(ENV_SINK_CREDENTIALS_DIR, str(tmp_path / "secret"))
    with (
        kafka.running_broker(tmp_path / "broker") as broker,
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client, topic = prepare(service), broker.create_topic("lines")
        config = worker_config(
            service.endpoint,
            KafkaSink(bootstrap_servers=broker.sasl, topic=topic, sasl="PLAIN"),
            batch_timeout_s=30.0,
            spark_conf=PRINT_EVERYTHING,
        )
        producer = Producer(client)
        producer.put(groups=20)

        def reason() -> str:
            assert worker.phase in ("", "starting", "running")
            return worker.status.reason if worker.status is not None else ""

        broker.stop()
        worker = workers.start("w-0", config)
        wait_until(lambda: reason() == "SinkUnavailable", "the reason at the start", guard_s=GUARD_S)
        assert worker.phase == "starting"
        broker.start()
        wait_until(lambda: bool(worker.phase) and all_saved(client), "the first lines", guard_s=GUARD_S)
        broker.stop()
        producer.put(groups=20)
        wait_until(lambda: reason() == "SinkUnavailable", "the reason", guard_s=GUARD_S)
        assert worker.status is not None
        assert f"Kafka at {broker.sasl}" in worker.status.message
        assert not all_saved(client)
        broker.start()
        wait_until(lambda: bool(worker.phase) and all_saved(client), "all lines", guard_s=GUARD_S)
        wait_until(lambda: reason() == "", "the end of the reason", guard_s=GUARD_S)
        records = broker.records(topic)
        log = (worker.folder / "log").read_text(errors="replace")
    rows = {kafka.place_of(record): json.loads(record.value())["id"] for record in records}
    assert Counter(rows.values()) == producer.sent
    print(f"\n{producer.sent.total()} lines in, {len(records)} records, {len(records) - len(rows)} repeated")
    assert "ProducerConfig values" in log
    assert "SaveIntoDataSourceCommand" in log
    for part in (password, password.replace('"', '\\"'), "quoted"):
        assert part not in log
