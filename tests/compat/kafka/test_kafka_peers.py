"""franz-go's and kafka-python's own tests against the service; each one that is left out has its reason."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.cluster import require
from tests.compat.kafka import peers
from tests.compat.kafka.client_programs import ServicePlace, a_kafka_place

pytestmark = [pytest.mark.deep, pytest.mark.long, pytest.mark.timeout(1800)]
GUARD_S = 1500.0
RECORDS = 10_000  # of franz-go's chain of groups, produced once and through three groups for each assignor
NOT_OF_FRANZ_GO = {
    "TestTxnEtl": "no transactions",
    "TestPooling": "answers are not compressed, so nothing is taken from the pool",
}
NOT_OF_KAFKA_PYTHON = {
    "acls": "no ACLs",
    "log_dirs": "there are no replicas to describe",
    "elect_leaders": "there is one broker",
    "delete_records": "no DeleteRecords",
    "transactional": "no transactions",
    "resource_returns_configs": "a broker and a topic have other settings than Kafka's",
    "resources_returns_configs": "the same",
    "create_partitions": "it assigns replicas, and there is one broker",
    "unsupported_encoding": "answers are not compressed",
    "offsets_for_time": "an offset is found by the time of receipt, not by that of the record",
    "offsets_search_many_partitions": "the same",
    "test_group": "polls for 200 ms, and fails in the same way with a real broker",
    "TestSSLConnection": "it starts brokers of its own",
}
# The numbers in docs/kafka.md. Both peers are pinned, so a test that no longer runs shows.
PASSED_OF_FRANZ_GO = {"groups": 5, "others": 218}
PASSED_OF_KAFKA_PYTHON = 30
SKIPPED_BY_KAFKA_PYTHON = {
    "DescribeQuorum requires KRaft (broker >=4.0)": 1,
    "AlterPartitionReassignments requires broker >=2.4": 1,
    "ListPartitionReassignments requires broker >=2.4": 1,
    "DescribeTopicPartitions requires broker >=4.0 (KRaft)": 2,
    "ListConfigResources requires broker >=4.1 (KRaft)": 1,
    "Compression libraries not installed for snappy": 2,
    "Testing on external Kafka Broker": 9,  # of SASL, with users of the broker that they would start
}


@pytest.fixture
def environment(place: ServicePlace) -> dict[str, str]:
    user, password = place.login
    return {**os.environ, "KAFKA_USER": user, "KAFKA_PASSWORD": password}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ServicePlace]:
    with a_kafka_place(tmp_path / "place") as made:
        yield made


def run(command: Sequence[object], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [str(one) for one in command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=GUARD_S,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


@pytest.mark.parametrize("chosen", ["groups", "others"])
def test_franz_gos_own_tests_pass(place: ServicePlace, environment: dict[str, str], chosen: str) -> None:
    try:
        program, folder = peers.franz_go()
    except RuntimeError as error:
        require.absent(str(error))
    settings = {
        "KGO_SEEDS": place.servers,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_LOG_LEVEL": "none",
    }
    names = "|".join(NOT_OF_FRANZ_GO)
    which = ["-test.run=TestGroupETL"] if chosen == "groups" else [f"-test.skip=TestGroupETL|{names}"]
    printed = run([program, "-test.v", "-test.timeout=25m", *which], folder, environment | settings)
    passed = re.findall(r"^ *--- PASS: (\S+)", printed, re.MULTILINE)
    skipped = re.findall(r"^ *--- SKIP: (\S+)", printed, re.MULTILINE)
    print(f"\nfranz-go, {chosen}: {len(passed)} passed, {len(skipped)} skipped {skipped}")
    assert len(passed) >= PASSED_OF_FRANZ_GO[chosen]
    assert skipped == []


def test_kafka_pythons_own_tests_pass(place: ServicePlace, environment: dict[str, str]) -> None:
    try:
        folder = peers.kafka_python()
    except RuntimeError as error:
        require.absent(str(error))
    place.create(shards=4, topic="idempotent_test_topic")
    settings = {
        "KAFKA_URI": f"kafka://{place.servers}",
        "KAFKA_VERSION": "2.3.0",
        "KAFKA_ROOT": str(folder),
        "PYTHONPATH": f"{peers.OURS}:{folder}",
    }
    options = ["-p", "peer_plugin", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-rfs", "-q"]
    left_out = " and ".join(f"not {name}" for name in NOT_OF_KAFKA_PYTHON)
    command = [
        sys.executable,
        "-m",
        "pytest",
        *options,
        "--tb=short",
        "--show-capture=no",
        "-k",
        left_out,
        "test/integration",
    ]
    printed = run(command, folder, environment | settings)
    last = printed.strip().splitlines()
    print("\nkafka-python: " + "\n".join(line for line in last if " passed" in line or line[:4] == "SKIP"))
    skipped: Counter[str] = Counter()
    for times, reason in re.findall(r"^SKIPPED \[(\d+)\] \S+ (.*)$", printed, re.MULTILINE):
        skipped[reason] += int(times)
    assert skipped == SKIPPED_BY_KAFKA_PYTHON
    passed = re.search(r"^(\d+) passed", last[-1])
    assert passed is not None, last[-1]
    assert int(passed[1]) >= PASSED_OF_KAFKA_PYTHON
