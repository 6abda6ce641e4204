"""Fan-out by key on a real service: order by key, the checkpoint, and what fails."""

import asyncio
import signal
import threading
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from loghub.wire import loggroup
from loghub.wire.cursor import decode
from loghub_consumer import (
    Consumer,
    DeadLetterLogstore,
    OnFailure,
    ReceivedLog,
    ReceivedLogGroup,
    UnavailableError,
    fan_out,
)
from tests.loghub_consumer.support import PROJECT, Site, programs, released, running, wait_for

KEYS = 5
BY_LOG = {"acknowledge": "log", "checkpoint_interval_s": 0.0}


def number(log: ReceivedLog) -> int:
    return int(str(log.get("id")).rpartition("-")[2])


def key(log: ReceivedLog, _: ReceivedLogGroup) -> str:
    return str(number(log) % KEYS)


class Handled:
    """What was handled, by key in order, and on which threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.ids: dict[str, list[str]] = defaultdict(list)
        self.threads: dict[str, set[str]] = defaultdict(set)

    def add(self, log: ReceivedLog, group: ReceivedLogGroup) -> None:
        with self._lock:
            self.ids[key(log, group)].append(str(log.get("id")))
            self.threads[key(log, group)].add(threading.current_thread().name)

    def count(self) -> int:
        with self._lock:
            return sum(map(len, self.ids.values()))


def test_logs_of_a_key_are_handled_in_order_on_one_thread_and_saved(
    site: Site,
) -> None:
    site.prepare()
    ids = site.put(30, logs=10)
    handled = Handled()
    factory = fan_out(handled.add, key=key, threads=3)
    with running(Consumer(site.settings(**BY_LOG), factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    for name, found in handled.ids.items():
        assert found == [one for one in ids if int(one.rpartition("-")[2]) % KEYS == int(name)]
        assert len(handled.threads[name]) == 1
    assert len(set().union(*handled.threads.values())) > 1


@pytest.mark.long
def test_one_slow_key_keeps_the_checkpoint_and_not_the_other_threads(site: Site) -> None:
    site.prepare()
    site.put(10, logs=KEYS)
    begin = decode(site.begin())
    handled, may_go = Handled(), threading.Event()

    async def handle(log: ReceivedLog, group: ReceivedLogGroup) -> None:
        await asyncio.sleep(0)
        if number(log) == 2 * KEYS:
            may_go.wait(60)
        handled.add(log, group)

    factory = fan_out(handle, key=key, threads=64)
    slow = "0"
    with running(Consumer(site.settings(**BY_LOG), factory)), released(may_go):
        wait_for(lambda: handled.count() == 8 * (KEYS - 1) + 2 * KEYS, "the other keys")
        wait_for(lambda: decode(site.saved()[0]) == begin + 2, "the checkpoint to stop at the slow log")
        assert handled.ids[slow] == ["0-0", f"0-{KEYS}"]
        may_go.set()
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert handled.count() == 10 * KEYS


@pytest.mark.long
def test_a_log_that_fails_is_tried_again_in_its_place_and_then_settled(site: Site) -> None:
    site.prepare()
    site.client.create_logstore(f"{site.logstore}-rejected", shards=1)
    ids = site.put(4, logs=KEYS)
    handled = Handled()
    failures = Counter({ids[0]: 2, ids[7]: 99})

    def handle(log: ReceivedLog, group: ReceivedLogGroup) -> None:
        name = str(log.get("id"))
        if failures[name] > 0:
            failures[name] -= 1
            if name == ids[0]:
                raise ExceptionGroup("unhandled errors in a TaskGroup", [UnavailableError("no")])
            raise ValueError("no")
        handled.add(log, group)

    dead_letter = DeadLetterLogstore(project=PROJECT, logstore=f"{site.logstore}-rejected")
    policy = OnFailure(policy="DeadLetter", max_attempts=5, dead_letter=dead_letter)
    factory = fan_out(handle, key=key, threads=2, max_attempts=2)
    with running(Consumer(site.settings(on_failure=policy, **BY_LOG), factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert failures[ids[7]] == 97
    left = [one for one in ids if one != ids[7]]
    by_key = {
        name: [i for i in left if int(i.rpartition("-")[2]) % KEYS == int(name)] for name in handled.ids
    }
    assert handled.ids == by_key, "in order"
    name = f"{site.logstore}-rejected"
    pulled = site.client.pull_logs(name, 0, cursor=site.client.get_cursor(name, 0, "begin"), count=9)
    (group,) = (loggroup.decode(one) for one in loggroup.split(pulled.body))
    assert [dict(log.contents)["id"] for log in group.logs] == [ids[7].encode()]
    tags = {str(name): str(value) for name, value in group.tags}
    assert tags["dead_letter_reason"] == "Rejected"
    assert tags["dead_letter_message"] == "ValueError: no"


@pytest.mark.long
def test_an_end_waits_for_what_is_handled_and_passes_nothing_else(site: Site) -> None:
    site.prepare()
    ids = site.put(6, logs=1)
    began, may_end = threading.Event(), threading.Event()
    handled = Handled()

    def handle(log: ReceivedLog, group: ReceivedLogGroup) -> None:
        began.set()
        may_end.wait(60)
        handled.add(log, group)

    consumer = Consumer(site.settings(**BY_LOG), fan_out(handle, key=lambda log, group: "", threads=2))
    with running(consumer) as run, released(may_end):
        assert began.wait(60)
        assert not consumer.shutdown(timeout_s=0.3), "it is being handled"
        may_end.set()
        run.join()
    assert handled.ids["0"] == ids[:1]
    assert decode(site.saved()[0]) == decode(site.begin()) + 1


def test_settings_that_cannot_work_with_fan_out_are_refused(site: Site) -> None:
    def handle(log: ReceivedLog, group: ReceivedLogGroup) -> None:
        pass

    with pytest.raises(ValueError, match="acknowledge='log'"):
        Consumer(site.settings(), fan_out(handle, key=key, threads=2))
    with pytest.raises(ValueError, match="leave out ack_timeout_s"):
        Consumer(site.settings(ack_timeout_s=5, **BY_LOG), fan_out(handle, key=key, threads=2))
    with pytest.raises(ValueError, match="threads is 0"):
        fan_out(handle, key=key, threads=0)


@pytest.mark.long
@pytest.mark.deep
def test_after_kills_each_log_was_handled_and_each_key_in_order(site: Site, tmp_path: Path) -> None:
    site.prepare(timeout_s=3)
    ids = site.put(200, logs=5)
    handled: list[list[str]] = []
    settings = BY_LOG | {"read": "fan out", "max_bytes": 500}
    with programs() as start:
        for attempt in range(2):
            program = start(site, f"c-{attempt}", **settings)
            wait_for(lambda program=program: len(program.of("handled")) > 150, "some logs")  # type: ignore[misc]
            program.end(signal.SIGKILL)
            handled.append([one["id"] for one in program.of("handled")])
        last = start(site, "c-2", **settings)
        wait_for(lambda: site.saved() == site.ends(), "the end")
        assert last.end(signal.SIGTERM) == 0
        handled.append([one["id"] for one in last.of("handled")])
    seen = Counter(one for run in handled for one in run)
    assert set(seen) == set(ids), "nothing is lost"
    for run in handled:
        for name in range(KEYS):
            numbers = [n for one in run if (n := int(one.rpartition("-")[2])) % KEYS == name]
            assert numbers == sorted(set(numbers)), "in order in each process"
    print(f"sent {len(ids)}, handled {seen.total()}, repeated {seen.total() - len(ids)}")
