"""What the tracker of a processor in another process does: refusing, acknowledging, time-outs, and deaths."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loghub.contract.processor import RetryLogstore, retry_group
from loghub.contract.worker import DeadLetterFolder, DeadLetterLogstore
from loghub.wire import loggroup
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub_consumer import Consumer
from loghub_consumer.failure.policy import WaitState
from loghub_consumer.processes.child_process import ChildProcess
from loghub_consumer.processes.messages import Channel, Save, TrackerCall
from tests.loghub_consumer.support import PROJECT, Site, running, wait_for
from tests.loghub_worker.processing.support import KeptProcesses, Rig, put, rig

pytestmark = pytest.mark.long
QUICK = {"redelivery_delay_s": 0.05, "max_redelivery_delay_s": 0.2}


def deliveries(on: Rig) -> dict[str, list[int]]:
    """Id -> the counts with which it was handed over."""
    found: dict[str, list[int]] = {}
    for line in on.lines():
        if line[2] == "log":
            found.setdefault(line[4], []).append(int(line[5]))
    return found


def is_done(site: Site) -> bool:
    return site.saved() == site.ends()


def test_single_logs_are_refused_in_another_process_and_come_again_with_a_count(
    tmp_path: Path, site: Site, kept: KeptProcesses
) -> None:
    site.prepare()
    on = kept.rig(tmp_path, "Refusing")
    with running(on.consumer(site, **QUICK)):
        put(site, "a", "refuse-2-b", "c", "refuse-1-d")
        wait_for(lambda: is_done(site), "the end")
        assert deliveries(on) == {"a": [1], "refuse-2-b": [1, 2, 3], "c": [1], "refuse-1-d": [1, 2]}
        assert on.counts.logs == {0: 4}, "what comes again is not counted again"


def test_all_logs_up_to_one_are_refused_in_another_process(
    tmp_path: Path, site: Site, kept: KeptProcesses
) -> None:
    site.prepare()
    on = kept.rig(tmp_path, "Refusing")
    with running(on.consumer(site, **together(4), **QUICK)):
        put(site, "a", "b", "upto-c", "d")
        wait_for(lambda: is_done(site), "the end")
        assert deliveries(on) == {"a": [1, 2], "b": [1, 2], "upto-c": [1, 2], "d": [1]}


def test_what_is_refused_too_often_or_rejected_goes_to_the_dead_letter_alone(
    tmp_path: Path, site: Site, kept: KeptProcesses
) -> None:
    site.prepare()
    begin = decode_cursor(site.begin())
    put(site, "a", "refuse-9-b", "reject-c", "d")
    folder = DeadLetterFolder(path=str(tmp_path / "rejected"))
    policy = {"dead_letter": folder, "max_attempts": 3}
    on = kept.rig(tmp_path, "Refusing")
    consumer = on.consumer(site, "DeadLetter", **policy, **QUICK)
    with running(consumer):
        wait_for(lambda: is_done(site), "the end")
    totals = consumer.failure_report().totals[0]
    assert (totals.dead_lettered, totals.skipped, totals.postponed) == (2, 0, 0)
    assert deliveries(on) == {"a": [1], "refuse-9-b": [1, 2, 3], "reject-c": [1], "d": [1]}
    found = [json.loads(path.read_text()) for path in sorted((tmp_path / "rejected").rglob("*.json"))]
    assert [(decode_cursor(one["cursor"]) - begin, one["reason"], one["message"]) for one in found] == [
        (1, "Refused", "time 3"),
        (2, "Rejected", "never"),
    ]


def test_a_refused_log_at_which_a_shard_stops_is_reported(
    tmp_path: Path, site: Site, kept: KeptProcesses
) -> None:
    site.prepare()
    put(site, "a", "refuse-9-b")
    on = kept.rig(tmp_path, "Refusing")
    with running(consumer := on.consumer(site, "Stop", max_attempts=2, **QUICK)):
        wait_for(lambda: consumer.paused() == (0,), "the shard to stop")
        (failing,) = on.failing()
        assert (failing.state, failing.attempts) == (WaitState.STOPPED, 2)
        assert failing.begin == decode_cursor(site.begin()) + 1
        assert failing.failure.message == "time 2"
        consumer.resume([0])
        wait_for(lambda: on.failing()[0].attempts == 3, "one more attempt")


def test_a_refusal_that_comes_too_late_is_an_error_there(tmp_path: Path, site: Site) -> None:
    site.prepare()
    with rig(tmp_path, "TooLate") as on:
        with running(on.consumer(site)):
            for name in "ab":
                put(site, name)
                wait_for(lambda: is_done(site), "the batch")
        raised = [" ".join(line[3:]) for line in on.lines() if line[2] == "raised"]
        assert [one.partition(":")[0].split()[0] for one in raised] == ["ValueError"] * 4
        assert "is acknowledged, since process has returned" in raised[0]
        assert "it must be at least 0" in raised[1]
        assert "has no checkpoint_store" in raised[2]
        assert "no batch is being processed; name the logs" in raised[3]
        first, second = (line[3:] for line in on.lines() if line[2] == "delivery")
        assert second == ["1", encode_cursor(decode_cursor(first[1]) + 1), second[1]], "what was saved before"


def together(logs: int) -> dict[str, object]:
    """These are one batch."""
    return {"max_logs": logs, "max_wait_s": 60.0}


def by_log(on: Rig, site: Site, policy: str = "Retry", **changes: object) -> Consumer:
    return on.consumer(site, policy, acknowledge="log", **QUICK, **changes)


def test_by_log_any_thread_of_the_process_acknowledges_and_that_moves_the_checkpoint(
    tmp_path: Path, site: Site, kept: KeptProcesses
) -> None:
    site.prepare()
    begin = decode_cursor(site.begin())
    put(site, "a", "b", "silent-c", "d")
    on = kept.rig(tmp_path, "Acknowledging", by_log=True)
    with running(by_log(on, site, **together(4))):
        wait_for(lambda: site.saved().get(0) == encode_cursor(begin + 2), "the first two")
        assert deliveries(on) == {"a": [1], "b": [1], "silent-c": [1], "d": [1]}


def test_by_log_what_is_not_acknowledged_in_time_comes_again(
    tmp_path: Path, site: Site, kept: KeptProcesses
) -> None:
    site.prepare()
    put(site, "a", "silent-b")
    on = kept.rig(tmp_path, "Acknowledging", by_log=True)
    with running(by_log(on, site, ack_timeout_s=0.2)):
        wait_for(lambda: is_done(site), "the end")
        found = deliveries(on)
        assert (found["a"], found["silent-b"][:2]) == ([1], [1, 2])


def test_by_log_what_a_process_had_when_it_ended_comes_again(tmp_path: Path, site: Site) -> None:
    """Nothing else would hand it over again: no call was running, and there is no time-out."""
    site.prepare()
    put(site, "a", "b", "exit-c")
    with rig(tmp_path, "Acknowledging", by_log=True) as on:
        with running(by_log(on, site, "Skip", **together(3))):
            wait_for(lambda: is_done(site), "the end")
        # What is handed over to a process that is being replaced counts, too.
        counts = {name: [min(count, 2) for count in found] for name, found in deliveries(on).items()}
        assert counts == {"a": [2], "b": [2], "exit-c": [1, 2]}, "the last one was acknowledged first"
        assert on.skipped() == {}, "which log has caused it is not known"


def test_a_refused_log_that_ends_the_process_is_not_blamed_on_those_that_come_again_with_it(
    tmp_path: Path, site: Site
) -> None:
    site.prepare()
    put(site, "refuse-1-a", "exit-1", "refuse-1-b")
    with rig(tmp_path, "Refusing") as on:
        with running(on.consumer(site, "Skip", max_attempts=1 + 1, **together(3), **QUICK)):
            wait_for(lambda: is_done(site), "the end")
            assert on.skipped() == {0: 1}
        found = deliveries(on)
        # Its refusal and two ends alone are three attempts; the end with the others is none.
        assert (found["exit-1"][:2], len(found["exit-1"])) == ([1, 2], 4)
        assert (found["refuse-1-a"][0], found["refuse-1-b"][0]) == (1, 1)
        assert found["refuse-1-b"][-1] > 1, "it was taken, and not skipped"


def test_logs_wait_in_the_retry_logstore_and_are_processed_in_the_same_processes(
    tmp_path: Path, site: Site, kept: KeptProcesses
) -> None:
    site.prepare()
    for name in ("retry", "rejected"):
        site.client.create_logstore(f"{site.logstore}-{name}", shards=1)
    put(site, "a", "refuse-3-b", "refuse-9-c", "reject-d")
    target = DeadLetterLogstore(project=PROJECT, logstore=f"{site.logstore}-rejected")
    retry = RetryLogstore(logstore=f"{site.logstore}-retry", delays_s=(0.2, 0.4))
    on = kept.rig(tmp_path, "Refusing")
    (group,) = site.client.list_groups(site.logstore)
    name = retry_group(group.name, site.logstore)
    site.client.create_group(retry.logstore, replace(group, name=name))
    consumer = on.consumer(site, "DeadLetter", dead_letter=target, max_attempts=2, retry=retry, **QUICK)
    with running(consumer):
        wait_for(lambda: is_done(site), "the end of the logstore")
        wait_for(lambda: rejected(site) == [["reject-d"], ["refuse-9-c"]], "the dead letter")
    four = [1, 2, 3, 4]
    assert deliveries(on) == {"a": [1], "refuse-3-b": four, "refuse-9-c": four, "reject-d": [1]}
    totals = consumer.failure_report().totals[0]
    assert (totals.postponed, totals.dead_lettered) == (4, 2), "each twice"
    assert on.counts.logs == {0: 4}


def rejected(site: Site) -> list[list[str]]:
    name = f"{site.logstore}-rejected"
    begin = site.client.get_cursor(name, 0, "begin")
    groups = loggroup.split(site.client.pull_logs(name, 0, cursor=begin, count=100).body)
    return [[str(dict(log.contents)["id"], "utf-8") for log in loggroup.decode(one).logs] for one in groups]  # type: ignore[arg-type]


def test_fan_out_handles_the_logs_of_a_key_in_order_in_the_process_of_the_user(
    tmp_path: Path, site: Site
) -> None:
    site.prepare()
    ids = [f"{key}-{n}" for n in range(20) for key in "abcdef"]
    put(site, *ids, "raise-1")
    with rig(tmp_path, "fanned", by_log=True) as on, running(by_log(on, site, "Skip")):
        wait_for(lambda: is_done(site), "the end")
        assert on.skipped() == {0: 1}, "what is rejected after two attempts is settled"
        handled = [(line[3], line[4]) for line in on.lines() if line[4] in ids]
        assert sorted(name for _, name in handled) == sorted(ids)
        for key in "abcdef":
            mine = [(lane, name) for lane, name in handled if name[0] == key]
            assert [name for _, name in mine] == [name for name in ids if name[0] == key]
            assert len({lane for lane, _ in mine}) == 1
        assert len({lane for lane, _ in handled}) > 1


def test_what_is_saved_in_a_thread_is_never_the_batch_that_came_next(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the thread of the worker runs that sends it."""
    site.prepare()
    carry_out = ChildProcess._carry_out
    with rig(tmp_path, "SavingAside") as on:

        def began() -> list[str]:
            return [line[3] for line in on.lines() if line[2] == "began"]

        def late(process: ChildProcess, channel: Channel, call: TrackerCall) -> None:
            if isinstance(call, Save):
                wait_for(lambda: len(began()) == 2, "the next batch")
            carry_out(process, channel, call)

        monkeypatch.setattr(ChildProcess, "_carry_out", late)
        with running(on.consumer(site)):
            try:
                put(site, "first")
                wait_for(lambda: len(began()) == 1, "the first batch")
                put(site, "second")
                wait_for(lambda: len(began()) == 2, "the second batch")
                wait_for(lambda: site.saved()[0] != site.begin(), "the checkpoint")
                assert site.saved()[0] == began()[0]
            finally:
                (tmp_path / "go").touch()
