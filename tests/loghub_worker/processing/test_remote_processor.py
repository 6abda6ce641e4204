"""Processors in real processes: calls, checkpoints, failures, deaths."""

import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from loghub.contract.worker import DeadLetterFolder
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub_consumer.batch_plan import Range
from loghub_consumer.failure.handler import Journal
from loghub_consumer.failure.policy import WaitState
from tests.loghub_consumer.support import Site, running, wait_for
from tests.loghub_worker.processing.support import KeptProcesses, put, rig
from tests.loghub_worker.support import GUARD_S

pytestmark = pytest.mark.long


@pytest.mark.parametrize("factory", ["Recorder", "Asynchronous"])
def test_a_batch_is_processed_in_another_process_and_saved_here(
    tmp_path: Path, site: Site, factory: str
) -> None:
    site.prepare()
    put(site, "a", "b")
    with rig(tmp_path, factory) as on:
        with running(on.consumer(site)):
            wait_for(lambda: site.saved() == site.ends(), "the end")
        process, imports, *_ = on.lines()[0]
        assert (int(process) != os.getpid(), imports) == (True, "-"), "another process, without Spark"
        events = [line[2:] for line in on.lines()]
        assert events == [["initialize", "0"], ["log", "0", "a"], ["log", "0", "b"],
                          ["shutdown", "0", site.ends()[0]]]  # fmt: skip


def test_shards_are_spread_over_the_processes_and_stay_there(tmp_path: Path, site: Site) -> None:
    site.prepare(shards=4)
    with rig(tmp_path, processes=2) as on, running(on.consumer(site)):
        for round_ in range(3):
            for shard in range(4):
                put(site, f"{shard}-{round_}", shard=shard)
            wait_for(lambda: site.saved() == site.ends(), "the end")
        places = {(line[3], line[0]) for line in on.lines() if line[2] == "log"}
        assert len(places) == 4, "each shard in one process"
        assert on.ids(1) == ["1-0", "1-1", "1-2"]
        assert [len(one.shards) for one in on.pool.progress()] == [2, 2]


def test_what_a_save_raises_here_is_raised_there(tmp_path: Path, site: Site) -> None:
    site.prepare()
    put(site, "a")
    with rig(tmp_path, "Late") as on:
        with running(consumer := on.consumer(site)):
            wait_for(lambda: "began" in [line[2] for line in on.lines()], "the batch")
            consumer.abandon()
            wait_for(lambda: consumer.assignment() == (), "the shard to be lost")
            (tmp_path / "go").touch()
            wait_for(lambda: "raised" in [line[2] for line in on.lines()], "the error")
        words = next(line[3:] for line in on.lines() if line[2] == "raised")
        assert words[:6] == ["ShardLostError", "shard", "0", "is", "no", "longer"]


def test_one_rejected_log_group_is_skipped_and_all_others_are_processed(
    tmp_path: Path, site: Site, kept: KeptProcesses
) -> None:
    site.prepare()
    groups = [f"g{n}" for n in range(20)]
    put(site, *groups[:7], "raise-1", *groups[7:])
    on = kept.rig(tmp_path)
    with running(on.consumer(site, "Skip")):
        wait_for(lambda: site.saved() == site.ends(), "the end")
        assert on.ids() == groups
        assert on.skipped() == {0: 1}
        assert on.failing() == []


def test_whatever_a_processor_raises_or_returns_its_process_goes_on(tmp_path: Path, site: Site) -> None:
    """No call waits for its timeout."""
    odd = ["cancelled", "interrupted", "undecoded", "textless", "bytes", "delay", "reason", "place"]
    site.prepare()
    with rig(tmp_path, "Odd") as on, running(on.consumer(site, "Skip")):
        for number, word in enumerate(odd):
            put(site, f"{word}-1")
            wait_for(lambda done=number + 1: on.skipped() == {0: done}, word)  # type: ignore[misc]
            put(site, f"good-{number}")
            wait_for(lambda: site.saved() == site.ends(), "the end")
        assert on.ids() == [f"good-{number}" for number in range(len(odd))]
        assert [one.starts for one in on.pool.progress()] == [1]


