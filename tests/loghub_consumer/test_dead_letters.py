"""The failure policy of a consumer, on a real service: what is settled, where it goes, and what is saved."""

import errno
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from loghub.wire import loggroup
from loghub.wire.cursor import decode
from loghub_consumer import (
    Consumer,
    DeadLetterFolder,
    DeadLetterLogstore,
    LogBatch,
    OnFailure,
    Tracker,
    UnavailableError,
)
from loghub_consumer.batch import LogPlace
from loghub_consumer.failure.dead_letter import TAG_PREFIX, FolderTarget, Rejection
from tests.loghub_consumer.support import PROJECT, Seen, Site, ids_of, released, running, wait_for

QUICK = {"redelivery_delay_s": 0.05, "max_redelivery_delay_s": 0.2, "checkpoint_interval_s": 0.0}


def to_logstore(site: Site, **changes: int) -> OnFailure:
    dead_letter = DeadLetterLogstore(project=PROJECT, logstore=f"{site.logstore}-rejected")
    return OnFailure(policy="DeadLetter", dead_letter=dead_letter, **({"max_attempts": 2} | changes))


def rejected(site: Site) -> list[loggroup.LogGroup]:
    """What is in the dead letter."""
    name = f"{site.logstore}-rejected"
    begin = site.client.get_cursor(name, 0, "begin")
    pulled = site.client.pull_logs(name, 0, cursor=begin, count=1000)
    return [loggroup.decode(group) for group in loggroup.split(pulled.body)]


def texts(groups: list[loggroup.LogGroup]) -> list[str]:
    values = [value for group in groups for log in group.logs for _, value in log.contents]
    return [value.decode() if isinstance(value, bytes) else value for value in values]


def tags(group: loggroup.LogGroup) -> dict[str, str]:
    return {str(name).removeprefix(TAG_PREFIX): str(value) for name, value in group.tags}


def raising_for(*bad: str) -> Callable[[LogBatch, Tracker], None]:
    def process(logs: LogBatch, tracker: Tracker) -> None:
        for name in ids_of(logs):
            if name in bad:
                raise ValueError(f"cannot take {name}")
        tracker.save()

    return process


