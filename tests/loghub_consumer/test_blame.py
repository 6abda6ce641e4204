"""A failure is laid on the log that caused it, and what is settled is kept: in virtual time."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loghub.wire.loggroup import LogGroup, encode
from loghub_consumer import (
    Consumer,
    DeadLetterFolder,
    LogBatch,
    LogPlace,
    OnFailure,
    Processor,
    ReceivedLog,
    ReceivedLogGroup,
    RetryLogstore,
    Tracker,
    UnavailableError,
    fan_out,
)
from loghub_consumer.failure.dead_letter import FolderTarget, Rejection
from tests.loghub_consumer.virtual import World, world
from tests.loghub_consumer.virtual_worker import in_worker

LOGSTORE = "access"
BY_LOG = {"acknowledge": "log"}
SKIP = OnFailure(policy="Skip", max_attempts=2, max_consecutive=100)


@pytest.fixture
def virtual() -> Iterator[World]:
    with world() as one:
        one.make_logstore(LOGSTORE)
        yield one


def id_of(log: ReceivedLog) -> str:
    return str(log.get("id"))


class Handler(Processor):
    """Calls the test's function for each log; `handled` counts what it returned for."""

    def __init__(self, handle: Any, handled: Counter[str]) -> None:
        self._handle = handle
        self._handled = handled

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            for log in group.logs:
                self._handle(log, tracker)
                self._handled[id_of(log)] += 1
        tracker.save()


def files(folder: Path) -> list[tuple[list[str], str]]:
    """The ids and the message of each dead letter."""
    found = [json.loads(path.read_text()) for path in folder.rglob("*.json")]
    return sorted(
        ([value for log in one["logs"] for name, value in log["contents"] if name == "id"], one["message"])
        for one in found
    )


# -- which log has failed


@pytest.mark.parametrize("settings", [BY_LOG, {}], ids=["by log", "by batch, when it comes again"])
@pytest.mark.parametrize("sizes", [[1] * 12, [12], [5, 7]], ids=["log groups", "one log group", "two"])
def test_of_several_logs_only_those_that_fail_alone_are_settled(
    virtual: World, sizes: list[int], settings: dict[str, Any]
) -> None:
    ids = iter(f"log-{number:02}" for number in range(12))
    for size in sizes:
        virtual.put(LOGSTORE, [next(ids) for _ in range(size)])
    bad, handled = {"log-03", "log-08"}, Counter[str]()

    class Refusing(Handler):
        def process(self, logs: LogBatch, tracker: Tracker) -> None:
            if not settings and logs.delivery == 1:
                tracker.nack()
            else:
                super().process(logs, tracker)

    def handle(log: ReceivedLog, tracker: Tracker) -> None:
        if id_of(log) in bad:
            raise ValueError(id_of(log))
        if settings:
            tracker.ack(log)

    program = virtual.start(
        lambda: Consumer(
            virtual.settings(LOGSTORE, on_failure=SKIP, **settings), lambda: Refusing(handle, handled)
        )
    )
    virtual.until(lambda: virtual.is_saved(LOGSTORE), "the end")
    assert set(handled) == {f"log-{number:02}" for number in range(12)} - bad
    totals = program.call(lambda consumer: consumer.failure_report().totals)
    assert totals[0].skipped == 2
    program.end()


def test_a_log_group_without_logs_holds_up_neither_the_checkpoint_nor_the_search_for_a_bad_log(
    virtual: World,
) -> None:
    """By log nothing could acknowledge it. SLS may send one; PutLogs of our service stores none."""
    store, empty = virtual.client._store(LOGSTORE), encode(LogGroup(logs=(), topic="empty"))
    store.append(empty, logs=0, hash_key=None)
    virtual.put(LOGSTORE, ["bad"])
    virtual.put(LOGSTORE, ["good"])
    store.append(empty, logs=0, hash_key=None)
    handled = Counter[str]()

    class Late(Processor):
        """Raises once all others are acknowledged."""

        def process(self, logs: LogBatch, tracker: Tracker) -> None:
            ids = {id_of(log): log for group in logs.groups for log in group.logs}
            for name in ids.keys() - {"bad"}:
                tracker.ack(ids[name])
            handled.update(list(ids))
            if "bad" in ids:
                raise ValueError("bad")

    program = virtual.start(
        lambda: Consumer(virtual.settings(LOGSTORE, on_failure=SKIP, **BY_LOG), lambda: Late())
    )
    virtual.until(lambda: virtual.is_saved(LOGSTORE), "the end")
    assert handled["good"] == 1
    totals = program.call(lambda consumer: consumer.failure_report().totals)
    assert totals[0].skipped == 1
    program.end()