@pytest.mark.parametrize(
    ("word", "starts"), [("close", 2), pytest.param("write", 2, marks=pytest.mark.deep), ("fork", 1)]
)
def test_a_process_that_loses_the_worker_is_replaced_at_once(
    tmp_path: Path, site: Site, word: str, starts: int
) -> None:
    """And its forks are not taken for it."""
    site.prepare()
    put(site, f"{word}-1", "a")
    with rig(tmp_path, "Unreachable") as on, running(on.consumer(site)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
        assert on.ids()[-2:] == [f"{word}-1", "a"]
        assert ([one.starts for one in on.pool.progress()], on.counts.timed_out) == ([starts], 0)


def test_the_limit_of_skips_in_a_row_counts_from_the_last_success(
    tmp_path: Path, site: Site, kept: KeptProcesses
) -> None:
    site.prepare()
    put(site, "raise-1", "a", "raise-2", "b")
    on = kept.rig(tmp_path)
    with running(consumer := on.consumer(site, "Skip", max_consecutive=1)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
        assert on.ids() == ["a", "b"]
        put(site, "raise-3", "raise-4")
        wait_for(lambda: [one.state for one in on.failing()] == [WaitState.LIMITED], "the limit")
        assert (
            "limited after 1 attempts: ValueError: cannot take raise-4"
            in consumer.failure_report().error.message
        )


def test_a_skipped_log_group_at_the_end_moves_the_checkpoint_only_if_all_before_it_is_saved(
    tmp_path: Path, site: Site, kept: KeptProcesses
) -> None:
    site.prepare(shards=2)
    put(site, "a", "raise-1")
    put(site, "unsaved", "raise-2", shard=1)
    on = kept.rig(tmp_path)
    with running(on.consumer(site, "Skip")):
        wait_for(lambda: on.skipped() == {0: 1, 1: 1}, "both to be skipped")
        wait_for(lambda: site.saved().get(0) == site.ends()[0], "the end of the first shard")
    assert on.ids(1) == ["unsaved"]
    assert site.saved()[1] in ("", site.begin(1)), "the processor has not saved what came before"


def test_a_dead_letter_gets_the_rejected_log_group(tmp_path: Path, site: Site, kept: KeptProcesses) -> None:
    site.prepare()
    put(site, "a", "raise-1", "b")
    folder = DeadLetterFolder(path=str(tmp_path / "rejected"))
    on = kept.rig(tmp_path)
    with running(on.consumer(site, "DeadLetter", dead_letter=folder)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
        assert on.ids() == ["a", "b"]
        (file,) = (tmp_path / "rejected").rglob("*.json")
        found = json.loads(file.read_text())
        assert (found["cursor"], found["attempts"]) == (encode_cursor(decode_cursor(site.begin()) + 1), 1)
        assert (found["reason"], found["message"][:31]) == (
            "PipelineFailed",
            "ValueError: cannot take raise-1",
        )


def test_a_stopped_shard_is_reported_and_its_code_is_called_no_more(
    tmp_path: Path, site: Site, kept: KeptProcesses
) -> None:
    site.prepare()
    put(site, "a", "raise-1", "b")
    on = kept.rig(tmp_path)
    with running(consumer := on.consumer(site, "Stop")):
        wait_for(lambda: consumer.paused() == (0,), "the shard to stop")
        (failing,) = on.failing()
        assert (failing.state, failing.attempts) == (WaitState.STOPPED, 1)
        assert failing.begin == decode_cursor(site.begin()) + 1
        assert "ValueError: cannot take raise-1 (processors.py:" in failing.failure.message
        assert on.ids() == ["a"]
        consumer.resume([0])
        wait_for(lambda: consumer.paused() == (0,) and on.failing()[0].attempts == 2, "one more attempt")


def test_with_the_policy_retry_everything_before_the_log_group_is_processed(
    tmp_path: Path, site: Site, kept: KeptProcesses
) -> None:
    site.prepare()
    groups = [f"g{n}" for n in range(8)]
    put(site, *groups, "raise-1", "behind")
    on = kept.rig(tmp_path)
    with running(on.consumer(site)):
        wait_for(lambda: [one.state for one in on.failing()] == [WaitState.RETRYING], "the log group")
        eighth = encode_cursor(decode_cursor(site.begin()) + 8)
        wait_for(lambda: site.saved().get(0) == eighth, "the others")
        assert on.ids() == groups


def test_an_outage_is_never_skipped(tmp_path: Path, site: Site, kept: KeptProcesses) -> None:
    site.prepare()
    put(site, "outage-1")
    on = kept.rig(tmp_path)
    with running(on.consumer(site, "Skip")):
        wait_for(lambda: [one.attempts for one in on.failing()] == [2], "another attempt")
        (failing,) = on.failing()
        assert failing.state is WaitState.RETRYING
        assert failing.failure.message.startswith("ConnectionError: the database does not answer")


def test_a_killed_process_is_replaced_and_its_logs_come_again(tmp_path: Path, site: Site) -> None:
    site.prepare()
    put(site, "a")
    with rig(tmp_path) as on, running(on.consumer(site)):
        wait_for(lambda: site.saved() == site.ends(), "the first log")
        (before,) = on.pool.progress()
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        wait_for(lambda: on.pool.progress()[0].starts == 2, "another process")
        put(site, "b")
        wait_for(lambda: site.saved() == site.ends(), "the second log")
        assert on.ids() == ["a", "b"]
        assert [line[2] for line in on.lines()] == ["initialize", "log", "initialize", "log"]
        assert on.pool.progress()[0].message == "killed by signal 9, perhaps because memory ran out"


def test_what_a_processor_has_not_saved_comes_again_when_its_process_was_replaced(
    tmp_path: Path, site: Site
) -> None:
    """It may have gathered several batches in its memory. What it has saved does not come again."""
    site.prepare()
    put(site, "a", "flush")
    with rig(tmp_path, "Gathering") as on, running(on.consumer(site, max_bytes=1)):

        def gathered() -> list[str]:
            return [line[4] for line in on.lines() if line[2] == "gathered"]

        wait_for(lambda: site.saved() == site.ends(), "the first part")
        put(site, "b", "c")
        wait_for(lambda: gathered() == ["a", "flush", "b", "c"], "the rest")
        (process,) = on.pool.progress()
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: gathered() == ["a", "flush", "b", "c", "b", "c"], "both again")
        put(site, "flush")
        wait_for(lambda: site.saved() == site.ends(), "the end")
        assert on.ids() == ["a", "flush", "b", "c", "flush"]


def test_a_shard_moves_to_a_process_that_others_have_left_and_loses_nothing(
    tmp_path: Path, site: Site
) -> None:
    site.prepare(shards=2)
    with rig(tmp_path, "Gathering", processes=2) as on:
        for session, shard in ((-1, 1), (-2, 0), (-3, 1)):
            on.pool.take(session, shard)
        on.pool.give_back(-2)  # so that both shards come to the first process
        with running(on.consumer(site, max_bytes=1)):
            put(site, "a", "b")
            put(site, "x", shard=1)
            wait_for(lambda: len([line for line in on.lines() if line[2] == "gathered"]) == 3, "all of them")
            assert [one.shards for one in on.pool.progress()] == [[0, 1], [1, 1]]
            for session in (-1, -3):
                on.pool.give_back(session)
            put(site, "flush")
            put(site, "flush", shard=1)
            wait_for(lambda: site.saved() == site.ends(), "the end")
            assert sorted(one.shards for one in on.pool.progress()) == [[0], [1]]
        assert (on.ids(0), on.ids(1)) == (["a", "b", "flush"], ["x", "flush"])
        assert sum(line[2] == "shutdown" for line in on.lines()) == 3, "one of them for the move"


@pytest.mark.parametrize(
    ("command", "processes", "ending"),
    [
        pytest.param("exit-1", 1, "exit status 3", marks=pytest.mark.deep),
        ("all-1", 2, "killed by signal 9"),
        # Two calls are running when the time of one of them is over, and neither can end. Calls of the other
        # shard take less time, also on a busy machine.
        ("hang-1", 1, "killed by the worker: a call took longer than 4 s"),
    ],
)
def test_a_log_group_that_ends_processes_is_not_blamed_on_another_shard(
    tmp_path: Path, site: Site, command: str, processes: int, ending: str
) -> None:
    """It is skipped after three attempts alone. Each log group of the second shard is alone in its batch, and
    is processed whenever the process ends, so it would be skipped as well."""
    site.prepare(shards=2)
    slow = [f"slow-{n}" for n in range(8)]
    put(site, "a", command, "b")
    put(site, *slow, shard=1)
    timeout_s = 4.0 if command == "hang-1" else 60.0
    with (
        rig(tmp_path, processes=processes, timeout_s=timeout_s) as on,
        running(on.consumer(site, "Skip", max_bytes=1)),
    ):
        wait_for(lambda: site.saved() == site.ends(), "the end", guard_s=GUARD_S)  # of several processes
        assert on.ids(0) == ["a", "b"]
        assert on.skipped() == {0: 1}
        assert on.pool.progress()[0].message.startswith(ending)
        assert sorted(set(on.ids(1))) == slow, "nothing of the other shard is missing"


def test_attempts_survive_a_worker_that_is_killed(tmp_path: Path, site: Site) -> None:
    """What the journal of a killed worker says counts, though its checkpoints are far behind."""
    site.prepare()
    begin = decode_cursor(site.begin())
    put(site, *(f"g{n}" for n in range(9)), "exit-1", "b")
    last = begin + 9
    file = tmp_path / "state" / "attempts-0.json"
    file.parent.mkdir()
    file.write_bytes(msgspec.json.encode(Journal(running=(Range(0, last, last + 1),))))
    with rig(tmp_path) as on:
        consumer = on.consumer(site, "Skip")
        with running(consumer):
            wait_for(lambda: site.saved() == site.ends(), "the end", guard_s=GUARD_S)
        totals = consumer.failure_report().totals[0]
        assert (totals.failed_attempts, totals.skipped) == (3, 1), "one of them in the earlier process"
        assert on.ids() == [*(f"g{n}" for n in range(9)), "b"], "no other batch has failed"
    assert list((tmp_path / "state").iterdir()) == [], "a worker that ends in order leaves nothing"


def test_a_call_that_hangs_ends_with_its_process_and_harms_no_other_process(
    tmp_path: Path, site: Site
) -> None:
    """It holds the interpreter's lock, so nothing in its process runs any more."""
    site.prepare(shards=2)
    put(site, "first", shard=1)
    with rig(tmp_path, processes=2, timeout_s=10.0) as on, running(consumer := on.consumer(site, "Stop")):
        wait_for(lambda: on.ids(1) == ["first"], "the other shard's process")
        put(site, "hang-1")
        wait_for(lambda: len(on.counts.running_since_s) == 1, "the call")
        (hung,) = (one.pid for one in on.pool.progress() if 0 in one.shards)
        put(site, "a", shard=1)
        wait_for(lambda: on.ids(1) == ["first", "a"], "the other shard")
        assert on.counts.timed_out == 0, "it still hangs"
        wait_for(lambda: consumer.paused() == (0,), "the shard to stop")
        message = on.failing()[0].failure.message
        assert message == "process took longer than 10 s, and its process was killed"
        assert on.counts.timed_out == 1
        wait_for(lambda: hung not in [one.pid for one in on.pool.progress()], "another process")


def test_processes_that_the_code_starts_end_with_its_process(tmp_path: Path, site: Site) -> None:
    site.prepare()
    put(site, "a")
    with rig(tmp_path, "Helped") as on, running(on.consumer(site)):
        wait_for(lambda: site.saved() == site.ends(), "the first log")
        (killed,) = on.pool.progress()
        assert killed.pid is not None
        os.kill(killed.pid, signal.SIGKILL)
        put(site, "b")
        wait_for(lambda: site.saved() == site.ends(), "the second log")
    helpers = [int(line[3]) for line in on.lines() if line[2] == "helper"]
    assert len(helpers) == 2, "of the process that was killed, and of the one that was closed"
    wait_for(lambda: not any(map(is_alive, helpers)), "the end of all")


def is_alive(pid: int) -> bool:
    """Whether it runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_factory_that_returns_something_else_is_an_error_of_initialize(tmp_path: Path, site: Site) -> None:
    site.prepare()
    with rig(tmp_path, "not_a_processor") as on, running(consumer := on.consumer(site)):
        wait_for(lambda: consumer.errors() != (), "the error")
        (error,) = consumer.errors()
        assert error.reason == "ProcessorFailed"
        assert "the factory returned object, not a loghub_consumer" in error.message


def test_what_cannot_be_loaded_is_fatal(tmp_path: Path) -> None:
    with rig(tmp_path, "Missing") as on:
        on.pool.start_first()
        wait_for(lambda: on.pool.failure is not None, "the failure")
        assert on.pool.failure is not None
        assert on.pool.failure.reason == "InvalidPipeline"
        assert "has no attribute 'Missing'" in on.pool.failure.message
