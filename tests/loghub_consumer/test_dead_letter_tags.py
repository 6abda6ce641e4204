"""A log that is dead-lettered has all that it was written with, whatever the names of its tags are."""

import base64
import json
from pathlib import Path

import pytest

from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer import (
    Consumer,
    DeadLetterFolder,
    DeadLetterLogstore,
    LogBatch,
    OnFailure,
    Processor,
    RetryLogstore,
    Tracker,
)
from tests.loghub_consumer.virtual import PROJECT, World, world

TAGS = (("retry_count", "3"), ("host", "h"), ("retry_project", "mine"), ("dead_letter_shard", "9"))
LOGS = (Log(time=5, contents=(("id", b"a"),)), Log(time=6, contents=(("id", b"b"),)))


class Refusing(Processor):
    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        tracker.nack()
        tracker.save()


@pytest.mark.parametrize("delays_s", [(), (1.0,), (1.0, 2.0)])
@pytest.mark.parametrize("in_folder", [False, True])
def test_a_dead_letter_has_the_tags_of_its_log_group(
    delays_s: tuple[float, ...], in_folder: bool, tmp_path: Path
) -> None:
    folder = DeadLetterFolder(path=str(tmp_path / "rejected"))
    target = folder if in_folder else DeadLetterLogstore(project=PROJECT, logstore="rejected")
    with world() as one:
        one.make_logstore("access")
        for name in ("waiting", "rejected"):
            one.make_logstore(name, has_group=False)
        settings = one.settings(
            "access",
            on_failure=OnFailure(policy="DeadLetter", max_attempts=1, dead_letter=target),
            retry=RetryLogstore(logstore="waiting", delays_s=delays_s) if delays_s else None,
        )
        program = one.start(lambda: Consumer(settings, Refusing))
        one.client.put_logs("access", encode(LogGroup(logs=LOGS, tags=TAGS)))
        one.until(lambda: program.call(dead_lettered) == 1, "a dead letter")
        found = written(tmp_path) if in_folder else written_to_logstore(one)
        program.kill()
    assert (found.logs, found.tags[: len(TAGS)]) == (LOGS, TAGS)
    added = [name for name, _ in found.tags[len(TAGS) :]]
    assert all(str(name).startswith("dead_letter_") for name in added)
    assert bool(added) != in_folder, "a folder has them next to the log group"


def dead_lettered(consumer: Consumer) -> int:
    return sum(one.dead_lettered for one in consumer.failure_report().totals.values())


def written(folder: Path) -> LogGroup:
    (path,) = folder.rglob("rejected/**/*.json")
    return loggroup.decode(base64.b64decode(json.loads(path.read_text())["logGroup"]))


def written_to_logstore(one: World) -> LogGroup:
    begin = one.client.get_cursor("rejected", 0, "begin")
    (raw,) = loggroup.split(one.client.pull_logs("rejected", 0, cursor=begin, count=10).body)
    return loggroup.decode(raw)