def test_attempts_during_an_outage_do_not_count_afterwards(virtual: World) -> None:
    """The log then has as many as any other."""
    virtual.put(LOGSTORE, ["one"])
    failures: list[Exception] = [ValueError("bad luck"), *(UnavailableError("away") for _ in range(9))]
    handled = Counter[str]()

    def handle(log: ReceivedLog, tracker: Tracker) -> None:
        if failures:
            raise failures.pop()
        tracker.ack(log)

    program = virtual.start(
        lambda: Consumer(
            virtual.settings(LOGSTORE, on_failure=SKIP, **BY_LOG), lambda: Handler(handle, handled)
        )
    )
    virtual.until(lambda: virtual.is_saved(LOGSTORE), "the end")
    assert handled == Counter(["one"])
    program.end()


def test_a_log_group_of_which_only_some_logs_came_stands_for_these(virtual: World) -> None:
    virtual.put(LOGSTORE, ["now", "later"])
    handled = Counter[str]()

    class ByGroup(Processor):
        def process(self, logs: LogBatch, tracker: Tracker) -> None:
            for group in logs.groups:
                names = [id_of(log) for log in group.logs]
                handled.update(names)
                if len(names) == 2:
                    now, later = group.logs
                    tracker.nack(now)
                    tracker.nack(later, delay_s=30)
                else:
                    tracker.ack(group)

    program = virtual.start(lambda: Consumer(virtual.settings(LOGSTORE, **BY_LOG), ByGroup))
    virtual.until(lambda: virtual.is_saved(LOGSTORE), "the end")
    assert handled == Counter({"now": 2, "later": 2})
    program.end()


@pytest.mark.parametrize("wrong", ["raises", "returns no text"])
def test_a_log_without_a_key_harms_no_other(virtual: World, wrong: str) -> None:
    for number in range(6):
        virtual.put(LOGSTORE, [f"{number}-{index}" for index in range(5)])
    handled = Counter[str]()

    def key(log: ReceivedLog, _: object) -> Any:
        if id_of(log) == "3-2":
            return {}["user"] if wrong == "raises" else None
        return id_of(log)

    factory = fan_out(lambda log, _: handled.update([id_of(log)]), key=key, threads=2)
    program = virtual.start(lambda: Consumer(virtual.settings(LOGSTORE, on_failure=SKIP, **BY_LOG), factory))
    virtual.until(lambda: virtual.is_saved(LOGSTORE), "the end")
    assert handled == Counter(f"{n}-{i}" for n in range(6) for i in range(5) if (n, i) != (3, 2))
    program.end()


def test_an_outage_of_what_the_key_needs_settles_nothing_and_hands_nothing_over_twice(virtual: World) -> None:
    virtual.put(LOGSTORE, [f"log-{index}" for index in range(5)])
    handled, failures = Counter[str](), [ConnectionError("away")] * 5

    def key(log: ReceivedLog, _: object) -> str:
        if id_of(log) == "log-3" and failures:
            raise failures.pop()
        return id_of(log)

    def handle(log: ReceivedLog, _: object) -> None:
        virtual.sleep(3)
        handled.update([id_of(log)])

    factory = fan_out(handle, key=key, threads=2)
    program = virtual.start(lambda: Consumer(virtual.settings(LOGSTORE, on_failure=SKIP, **BY_LOG), factory))
    virtual.until(lambda: virtual.is_saved(LOGSTORE), "the end")
    assert handled == Counter(f"log-{index}" for index in range(5))
    program.end()


