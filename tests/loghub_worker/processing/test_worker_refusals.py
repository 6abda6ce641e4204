"""Real workers whose processors refuse logs, on a real service: retry logstore, dead letter, and kills."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from loghub.contract.processor import ProcessorSubscription, RetryLogstore
from loghub.contract.worker import DeadLetterLogstore, OnFailure, WorkerConfig
from loghub.domain.subscription import SubscriptionType
from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub.wire.subscriptions import SubscriptionSpec
from tests.loghub_worker.processing.support import MODULE
from tests.loghub_worker.processing.worker_site import Site, one_child, reason, site
from tests.loghub_worker.support import GROUP, LOGSTORE, all_saved
from tests.support import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
RETRY, REJECTED = "retries", "rejected"


def put(on: Site, *ids: str) -> None:
    """Write a log group for each log, spread over the shards."""
    keys = [one.begin_key for one in on.client.list_shards(LOGSTORE)]
    for number, name in enumerate(ids):
        group = LogGroup(logs=(Log(time=1_700_000_000, contents=(("id", name),)),))
        on.client.put_logs(LOGSTORE, encode(group), hash_key=keys[number % len(keys)])


def config(on: Site, **changes: object) -> WorkerConfig:
    dead_letter = DeadLetterLogstore(project=on.client.project, logstore=REJECTED)
    settings: dict[str, object] = {
        "factory": f"{MODULE}:Refusing",
        "on_failure": OnFailure(policy="DeadLetter", max_attempts=2, dead_letter=dead_letter),
        "retry": RetryLogstore(logstore=RETRY, delays_s=(0.2, 0.4)),
        "redelivery_delay_s": 0.05,
        "processes": 2,
    }
    return on.config(**(settings | changes))  # type: ignore[arg-type]


def in_dead_letter(on: Site) -> list[str]:
    begin = on.client.get_cursor(REJECTED, 0, "begin")
    pulled = on.client.pull_logs(REJECTED, 0, cursor=begin, count=1000)
    groups = (loggroup.decode(one) for one in loggroup.split(pulled.body))
    return sorted(str(dict(log.contents)["id"], "utf-8") for one in groups for log in one.logs)  # type: ignore[arg-type]


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.deep(minutes=5))])
def test_kills_of_workers_and_processes_lose_no_refused_log(tmp_path: Path, rounds: int) -> None:
    """All that is refused forever is in the dead letter, and all else was taken."""
    with site(tmp_path) as on:
        for name in (RETRY, REJECTED):
            on.client.create_logstore(name, shards=1)
        taken, never = list[str](), list[str]()
        worker = on.workers.start("w-0", config(on))
        for round_ in range(rounds):
            taken += [f"good-{round_}-{n}" for n in range(20)] + [f"refuse-3-{round_}-{n}" for n in range(8)]
            never += [f"refuse-9-{round_}", f"reject-{round_}"]
            put(on, *taken[-28:], *never[-2:])
            last = [f"good-{round_}-{n}" for n in range(20)]
            wait_until(lambda last=last: on.processed().keys() & set(last) != set(), "the round")  # type: ignore[misc]
            if round_ % 2:
                worker.kill_all()
                worker = on.workers.start("w-0", config(on))
            else:
                os.kill(one_child(worker), signal.SIGKILL)
        wait_until(lambda: all_saved(on.client), "every shard to be saved at its end")
        wait_until(lambda: set(never) <= set(in_dead_letter(on)), "the dead letter")

        def accepted() -> set[str]:
            found = {(line[4], int(line[5])) for line in on.lines() if line[2] == "log"}
            return {name for name, count in found if not name.startswith("refuse-3") or count > 3}

        wait_until(lambda: set(taken) <= accepted(), "every log to be taken")
        assert set(in_dead_letter(on)) == set(never), "nothing else"
        repeats = Counter(in_dead_letter(on)) - Counter(never)
        print(
            f"\n{rounds} kills: {len(taken)} logs taken, {len(never)} dead-lettered,"
            f" {repeats.total()} of them twice"
        )
        assert worker.end(signal.SIGTERM) == 0


@pytest.mark.deep
def test_kills_of_workers_with_fan_out_lose_nothing(tmp_path: Path) -> None:
    with site(tmp_path) as on:
        sent: list[str] = []
        changes = {"factory": f"{MODULE}:fanned", "retry": None, "acknowledge": "log"}
        worker = on.workers.start("w-0", config(on, **changes, on_failure=OnFailure()))
        for round_ in range(20):
            sent += [f"{key}-{round_}-{n}" for n in range(10) for key in "abcdef"]
            put(on, *sent[-60:])
            last = sent[-1]
            wait_until(lambda last=last: any(line[4] == last for line in on.lines()), "the round")  # type: ignore[misc]
            if round_ % 2:
                worker.kill_all()
                worker = on.workers.start("w-0", config(on, **changes, on_failure=OnFailure()))
            else:
                os.kill(one_child(worker), signal.SIGKILL)
        wait_until(lambda: all_saved(on.client), "every shard to be saved at its end")
        handled = Counter(line[4] for line in on.lines() if line[2] == "log")
        assert set(handled) == set(sent)
        print(f"\n20 kills: {len(sent)} logs sent, {handled.total() - len(sent)} of them handled again")
        assert worker.end(signal.SIGTERM) == 0


def test_a_worker_waits_for_a_retry_logstore_that_does_not_exist_yet(tmp_path: Path) -> None:
    with site(tmp_path, metrics=True) as on:
        on.client.create_logstore(REJECTED, shards=1)
        put(on, "a", "refuse-3-b")
        worker = on.workers.start("w-0", config(on))
        wait_until(lambda: reason(worker) == "LogstoreNotFound", "the reason")
        assert worker.status is not None
        assert RETRY in worker.status.message
        on.client.create_logstore(RETRY, shards=1)
        wait_until(lambda: [n for _, n in counts(on, "refuse-3-b")] == [1, 2, 3, 4], "all deliveries")
        (group,) = on.client.list_groups(RETRY)
        assert (group.name, group.timeout_s) == (f"{GROUP}-FROM-{LOGSTORE}", config(on).timeout_s)
        assert worker.end(signal.SIGTERM) == 0


def counts(on: Site, name: str) -> list[tuple[str, int]]:
    return [(line[4], int(line[5])) for line in on.lines() if line[2] == "log" and line[4] == name]


def test_a_log_group_that_kills_the_whole_worker_is_isolated_by_its_journal(tmp_path: Path) -> None:
    """As when memory runs out: nothing but the files of the worker's state remembers the attempts."""
    with site(tmp_path) as on:
        skip = OnFailure(policy="Skip", max_attempts=1)
        files = {"mine.py": KILLING}
        put(on, *(f"a-{n}" for n in range(40)), "kill-1")
        starts = 0
        while not all_saved(on.client):
            worker = on.start(factory="mine:Killing", files=files, on_failure=skip)
            starts += 1
            wait_until(lambda: worker.process.poll() is not None or all_saved(on.client), "an end")  # noqa: B023
            assert starts < 10
        assert starts > 3, "three attempts alone at least"
        wait_until(lambda: [one.log_groups for one in worker.status.skipped] == [1], "the report")  # type: ignore[union-attr]
        assert worker.end(signal.SIGTERM) == 0


