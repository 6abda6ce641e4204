"""Kafka's own command line tools, unmodified: groups are listed, shown, reset and deleted."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cluster import require
from tests.compat.kafka import other_languages
from tests.compat.kafka.client_programs import GROUP, GUARD_S, TOPIC, KafkaPlace

pytestmark = pytest.mark.long
OTHER = "errors"  # another topic
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
Groups = Callable[..., str]


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[list[str]], str]]:
    """Runs the tool with these arguments, and returns what it prints."""
    if reason := other_languages.missing("java"):
        require.absent(reason)
    errors = tmp_path_factory.mktemp("tool") / "errors.log"
    with errors.open("wb") as log:
        process = subprocess.Popen(
            other_languages.group_tool(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def run(arguments: list[str]) -> str:
        stdin.write(json.dumps(arguments) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"the tool ended: {errors.read_text()}"
        printed: str = json.loads(line)
        return printed

    yield run
    stdin.close()
    assert process.wait(GUARD_S) == 0


@pytest.fixture
def groups(place: KafkaPlace, tool: Callable[[list[str]], str]) -> Groups:
    """What ``kafka-consumer-groups`` prints."""
    user, password = place.login
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    config = Path(place.folder / "tool.properties")
    settings = f'{LOGIN} required username="{user}" password="{quoted}";'.replace("\\", "\\\\")
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={settings}\n"
    )
    base = ["--bootstrap-server", place.servers, "--command-config", str(config), "--timeout", "60000"]
    return lambda *arguments: tool([*base, *arguments])


def rows(printed: str) -> list[list[str]]:
    """The rows of the partitions, in order: GROUP, TOPIC, PARTITION, .."""
    words = [line.split() for line in printed.splitlines()]
    return sorted(row for row in words if row[:1] == [GROUP] and row[1:2] in ([TOPIC], [OTHER]))


def test_an_inactive_group_is_listed_shown_reset_and_deleted(place: KafkaPlace, groups: Groups) -> None:
    """Of two topics at once; the other one has two partitions."""
    places = [(TOPIC, 0), (OTHER, 0), (OTHER, 1)]
    place.create(shards=1)
    place.create(shards=2, topic=OTHER)
    producer = place.producer("confluent")

    def write(name: str) -> set[str]:
        for topic, partition in places:
            producer.produce([f"{name} of {topic} {partition}"], topic=topic, partition=partition)
        return {f"{name} of {topic} {partition}" for topic, partition in places}

    consumer = place.consumer("confluent", topics=[TOPIC, OTHER])
    place.wait_for(write("a"))
    time.sleep(0.05)  # so that the next records have a later millisecond
    between = datetime.now(UTC)
    later = write("b")
    place.wait_for(later)
    consumer.ask("commit")
    ends = sorted(
        (topic, partition, at + 1) for topic, partition, at, _, value in consumer.records if value in later
    )
    consumer.leave()

    assert GROUP in groups("--list").split()
    shown = groups("--describe", "--group", GROUP)
    assert "has no active members" in shown
    assert [row[1:6] for row in rows(shown)] == [  # no lag
        [topic, str(partition), str(end), str(end), "0"] for topic, partition, end in ends
    ], shown
    moment = between.strftime("%Y-%m-%dT%H:%M:%S.") + f"{between.microsecond // 1000:03}"
    reset = ("--reset-offsets", "--group", GROUP, "--all-topics", "--to-datetime", moment)
    expected = [[topic, str(partition), str(end - 1)] for topic, partition, end in ends]
    assert [row[1:4] for row in rows(groups(*reset, "--dry-run"))] == expected
    assert [row[1:4] for row in rows(groups(*reset, "--execute"))] == expected
    again = place.consumer("confluent", topics=[TOPIC, OTHER])
    place.wait_for(later, again)
    assert sorted(map(str, again.values)) == sorted(later)
    again.leave()
    some = ("--topic", TOPIC, "--topic", f"{OTHER}:1")  # and not its partition 0
    shown = groups("--reset-offsets", "--group", GROUP, *some, "--to-earliest", "--execute")
    assert [row[1:4] for row in rows(shown)] == [[TOPIC, "0", "0"], [OTHER, "1", "0"]], shown
    assert "successful" in groups("--delete", "--group", GROUP)
    assert GROUP not in groups("--list").split()


def test_an_active_group_shows_its_members_and_refuses_reset_and_deletion(
    place: KafkaPlace, groups: Groups
) -> None:
    place.create(shards=2)
    first, second = place.consumer("java"), place.consumer("confluent", assignor="range")
    place.wait_shared(first, second, total=2)
    place.producer("confluent").produce([f"value {number}" for number in range(20)])
    place.wait_for({f"value {number}" for number in range(20)})
    for one in (first, second):
        one.ask("commit")
    shown = groups("--describe", "--group", GROUP)
    assert [(row[2], row[5]) for row in rows(shown)] == [("0", "0"), ("1", "0")], shown
    assert len({row[6] for row in rows(shown)}) == 2  # the ids of the members
    members = groups("--describe", "--group", GROUP, "--members", "--verbose")
    assert members.count(f"{TOPIC}(") == 2 or members.count(f"{TOPIC}:") == 2, members
    state = groups("--describe", "--group", GROUP, "--state")
    assert "Stable" in state
    assert "range" in state
    refused = groups("--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-earliest", "--execute")
    assert "inactive" in refused
    assert "Stable" in refused
    assert "not empty" in groups("--delete", "--group", GROUP)
    places = [[TOPIC, partition] for partition in sorted(first.partitions)]
    ends = [end for _, end in first.ask("ends", places=places)["offsets"]]
    assert first.ask("committed", places=places)["offsets"] == ends