# -- what is settled is kept


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
def test_logs_of_one_log_group_have_dead_letters_of_their_own(
    virtual: World, tmp_path: Path, waits: bool
) -> None:
    """Also two that are equal."""
    virtual.make_logstore("waiting", has_group=False)
    virtual.put(LOGSTORE, ["a", "twin", "b", "twin"])
    reasons = iter(("second", "first"))  # others of a log group are refused for other reasons

    def handle(log: ReceivedLog, tracker: Tracker) -> None:
        if id_of(log) == "twin":
            (tracker.nack if waits else tracker.reject)(log, reason=f"the {next(reasons, 'last')}")

    folder = DeadLetterFolder(path=str(tmp_path))
    changes: dict[str, Any] = {
        "on_failure": OnFailure(policy="DeadLetter", max_attempts=1, dead_letter=folder),
        "retry": RetryLogstore(logstore="waiting", delays_s=(5,)) if waits else None,
    }
    program = virtual.start(
        lambda: Consumer(virtual.settings(LOGSTORE, **changes), lambda: Handler(handle, Counter()))
    )
    virtual.until(lambda: virtual.is_saved(LOGSTORE) and len(files(tmp_path)) == 2, "both files")
    assert [ids for ids, _ in files(tmp_path)] == [["twin"], ["twin"]]
    program.end()


# -- threads of fan_out


@pytest.mark.parametrize("where", ["logstore", "retry logstore"])
def test_handle_may_shut_its_consumer_down_and_does_not_wait_for_itself(virtual: World, where: str) -> None:
    virtual.make_logstore("waiting", has_group=False)
    virtual.put(LOGSTORE, ["one"])
    waits = where == "retry logstore"
    handled: list[str] = []

    def key(_: ReceivedLog, group: ReceivedLogGroup) -> str:
        if waits and not any(name.startswith("retry_") for name, _ in group.tags):
            raise ValueError("later")
        return ""

    def handle(log: ReceivedLog, group: ReceivedLogGroup) -> None:
        began_s = virtual.clock.now_s
        assert not program.consumer.shutdown()
        assert virtual.clock.now_s == began_s
        handled.append(id_of(log))

    retry = RetryLogstore(logstore="waiting", delays_s=(5,)) if waits else None
    factory = fan_out(handle, key=key, threads=1)
    settings = virtual.settings(
        LOGSTORE, on_failure=OnFailure(policy="Skip", max_attempts=1), retry=retry, **BY_LOG
    )
    program = virtual.start(lambda: Consumer(settings, factory))
    virtual.until(lambda: program.has_ended, "the end")
    assert handled == ["one"]
    assert virtual.is_saved(LOGSTORE)
    program.end()


# -- the checkpoint


class Saving(Processor):
    """Saves a part of its first batch, then raises until it may go on."""

    def __init__(self, part: int, may_go: list[bool]) -> None:
        self._part = part
        self._may_go = may_go

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        if not self._may_go:
            if logs.begin_cursor == tracker.get():
                tracker.save(cursor=logs.groups[self._part].cursor)
            raise ValueError("the second half fails")
        tracker.save()

    def shutdown(self, tracker: Tracker) -> None:
        tracker.save()


@pytest.mark.parametrize("then", ["the consumer ends", "commit", "commit and the rest"])
@pytest.mark.parametrize("policy", ["Retry", "Skip"])
@pytest.mark.parametrize("part", [3, 5])
def test_what_a_batch_has_saved_before_it_failed_stays_saved(
    virtual: World, then: str, policy: Any, part: int
) -> None:
    cursors = [virtual.put(LOGSTORE, [str(number)]) for number in range(6)]
    may_go: list[bool] = []
    settings = virtual.settings(LOGSTORE, on_failure=OnFailure(policy=policy, max_attempts=1000))
    program = virtual.start(lambda: Consumer(settings, lambda: Saving(part, may_go)))
    virtual.until(lambda: virtual.saved(LOGSTORE) == {0: cursors[part]}, "the first part")
    virtual.pass_time(5)
    if then != "the consumer ends":
        program.call(lambda consumer: consumer.commit())
        assert virtual.saved(LOGSTORE) == {0: cursors[part]}
    if then == "commit and the rest":
        may_go.append(True)
        virtual.until(lambda: virtual.is_saved(LOGSTORE), "the rest")
    saved = virtual.saved(LOGSTORE)
    program.end()
    assert virtual.saved(LOGSTORE) == saved
    assert virtual.moved_back() == []


