"""Worker processes with a processor on a real service: kills, hangs, drains, and what they report."""

import os
import signal
from pathlib import Path

import msgspec
import pytest

from loghub.contract.processor import ProcessorSubscription
from loghub.contract.worker import DRAIN_REQUESTED, OnFailure, WorkerStatus
from loghub.domain.subscription import SubscriptionType
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub.wire.subscriptions import SubscriptionSpec
from tests.loghub_worker.processing.processors import OUTPUT
from tests.loghub_worker.processing.worker_site import SHARDS, one_child, reason, site
from tests.loghub_worker.support import GROUP, LOGSTORE, Producer, processes_of
from tests.support import get, wait_until

MAX_MIB = 150  # of a worker and one process without rows in Arrow (docs/performance.md 5)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def pss_mib(pid: int) -> float:
    """The memory of a process, with its share of what several have in common."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


@pytest.mark.parametrize("rounds", [2, pytest.param(30, marks=pytest.mark.deep(minutes=6))])
def test_kills_of_the_worker_and_of_its_processes_lose_nothing(tmp_path: Path, rounds: int) -> None:
    with site(tmp_path) as on:
        kills = 0
        worker = on.start(processes=2)
        for round_ in range(rounds):
            seen = on.processed().total()
            on.producer.put(groups=60, logs=5)
            wait_until(lambda seen=seen: on.processed().total() > seen, "a batch after the last kill")  # type: ignore[misc]
            if round_ % 3 == 1:
                worker.kill_all()
                worker = on.start(processes=2)
            else:
                os.kill(one_child(worker), signal.SIGKILL)
            kills += 1
        on.wait_processed()
        processed = on.processed()
        assert set(processed) == set(on.producer.sent), "nothing is lost, and nothing else appears"
        repeated = processed.total() - on.producer.sent.total()
        print(f"\n{kills} kills: {on.producer.sent.total()} logs sent, {repeated} of them seen again")
        assert on.producer.sent.total() > repeated
        assert {line[1] for line in on.lines()} == {"-"}, "no process of processors has Spark"
        assert worker.end(signal.SIGTERM) == 0


def test_the_logs_of_a_shard_stay_in_order_and_its_children_end_with_the_worker(tmp_path: Path) -> None:
    with site(tmp_path) as on:
        on.producer.put(groups=200, logs=3)
        worker = on.start(processes=3)
        on.wait_processed()
        order = [(line[3], int(line[4].partition("-")[2])) for line in on.lines() if line[2] == "log"]
        for shard in {shard for shard, _ in order}:
            numbers = [number for of, number in order if of == shard]
            assert numbers == sorted(numbers)
        assert on.processed() == on.producer.sent
        started = processes_of(worker)
        assert len(started) == 4, started
        assert not [command for command, _ in started.values() if "java" in command]
        os.kill(worker.process.pid, signal.SIGKILL)
        wait_until(lambda: not processes_of(worker), "its processes to end with it")
        worker.wait()


def test_shards_move_between_workers_and_each_log_is_seen_once(tmp_path: Path) -> None:
    with site(tmp_path) as on:
        first = on.start("w-0", processes=2)
        on.producer.put(groups=40, logs=5)
        wait_until(lambda: len(first.shards) == SHARDS, "all shards in one worker")
        second = on.workers.start("w-1", on.config())
        wait_until(lambda: len(on.held()) == SHARDS and len(set(on.held().values())) == 2, "both workers")
        on.producer.put(groups=40, logs=5)
        first.drain_file.write_text(DRAIN_REQUESTED)
        wait_until(lambda: len(second.shards) == SHARDS, "all shards in the other worker")
        on.producer.put(groups=40, logs=5)
        on.wait_processed()
        assert on.processed() == on.producer.sent, "nothing is lost or repeated"
        assert (first.end(signal.SIGTERM), second.end(signal.SIGTERM)) == (0, 0)


def test_a_worker_waits_for_a_log_service_that_is_away(tmp_path: Path) -> None:
    with site(tmp_path) as on:
        on.producer.put(groups=10)
        on.service.kill9()
        worker = on.start()
        wait_until(lambda: reason(worker) == "EndpointUnreachable", "the reason")
        on.service.start()
        wait_until(lambda: worker.phase == "running", "the worker to join")
        on.wait_processed()
        assert on.processed() == on.producer.sent
        assert worker.end(signal.SIGTERM) == 0


def test_the_pod_contract_holds(tmp_path: Path) -> None:
    """Status, probes, metrics, the preStop hook that keeps the membership, and a drain that ends it."""
    with site(tmp_path, metrics=True) as on:
        on.producer.put(groups=40, logs=5)
        worker = on.start(processes=2)
        on.wait_processed()
        done = on.producer.sent.total()
        wait_until(
            lambda: (s := worker.status) is not None and sum(one.logs for one in s.shards) == done,
            "the logs in the status",
        )
        assert worker.status is not None
        assert worker.status.rows_written == done
        assert get(on.metrics_address, "/readyz") == (200, b"running \n")
        status = msgspec.json.decode(get(on.metrics_address, "/status")[1], type=WorkerStatus)
        assert {one.shard for one in status.shards} == set(range(SHARDS))
        assert [one.number for one in status.processes] == [0, 1]
        metrics = get(on.metrics_address, "/metrics")[1].decode()
        assert "loghub_worker_process_starts_total 2.0" in metrics
        assert "loghub_worker_batches_total" in metrics

        assert worker.drain() == 0, "the preStop hook"
        assert set(on.held().values()) == {"w-0"}, "a restart within the timeout moves no shard"
        assert [line[2] for line in on.lines()].count("shutdown") == SHARDS

        again = on.start(processes=1)
        wait_until(lambda: again.phase == "running" and len(again.shards) == SHARDS, "its shards again")
        on.producer.put(groups=40, logs=5)
        on.wait_processed()
        used = {pid: pss_mib(pid) for pid in (again.process.pid, one_child(again))}
        print(f"\nworker and process of processors: {used} MiB")
        assert sum(used.values()) < MAX_MIB
        again.drain_file.write_text(DRAIN_REQUESTED)
        wait_until(lambda: again.phase == "left", "the worker to leave")
        assert on.held() == {}
        assert again.process.poll() is None, "it waits to be stopped"
        assert again.end(signal.SIGTERM) == 0
        assert on.processed() == on.producer.sent


def test_a_worker_that_a_subscription_refuses_for_good_ends_with_the_reason(tmp_path: Path) -> None:
    with site(tmp_path) as on:
        on.client.create_subscription(LOGSTORE, GROUP, SubscriptionSpec(type=SubscriptionType.SHARED))
        worker = on.start(
            "wörker",
            factory="mine:Acknowledging",
            files={"mine.py": ACKNOWLEDGING},
            acknowledge="log",
            subscription=ProcessorSubscription(type=SubscriptionType.SHARED),
        )
        assert worker.wait() == 1
        assert worker.status is not None
        assert (worker.status.phase, worker.status.reason) == ("failed", "ParameterInvalid")


def test_a_processor_that_cannot_be_loaded_ends_the_worker_with_what_to_do(tmp_path: Path) -> None:
    with site(tmp_path) as on:
        files = {"counts.py": "from loghub_consumer import Processor\n\nclass Count(Processor:\n    pass\n"}
        worker = on.start(factory="counts:Count", files=files)
        assert worker.wait() == 1
        message = (worker.folder / "termination").read_text()
        assert message.startswith("InvalidPipeline: counts:Count: SyntaxError: ")
        assert on.held() == {}, "it never joined"
        status = worker.status
        assert status is not None
        assert (status.phase, status.reason) == ("failed", "InvalidPipeline")


def test_a_rejected_log_group_stops_its_shard_and_no_other(tmp_path: Path) -> None:
    with site(tmp_path) as on:
        keys = [one.begin_key for one in on.client.list_shards(LOGSTORE)]
        rejected = Producer(on.client)
        on_failure = OnFailure(policy="Stop", max_attempts=2)
        worker = on.start(processes=2, on_failure=on_failure, factory="mine:Picky", files={"mine.py": PICKY})
        rejected.put(groups=1, logs=1, hash_key=keys[2])
        for key in keys:
            on.producer.put(groups=5, hash_key=key)

        def others_are_done() -> bool:
            shards = on.client.group_status(LOGSTORE, GROUP).shards
            return {one.shard for one in shards if one.checkpoint == one.end_cursor} == {0, 1, 3}

        wait_until(others_are_done, "the other shards to be processed")
        wait_until(lambda: [one.state for one in worker.status.failing] == ["stopped"], "the shard to stop")  # type: ignore[union-attr]
        status = worker.status
        assert status is not None
        assert [(one.shard, one.reason, one.attempts) for one in status.failing] == [(2, "PipelineFailed", 2)]
        assert "ValueError: shard 2 is not for me (mine.py:6, in process)" in status.message
        assert worker.end(signal.SIGTERM) == 0


def test_a_processor_that_hangs_is_ended_and_seen_in_the_status(tmp_path: Path) -> None:
    """It keeps its whole process from running. The heartbeats go on, and the other process does."""
    with site(tmp_path) as on:
        keys = [one.begin_key for one in on.client.list_shards(LOGSTORE)]
        hanging = encode(LogGroup(logs=(Log(time=1_700_000_000, contents=(("id", "hang-1"),)),)))
        on.client.put_logs(LOGSTORE, hanging, hash_key=keys[0])
        on_failure = OnFailure(policy="Stop", max_attempts=1)
        worker = on.start(processes=2, on_failure=on_failure, batch_timeout_s=2.0)
        for key in keys[1:]:
            on.producer.put(groups=5, hash_key=key)

        def is_stopped() -> bool:
            status = worker.status
            found = [] if status is None else status.failing
            return [(one.shard, one.state, one.reason) for one in found] == [(0, "stopped", "BatchTimedOut")]

        wait_until(is_stopped, "the shard to stop")
        wait_until(lambda: set(on.processed()) == set(on.producer.sent), "the logs of the other shards")
        assert set(on.held().values()) == {"w-0"}, "the heartbeats went on"
        status = worker.status
        assert status is not None
        assert (status.phase, status.reason) == ("running", "BatchTimedOut")

        def is_started_again() -> bool:
            status = worker.status
            killed = [] if status is None else [one for one in status.processes if 0 in one.shards]
            return any(
                one.starts > 1 and one.message.startswith("killed by the worker: a call took longer")
                for one in killed
            )

        wait_until(is_started_again, "a new process, and why there is one")
        assert worker.end(signal.SIGTERM) == 0


PICKY = """\
from loghub_consumer import Processor