class TextlessError(Exception):
    """Nobody can read it."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.long
@pytest.mark.parametrize("how", ["an error without a text", "a reason that is none"])
def test_an_error_without_a_text_or_reason_does_not_end_the_consumer(site: Site, how: str) -> None:
    site.prepare()
    site.client.create_logstore(f"{site.logstore}-rejected", shards=1)
    bad, last = site.put(2, logs=1)

    def process(logs: LogBatch, tracker: Tracker) -> None:
        if bad in ids_of(logs):
            if how == "a reason that is none":
                tracker.nack(reason=None)  # type: ignore[arg-type]
            else:
                raise TextlessError
        tracker.save()

    seen = Seen(process)
    settings = site.settings(on_failure=to_logstore(site, max_attempts=1), **QUICK)
    with running(Consumer(settings, seen.factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert (texts(rejected(site)), seen.ids()[-1]) == ([bad], last)


@pytest.mark.long
def test_one_log_group_for_which_process_raises_is_found_and_dead_lettered_in_order(site: Site) -> None:
    site.prepare()
    site.client.create_logstore(f"{site.logstore}-rejected", shards=1)
    ids = site.put(40, logs=2)
    bad, last = ids[26], ids[-1]
    seen = Seen(raising_for(bad, last))
    settings = site.settings(on_failure=to_logstore(site), max_logs=80, max_wait_s=60.0, **QUICK)
    begin = decode(site.begin())
    with running(consumer := Consumer(settings, seen.factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end, though its last log group was rejected")
        assert consumer.errors() == ()
    groups = rejected(site)
    assert texts(groups) == [ids[26], ids[27], ids[-2], ids[-1]], "whole log groups"
    found = tags(groups[0])
    assert (found["logstore"], found["consumer_group"], found["shard"]) == (site.logstore, "readers", "0")
    assert decode(found["cursor"]) == begin + 13
    assert (found["reason"], found["attempts"]) == ("ProcessorFailed", "2")
    assert found["message"] == f"ValueError: cannot take {bad}"
    delivered = [names for _, names in seen.batches if bad not in names and last not in names]
    assert [name for names in delivered for name in names] == [*ids[:26], *ids[28:-2]], "once, and in order"
    assert len(seen.batches) < 30, "halved, not read one by one"


@pytest.mark.long
def test_a_log_that_is_refused_too_often_is_dead_lettered_alone(site: Site, tmp_path: Path) -> None:
    site.prepare()
    ids = site.put(3, logs=3)
    begin = decode(site.begin())

    def process(logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            for log in group.logs:
                if log.get("id") == ids[4]:
                    tracker.nack(log, reason="no such user")
        tracker.save()

    folder = DeadLetterFolder(path=str(tmp_path))
    policy = OnFailure(policy="DeadLetter", max_attempts=3, dead_letter=folder)
    seen = Seen(process)
    with running(Consumer(site.settings(on_failure=policy, **QUICK), seen.factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end, without a further batch")
    assert seen.ids().count(ids[4]) == 3
    (file,) = tmp_path.rglob("*.json")
    found = json.loads(file.read_text())
    assert [log["contents"] for log in found["logs"]] == [[["id", ids[4]]]], "not its whole log group"
    assert (decode(found["cursor"]), found["attempts"]) == (begin + 1, 3)
    assert (found["reason"], found["message"]) == ("Refused", "no such user")


@pytest.mark.long
def test_by_log_what_times_out_too_often_is_dead_lettered(site: Site) -> None:
    site.prepare()
    site.client.create_logstore(f"{site.logstore}-rejected", shards=1)
    ids = site.put(2, logs=1)

    def process(logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            if [str(log.get("id")) for log in group.logs] != ids[:1]:
                tracker.ack(group)

    settings = site.settings(
        acknowledge="log", ack_timeout_s=0.2, checkpoint_interval_s=0.0, on_failure=to_logstore(site)
    )
    with running(Consumer(settings, Seen(process).factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    (group,) = rejected(site)
    assert texts([group]) == ids[:1]
    assert (tags(group)["reason"], tags(group)["attempts"]) == ("AckTimedOut", "2")


@pytest.mark.long
def test_what_is_acknowledged_while_others_are_dead_lettered_is_not_a_dead_letter(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.prepare()
    site.put(2, logs=1)
    begin = decode(site.begin())
    writes, may_write = threading.Event(), threading.Event()
    trackers: list[Tracker] = []
    write = FolderTarget.write

    def slowly(target: FolderTarget, log_group: bytes, rejection: Rejection) -> None:
        writes.set()
        assert may_write.wait(60)
        write(target, log_group, rejection)

    monkeypatch.setattr(FolderTarget, "write", slowly)
    seen = Seen(lambda _, tracker: trackers.append(tracker))
    folder = DeadLetterFolder(path=str(tmp_path))
    policy = OnFailure(policy="DeadLetter", max_attempts=1, dead_letter=folder)
    limits = {"max_logs": 2, "max_wait_s": 60.0}  # one batch
    settings = site.settings(acknowledge="log", ack_timeout_s=0.3, on_failure=policy, **limits, **QUICK)
    with running(Consumer(settings, seen.factory)), released(may_write):
        wait_for(writes.is_set, "the first dead letter")
        trackers[0].ack(LogPlace(begin + 1, None))
        may_write.set()
        wait_for(lambda: site.saved() == site.ends(), "the end")
    (file,) = tmp_path.rglob("*.json")
    assert decode(json.loads(file.read_text())["cursor"]) == begin


@pytest.mark.long
def test_a_dead_letter_that_is_away_loses_nothing_and_stops_no_other_shard(site: Site) -> None:
    site.prepare(shards=2)
    ids = site.put(3, logs=1)
    begin = decode(site.begin())

    def process(logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            if [str(log.get("id")) for log in group.logs] == ids[:1]:
                tracker.nack(group)
        tracker.save()

    seen = Seen(process)
    consumer = Consumer(site.settings(on_failure=to_logstore(site), **QUICK), seen.factory)
    with running(consumer):
        wait_for(lambda: bool(consumer.errors()), "the error")
        (error,) = consumer.errors()
        assert (error.shard, error.reason) == (0, "DeadLetterUnavailable")
        ids += site.put(2, logs=1)
        others = site.put(2, shard=1)
        wait_for(lambda: seen.ids(1) == others and set(seen.ids(0)) == set(ids), "both shards to go on")
        assert decode(site.saved()[0]) == begin, "what is not written is not passed"
        site.client.create_logstore(f"{site.logstore}-rejected", shards=1)
        wait_for(lambda: site.saved() == site.ends(), "the dead letter")
        assert consumer.errors() == ()
    assert seen.ids().count(ids[0]) == 2, "it is not handed over again"
    assert texts(rejected(site)) == ids[:1]
    assert tags(rejected(site)[0])["attempts"] == "2"


@pytest.mark.long
def test_a_dead_letter_that_is_away_keeps_the_order_of_a_batch_that_fails(site: Site) -> None:
    site.prepare()
    ids = site.put(4, logs=1)
    seen = Seen(raising_for(ids[1]))
    consumer = Consumer(site.settings(on_failure=to_logstore(site), max_logs=4), seen.factory)
    with running(consumer):
        wait_for(lambda: any(e.reason == "DeadLetterUnavailable" for e in consumer.errors()), "the error")
        assert ids[2] not in [name for _, names in seen.batches if ids[1] not in names for name in names]
        site.client.create_logstore(f"{site.logstore}-rejected", shards=1)
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert texts(rejected(site)) == ids[1:2]
    delivered = [name for _, names in seen.batches if ids[1] not in names for name in names]
    assert delivered == [ids[0], *ids[2:]]


@pytest.mark.long
@pytest.mark.parametrize("refuses", [False, True])
def test_at_most_so_many_logs_are_skipped_without_a_success_between_them(site: Site, refuses: bool) -> None:
    site.prepare()
    ids = site.put(6, logs=1)
    works = threading.Event()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        if not works.is_set() and refuses:
            tracker.nack()
        elif not works.is_set():
            raise ValueError("the database is gone")
        tracker.save()
        if works.is_set():
            delivered.extend(ids_of(logs))

    delivered: list[str] = []
    policy = OnFailure(policy="Skip", max_attempts=1, max_consecutive=2)
    consumer = Consumer(site.settings(on_failure=policy, max_logs=1, **QUICK), Seen(process).factory)
    with running(consumer):
        wait_for(lambda: any("limited" in error.message for error in consumer.errors()), "the limit")
        works.set()
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert sorted(delivered) == ids[2:]


@pytest.mark.long
@pytest.mark.parametrize("refuses", [False, True])
def test_a_shard_that_stopped_continues_after_a_resume(site: Site, refuses: bool) -> None:
    site.prepare()
    ids = site.put(3, logs=1)
    works = threading.Event()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            if [log.get("id") for log in group.logs] == ids[1:2] and not works.is_set():
                if not refuses:
                    raise ValueError("no")
                tracker.nack(group)
        tracker.save()

    policy = OnFailure(policy="Stop", max_attempts=1)
    seen = Seen(process)
    consumer = Consumer(site.settings(on_failure=policy, max_logs=1, **QUICK), seen.factory)
    with running(consumer):
        wait_for(lambda: any("stopped" in error.message for error in consumer.errors()), "the stop")
        attempts = seen.ids().count(ids[1])
        more = site.put(1, logs=1)
        consumer.resume([0])
        wait_for(lambda: seen.ids().count(ids[1]) > attempts, "one more attempt")
        works.set()
        wait_for(lambda: consumer.resume([0]) or site.saved() == site.ends(), "the end")  # type: ignore[func-returns-value]
    assert set(seen.ids()) == {*ids, *more}


@pytest.mark.long
def test_logs_are_not_to_blame_for_what_is_unavailable(site: Site) -> None:
    site.prepare()
    ids = site.put(1)
    failures = [
        UnavailableError("no database"),
        OSError(errno.ENOSPC, "No space left on device"),
        ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("bad"), ConnectionError("refused")]),
    ]

    def process(logs: LogBatch, tracker: Tracker) -> None:
        if failures:
            raise failures.pop()
        tracker.save()

    seen = Seen(process)
    policy = OnFailure(policy="Skip", max_attempts=1)
    with running(Consumer(site.settings(on_failure=policy), seen.factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert seen.ids() == ids * 4


def test_a_dead_letter_that_cannot_work_is_refused(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs dead_letter"):
        site.settings(on_failure=OnFailure(policy="DeadLetter"))
    site.prepare()
    (tmp_path / "file").touch()
    folder = DeadLetterFolder(path=str(tmp_path / "file"))
    policy = OnFailure(policy="DeadLetter", dead_letter=folder)
    with pytest.raises(OSError, match="file"):
        Consumer(site.settings(on_failure=policy), Seen().factory).run()
