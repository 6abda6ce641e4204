"""Spark's own Kafka source and sink copy a topic, as a stream and as a batch; their driver is killed."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import kafka
from tests.cluster import require
from tests.compat.kafka.client_programs import GUARD_S, TOPIC, ClientProgram, KafkaPlace
from tests.spark_settings import INTERPRETED, jvm_options
from tests.support import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200)]
PROGRAM = Path(__file__).with_name("programs") / "spark_copy.py"
COPY_GUARD_S = 900.0
PARTITIONS, CHUNKS, CHUNK = 3, 12, 50
STEP = 1 << 17  # from one log group to the next, in offsets


def start_copy(place: KafkaPlace, folder: Path) -> "subprocess.Popen[bytes]":
    user, password = place.login
    settings = {
        "servers": place.servers,
        "user": user,
        "password": password,
        "from": TOPIC,
        "streamed": "streamed",
        "batched": "batched",
        "checkpoint": str(folder / "checkpoint"),
        # Two log groups of each partition; a broker has no gaps between its offsets.
        "perBatch": 2 * CHUNK if place.is_real else 2 * PARTITIONS * STEP,
        "conf": {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": jvm_options(),
            **INTERPRETED,
        },
    }
    with (folder / "spark.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(settings).encode() + b"\n")
    process.stdin.flush()
    return process


def kill(process: "subprocess.Popen[bytes]") -> None:
    """With the JVM, which is in its process group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(GUARD_S)


def reader_of(place: KafkaPlace, topic: str) -> ClientProgram:
    reader = place.start("confluent")
    reader.answer("open")
    reader.ask("assign", places=[[topic, partition, -2] for partition in range(PARTITIONS)])
    return reader


@pytest.mark.parametrize("kills", [0, pytest.param(3, marks=pytest.mark.deep)])
def test_what_spark_copies_is_what_was_sent(place: KafkaPlace, tmp_path: Path, kills: int) -> None:
    if reason := kafka.missing():
        require.absent(reason)
    for topic in (TOPIC, "streamed", "batched"):
        place.create(shards=PARTITIONS, topic=topic)
    producer = place.producer("confluent", lingerMs=1000)
    for begin in range(0, CHUNKS * CHUNK, CHUNK):
        producer.produce([f"value {number}" for number in range(begin, begin + CHUNK)])
    streamed, batched = (reader_of(place, topic) for topic in ("streamed", "batched"))
    process = start_copy(place, tmp_path)
    try:
        for number in range(kills):
            minimum = (number + 1) * len(producer.sent) // (kills + 2)
            wait_until(
                lambda minimum=minimum: len(set(streamed.values)) > minimum,
                f"{minimum}",
                guard_s=COPY_GUARD_S,
            )
            kill(process)
            process = start_copy(place, tmp_path)
        assert process.wait(COPY_GUARD_S) == 0, (tmp_path / "spark.log").read_text()[-4000:]
    finally:
        if process.poll() is None:
            kill(process)
    place.wait_for(set(producer.sent), streamed)
    place.wait_for(set(producer.sent), batched)
    assert Counter(batched.values) == Counter(producer.sent)
    assert set(streamed.values) == set(producer.sent)
    repeated = len(streamed.values) - len(producer.sent)
    print(f"\n{len(producer.sent)} records, {kills} kills of the driver: {repeated} were written again")
    assert 0 <= repeated <= kills * 3 * CHUNK  # the micro-batch that was being written