class Picky(Processor):
    def process(self, logs, tracker):
        if logs.shard == 2:
            raise ValueError("shard 2 is not for me")
        tracker.save()
"""


ACKNOWLEDGING = f"""
import os
from loghub_consumer import Processor

class Acknowledging(Processor):
    def process(self, logs, tracker):
        with open(os.environ[{OUTPUT!r}], "a") as out:
            for group in logs.groups:
                for log in group.logs:
                    out.write(f"{{os.getpid()}} - log {{logs.shard}} {{log.get('id')}}\\n")
        tracker.ack()
"""


def test_workers_of_a_subscription_lose_nothing_when_one_is_killed(
    tmp_path: Path,
) -> None:
    with site(tmp_path) as on:
        spec = SubscriptionSpec(type=SubscriptionType.SHARED)
        changes = {
            "factory": "mine:Acknowledging",
            "files": {"mine.py": ACKNOWLEDGING},
            "acknowledge": "log",
            "timeout_s": 3,
            "subscription": ProcessorSubscription(type=SubscriptionType.SHARED),
        }
        first = on.start(**changes)
        wait_until(lambda: reason(first) == "SubscriptionNotFound", "the reason")
        on.client.create_subscription(LOGSTORE, GROUP, spec)
        wait_until(lambda: len(first.shards) == SHARDS, "all shards in one worker")
        second = on.workers.start("w-1", on.config(**changes))
        wait_until(lambda: len(second.shards) == SHARDS, "and in the other one")
        on.producer.put(groups=100, logs=5)
        wait_until(lambda: on.processed().total() > 0, "the first logs")
        second.kill_all()
        on.producer.put(groups=100, logs=5)

        def backlog() -> int | None:
            return on.client.subscription_status(LOGSTORE, GROUP).backlog_logs

        wait_until(lambda: backlog() == 0, "all logs to be acknowledged")
        assert set(on.processed()) == set(on.producer.sent)
        first.drain_file.write_text(DRAIN_REQUESTED)
        wait_until(lambda: first.phase == "left", "the worker to leave")
        assert on.client.subscription_status(LOGSTORE, GROUP).consumers == ()
        assert first.end(signal.SIGTERM) == 0
