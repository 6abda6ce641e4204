"""Kafka's own command line tools, unmodified: groups are listed, shown, reset and deleted."""

import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cluster import require
from tests.compat.kafka import other_languages
from tests.compat.kafka.client_programs import GROUP, GUARD_S, TOPIC, KafkaPlace

pytestmark = pytest.mark.long
TOOL = "consumer.group.ConsumerGroupCommand"
OTHER = "errors"  # another topic
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def groups(place: KafkaPlace, *arguments: str) -> str:
    """What ``kafka-consumer-groups`` prints."""
    if reason := other_languages.missing("java"):
        require.absent(reason)
    user, password = place.login
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    config = Path(place.folder / "tool.properties")
    settings = f'{LOGIN} required username="{user}" password="{quoted}";'.replace("\\", "\\\\")
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={settings}\n"
    )
    command = [*other_languages.tool(TOOL), "--bootstrap-server", place.servers]
    done = subprocess.run(
        [*command, "--command-config", str(config), "--timeout", "60000", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD_S,
    )
    return done.stdout + done.stderr


def rows(printed: str) -> list[list[str]]:
    """The rows of the partitions, in order: GROUP, TOPIC, PARTITION, .."""
    words = [line.split() for line in printed.splitlines()]
    return sorted(row for row in words if row[:1] == [GROUP] and row[1:2] in ([TOPIC], [OTHER]))


def test_an_inactive_group_is_listed_shown_reset_and_deleted(place: KafkaPlace) -> None:
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

    assert GROUP in groups(place, "--list").split()
    shown = groups(place, "--describe", "--group", GROUP)
    assert "has no active members" in shown
    assert [row[1:6] for row in rows(shown)] == [  # no lag
        [topic, str(partition), str(end), str(end), "0"] for topic, partition, end in ends
    ], shown
    moment = between.strftime("%Y-%m-%dT%H:%M:%S.") + f"{between.microsecond // 1000:03}"
    reset = ("--reset-offsets", "--group", GROUP, "--all-topics", "--to-datetime", moment)
    expected = [[topic, str(partition), str(end - 1)] for topic, partition, end in ends]
    assert [row[1:4] for row in rows(groups(place, *reset, "--dry-run"))] == expected
    assert [row[1:4] for row in rows(groups(place, *reset, "--execute"))] == expected
    again = place.consumer("confluent", topics=[TOPIC, OTHER])
    place.wait_for(later, again)
    assert sorted(map(str, again.values)) == sorted(later)
    again.leave()
    some = ("--topic", TOPIC, "--topic", f"{OTHER}:1")  # and not its partition 0
    shown = groups(place, "--reset-offsets", "--group", GROUP, *some, "--to-earliest", "--execute")
    assert [row[1:4] for row in rows(shown)] == [[TOPIC, "0", "0"], [OTHER, "1", "0"]], shown
    assert "successful" in groups(place, "--delete", "--group", GROUP)
    assert GROUP not in groups(place, "--list").split()


def test_an_active_group_shows_its_members_and_refuses_reset_and_deletion(place: KafkaPlace) -> None:
    place.create(shards=2)
    first, second = place.consumer("java"), place.consumer("confluent", assignor="range")
    place.wait_shared(first, second, total=2)
    place.producer("confluent").produce([f"value {number}" for number in range(20)])
    place.wait_for({f"value {number}" for number in range(20)})
    for one in (first, second):
        one.ask("commit")
    shown = groups(place, "--describe", "--group", GROUP)
    assert [(row[2], row[5]) for row in rows(shown)] == [("0", "0"), ("1", "0")], shown
    assert len({row[6] for row in rows(shown)}) == 2  # the ids of the members
    members = groups(place, "--describe", "--group", GROUP, "--members", "--verbose")
    assert members.count(f"{TOPIC}(") == 2 or members.count(f"{TOPIC}:") == 2, members
    state = groups(place, "--describe", "--group", GROUP, "--state")
    assert "Stable" in state
    assert "range" in state
    refused = groups(
        *(place, "--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-earliest", "--execute")
    )
    assert "inactive" in refused
    assert "Stable" in refused
    assert "not empty" in groups(place, "--delete", "--group", GROUP)
    places = [[TOPIC, partition] for partition in sorted(first.partitions)]
    ends = [end for _, end in first.ask("ends", places=places)["offsets"]]
    assert first.ask("committed", places=places)["offsets"] == ends
