"""The own tests of Pulsar's client for Go; each one that is left out has its reason."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import require
from tests.compat.pulsar import peers
from tests.compat.pulsar.places import ServicePlace, a_service_place

pytestmark = [pytest.mark.deep(minutes=5), pytest.mark.long, pytest.mark.timeout(1800)]
GUARD_S = 1500.0
# The tests chunk messages by a MiB, and make topics by asking for them.
EXPECTED = ("--max-pulsar-message-mib", "1", "--pulsar-auto-create")
# Tests that need nothing that `peers.NEEDS` names, and are left out all the same.
LEFT_OUT = {
    "TestNonPersistentTopic": "a topic that is not persistent is refused",
    "TestAckIDList": "it expects a batch to come again as a whole; here each message of it settles",
    "TestNegativeAckPrecisionBitCnt": "it expects a pace, and fails at a Pulsar broker on a busy machine too",
    "TestRLQMultiTopics": (
        "the library asks first for the dead letter topic of an older name, and with --pulsar-auto-create "
        "the question makes that topic, so its dead letters go there"
    ),
}
# How many of each file pass. The module is pinned, so a test that no longer runs shows.
PASSED = {
    "consumer_test.go": 50,
    "producer_test.go": 43,
    "reader_test.go": 23,
    "message_chunking_test.go": 11,
    "consumer_zero_queue_test.go": 8,
    "consumer_multitopic_test.go": 3,
    "schema_test.go": 12,
    "table_view_test.go": 4,
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ServicePlace]:
    """One for each file: together, the tests make more topics than a project may have logstores."""
    with a_service_place(tmp_path, extra=EXPECTED) as place:
        yield place


@pytest.mark.parametrize("file", PASSED)
def test_pulsars_own_tests_for_go_pass(place: ServicePlace, file: str) -> None:
    try:
        program, folder = peers.pulsar_client_go()
    except RuntimeError as error:
        require.absent(str(error))
    reasons = peers.tests_of(folder, file)
    chosen = [name for name, reason in reasons.items() if not reason and name not in LEFT_OUT]
    done = subprocess.run(
        [program, "-test.v", "-test.timeout=25m", f"-test.run=^({'|'.join(chosen)})$"],
        cwd=folder,
        env={**os.environ, "PULSAR_URL": place.url, "PULSAR_TOKEN": place.token},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=GUARD_S,
    )
    results = re.findall(r"^--- (PASS|FAIL|SKIP): (\w+)", done.stdout, re.MULTILINE)
    ended = {name: end for end, name in results}
    print(f"\n{file}: {sorted(ended.items())}")
    assert {name: end for name, end in ended.items() if end != "PASS"} == {}, done.stdout[-8000:]
    assert sorted(ended) == sorted(chosen), done.stdout[-8000:]
    assert len(ended) == PASSED[file]