@pytest.mark.deep
@pytest.mark.parametrize("kind", [SubscriptionType.SHARED, SubscriptionType.FAILOVER])
def test_a_log_of_a_subscription_that_kills_the_whole_worker_is_found_by_its_journal(
    kind: SubscriptionType, tmp_path: Path
) -> None:
    with site(tmp_path) as on:
        on.client.create_subscription(LOGSTORE, GROUP, SubscriptionSpec(type=kind))
        put(on, *(f"a-{n}" for n in range(40)), "kill-1")

        def backlog() -> int | None:
            return on.client.subscription_status(LOGSTORE, GROUP).backlog_logs

        starts = 0
        while backlog():
            worker = on.start(
                factory="mine:Killing",
                files={"mine.py": KILLING.replace("tracker.save(persist=False)", "tracker.ack()")},
                on_failure=OnFailure(policy="Skip", max_attempts=1),
                subscription=ProcessorSubscription(type=kind),
                acknowledge="log",
                timeout_s=3,
            )
            starts += 1
            wait_until(lambda: worker.process.poll() is not None or not backlog(), "an end")  # noqa: B023
            assert starts < 10
        assert starts > 3, "three attempts alone at least"
        wait_until(lambda: [one.log_groups for one in worker.status.skipped] == [1], "the report")  # type: ignore[union-attr]
        assert worker.end(signal.SIGTERM) == 0


KILLING = """\
import os, signal, time
from loghub_consumer import Processor

class Killing(Processor):
    def process(self, logs, tracker):
        for group in logs.groups:
            for log in group.logs:
                if log.get("id").startswith("kill"):
                    os.kill(os.getppid(), signal.SIGKILL)
                    time.sleep(60)
        tracker.save(persist=False)
"""