def test_a_position_that_is_sought_counts_more_than_what_was_saved(virtual: World) -> None:
    begin, *_, last = (virtual.put(LOGSTORE, [str(number)]) for number in range(6))
    program = virtual.start(lambda: Consumer(virtual.settings(LOGSTORE), lambda: Saving(5, [])))
    virtual.until(lambda: virtual.saved(LOGSTORE) == {0: last}, "all but the last")
    program.call(lambda consumer: (consumer.pause([0]), consumer.seek(0, "begin"), consumer.commit()))
    assert virtual.saved(LOGSTORE) == {0: begin}
    program.end()
    assert virtual.saved(LOGSTORE) == {0: begin}


@pytest.mark.parametrize("place", ["program", "worker"])
def test_what_ends_a_thread_of_fan_out_ends_a_program_and_costs_no_other_log(
    virtual: World, place: str, tmp_path: Path
) -> None:
    """Also if no further log comes. A worker goes on, and only this log counts as failed."""
    virtual.put(LOGSTORE, [f"log-{number}" for number in range(6)])
    handled = Counter[str]()

    def handle(log: ReceivedLog, _: object) -> None:
        if id_of(log) == "log-3":
            raise SystemExit(3)
        handled[id_of(log)] += 1

    factory = fan_out(handle, key=lambda log, group: "", threads=1)
    settings = virtual.settings(LOGSTORE, on_failure=SKIP, **BY_LOG)
    if place == "program":
        program = virtual.start(lambda: Consumer(settings, factory))
        virtual.until(lambda: program.has_ended, "the end")
        assert isinstance(program.error, SystemExit)
        return
    program = virtual.start(lambda: in_worker(settings, factory, tmp_path, virtual.clock))
    virtual.until(lambda: virtual.is_saved(LOGSTORE), "the end")
    assert handled == Counter(f"log-{number}" for number in range(6) if number != 3)
    program.end()


def test_what_is_acknowledged_while_another_one_is_settled_does_not_come_again(
    virtual: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursors = [virtual.put(LOGSTORE, [name]) for name in ("nacked", "rejected")]
    write, trackers, came = FolderTarget.write, [], Counter[str]()

    def slowly(target: FolderTarget, log_group: bytes, rejection: Rejection) -> None:
        virtual.sleep(5)
        write(target, log_group, rejection)

    monkeypatch.setattr(FolderTarget, "write", slowly)

    def handle(log: ReceivedLog, tracker: Tracker) -> None:
        trackers.append(tracker)
        if id_of(log) == "rejected":
            tracker.reject(log)
        else:
            tracker.nack(log, delay_s=0)

    folder = DeadLetterFolder(path=str(tmp_path))
    policy = OnFailure(policy="DeadLetter", max_attempts=5, dead_letter=folder)
    settings = virtual.settings(LOGSTORE, on_failure=policy, max_logs=2, max_wait_s=60.0, **BY_LOG)
    program = virtual.start(lambda: Consumer(settings, lambda: Handler(handle, came)))
    virtual.until(lambda: came.total() == 2, "both logs")
    virtual.pass_time(1)
    program.call(lambda _: (trackers[0].ack(LogPlace(cursors[0])),))
    virtual.until(lambda: virtual.is_saved(LOGSTORE), "the end")
    assert came == Counter(["nacked", "rejected"])
    assert program.call(lambda consumer: consumer.errors()) == ()
    assert [ids for ids, _ in files(tmp_path)] == [["rejected"]]
    program.end()
