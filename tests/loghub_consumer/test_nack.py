"""Logs that are refused or not acknowledged, on a real service: what comes again, and what is saved."""

import signal
import threading
from collections import Counter
from typing import Any

import pytest

from loghub.wire.cursor import decode, encode
from loghub_consumer import Consumer, LogBatch, LogPlace, ReceivedLog, Tracker
from tests.loghub_consumer.support import (
    RecordingListener,
    Seen,
    Site,
    ids_of,
    programs,
    released,
    running,
    wait_for,
)

QUICK = {"redelivery_delay_s": 0.05, "max_redelivery_delay_s": 0.2}


def logs_in(batch: LogBatch) -> list[ReceivedLog]:
    return [log for group in batch.groups for log in group.logs]


class Refusing:
    """Refuses the logs with these ids so many times each; saves after each batch, and notes what it saw."""

    def __init__(self, times: dict[str, int], **nack: Any) -> None:
        self.left = dict(times)
        self.deliveries: dict[str, list[int]] = {}
        self._nack = nack

    def __call__(self, logs: LogBatch, tracker: Tracker) -> None:
        for log in logs_in(logs):
            name = str(log.get("id"))
            self.deliveries.setdefault(name, []).append(logs.delivery)
            if self.left.get(name):
                self.left[name] -= 1
                tracker.nack(log, **self._nack)
        tracker.save()


def test_single_logs_are_refused_and_come_again_with_a_count_while_the_shard_goes_on(site: Site) -> None:
    site.prepare()
    ids = site.put(4, logs=3)
    refusing = Refusing({ids[1]: 2, ids[4]: 1, ids[5]: 1})
    seen = Seen(refusing)
    with running(Consumer(site.settings(**QUICK), seen.factory)):
        wait_for(lambda: site.saved() == site.ends(), "all to be acknowledged")
    expected = {name: [1] for name in ids} | {ids[1]: [1, 2, 3], ids[4]: [1, 2], ids[5]: [1, 2]}
    assert refusing.deliveries == expected
    firsts = list(dict.fromkeys(seen.ids()))
    assert firsts == ids, "in order the first time"


@pytest.mark.long
def test_the_checkpoint_waits_at_the_first_log_group_of_which_a_log_is_refused(site: Site) -> None:
    site.prepare()
    ids = site.put(6, logs=2)
    begin = decode(site.begin())
    may_end = threading.Event()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            for log in group.logs:
                if log.get("id") == ids[5] and not may_end.is_set():
                    tracker.nack(log, delay_s=0.05)
        tracker.save()
        if any(log.get("id") == ids[-1] for log in logs_in(logs)):
            saved.append(decode(tracker.get()) - begin)

    saved: list[int] = []
    seen = Seen(process)
    consumer = Consumer(site.settings(max_bytes=1), seen.factory)
    with running(consumer), released(may_end):
        wait_for(lambda: seen.ids().count(ids[5]) > 3 and bool(saved), "several deliveries")
        consumer.commit()
        assert saved == [2]
        assert site.saved() == {0: encode(begin + 2)}, "neither by save nor by commit"
        assert consumer.position(0) == site.ends()[0], "the shard has gone on"
        may_end.set()
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert seen.ids().count(ids[4]) == 1, "the other log of its group was acknowledged"


@pytest.mark.long
def test_what_was_refused_comes_again_after_the_shard_has_moved(site: Site) -> None:
    site.prepare(shards=2)
    ids = {shard: site.put(4, shard=shard) for shard in (0, 1)}
    refused = {ids[0][2], ids[1][2]}

    def process(logs: LogBatch, tracker: Tracker) -> None:
        for log in logs_in(logs):
            if log.get("id") in refused:
                tracker.nack(log, delay_s=3600)
        tracker.save(persist=False)

    listener, seen, others = RecordingListener(), Seen(process), Seen()
    with running(Consumer(site.settings("c-0"), seen.factory, listener)):
        wait_for(lambda: len(seen.ids()) == site.sent.total(), "the logs")
        with running(Consumer(site.settings("c-1"), others.factory)):
            wait_for(lambda: bool(others.ids()), "the shard to move")
            (moved,) = listener.shards("revoked")
            wait_for(lambda: site.saved()[moved] == site.ends()[moved], "its end")
            assert others.ids() == ids[moved][2:], "from the log group of the refused log on"
    assert Counter(seen.ids()) == site.sent, "the delay is an hour"


def test_nothing_is_refused_that_a_save_has_passed_or_that_does_not_exist(site: Site) -> None:
    site.prepare()
    site.put(2)
    wrong: list[str] = []

    def attempt(tracker: Tracker, *logs: Any, **options: Any) -> None:
        try:
            tracker.nack(*logs, **options)
        except ValueError as error:
            wrong.append(str(error))

    def process(logs: LogBatch, tracker: Tracker) -> None:
        if decode(logs.begin_cursor) > decode(site.begin()):
            attempt(tracker, LogPlace(logs.begin - 1))
        attempt(tracker, LogPlace(logs.begin, 2))
        attempt(tracker, delay_s=-1)
        tracker.save()
        attempt(tracker)

    with running(Consumer(site.settings(max_bytes=1), Seen(process).factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    texts = ["the log group has 2 logs", "the delay is -1", "call nack before save"]
    assert len(wrong) == 7
    assert "is acknowledged, since process has returned" in wrong[3]
    for text, message in zip(texts * 2, wrong[:3] + wrong[4:], strict=True):
        assert text in message


@pytest.mark.long
def test_an_exception_keeps_the_order_the_first_time_and_refuses_what_came_again(site: Site) -> None:
    site.prepare()
    ids = site.put(3, logs=1)
    plan = iter(["refuse and raise", "refuse", "raise", ""])

    def process(logs: LogBatch, tracker: Tracker) -> None:
        what = next(plan, "")
        if "refuse" in what:
            tracker.nack(logs.groups[0])
        if "raise" in what:
            raise ValueError("no")
        tracker.save()

    seen = Seen(process)
    consumer = Consumer(site.settings(max_logs=3, max_wait_s=60.0, **QUICK), seen.factory)
    with running(consumer):
        wait_for(lambda: site.saved() == site.ends(), "the end")
        assert consumer.errors() == ()
    assert [names for _, names in seen.batches] == [ids, ids, ids[:1], ids[:1]]


@pytest.mark.long
def test_by_log_only_an_acknowledgement_moves_the_checkpoint_in_any_order_and_thread(site: Site) -> None:
    site.prepare()
    ids = site.put(4, logs=2)
    begin = decode(site.begin())
    held: dict[str, tuple[ReceivedLog, Tracker]] = {}

    def process(logs: LogBatch, tracker: Tracker) -> None:
        held.update({str(log.get("id")): (log, tracker) for log in logs_in(logs)})

    def ack(*names: str) -> None:
        for name in names:
            log, tracker = held[name]
            tracker.ack(log)

    settings = site.settings(acknowledge="log", checkpoint_interval_s=0.0)
    with running(Consumer(settings, Seen(process).factory)):
        wait_for(lambda: set(held) == set(ids), "the logs")
        ack(ids[7], ids[6], ids[2], ids[0])
        held[ids[0]][1].save()
        assert site.saved() == {0: encode(begin)}, "a log of the first log group is left"
        ack(ids[1])
        wait_for(lambda: site.saved() == {0: encode(begin + 1)}, "the first log group")
        ack(ids[3], ids[4], ids[5])
        wait_for(lambda: site.saved() == site.ends(), "all of them")


@pytest.mark.long
def test_by_log_what_is_not_acknowledged_in_time_comes_again(site: Site) -> None:
    site.prepare()
    ids = site.put(3, logs=1)

    def process(logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            if ids_of(logs) != [ids[1]] and logs.delivery == 1 and group.place.cursor == first + 1:
                continue
            tracker.ack(group)
        if logs.delivery > 1:
            again.append((logs.delivery, ids_of(logs)))

    first = decode(site.begin())
    again: list[tuple[int, list[str]]] = []
    settings = site.settings(acknowledge="log", ack_timeout_s=0.3, checkpoint_interval_s=0.0, max_wait_s=1.0)
    with running(Consumer(settings, Seen(process).factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert again == [(2, [ids[1]])]


@pytest.mark.parametrize("acknowledge", ["batch", "log"])
def test_all_logs_up_to_one_are_refused_but_for_what_is_acknowledged(site: Site, acknowledge: str) -> None:
    site.prepare()
    ids = site.put(4, logs=2)
    again: list[str] = []

    def process(logs: LogBatch, tracker: Tracker) -> None:
        if logs.delivery > 1:
            again.extend(ids_of(logs))
        elif acknowledge == "log":
            tracker.ack(logs.groups[1], logs_in(logs)[0])
        if logs.delivery == 1:
            tracker.nack_up_to(logs_in(logs)[4])
        if acknowledge == "batch":
            tracker.save()
        else:
            tracker.ack(*logs_in(logs)[5 if logs.delivery == 1 else 0 :])

    whole = {"max_wait_s": 60.0, "max_logs": 8}
    settings = site.settings(acknowledge=acknowledge, checkpoint_interval_s=0.0, **whole, **QUICK)
    with running(Consumer(settings, Seen(process).factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert again == (ids[:5] if acknowledge == "batch" else [ids[1], ids[4]])


@pytest.mark.long
def test_by_log_what_an_exception_left_unacknowledged_comes_again_one_by_one(site: Site) -> None:
    site.prepare()
    ids = site.put(3, logs=1)

    def process(logs: LogBatch, tracker: Tracker) -> None:
        tracker.ack(logs.groups[0])
        if len(logs.groups) > 1:
            raise ValueError("no")

    seen = Seen(process)
    whole = {"max_wait_s": 60.0, "max_logs": 3}
    settings = site.settings(acknowledge="log", checkpoint_interval_s=0.0, **whole, **QUICK)
    with running(Consumer(settings, seen.factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert [names for _, names in seen.batches] == [ids, ids[1:2], ids[2:]]


def test_what_is_not_acknowledged_is_bounded_in_log_groups_and_bytes(site: Site) -> None:
    site.prepare()
    ids = site.put(30, logs=1)
    seen = Seen(lambda logs, tracker: trackers.append(tracker))
    trackers: list[Tracker] = []
    settings = site.settings(acknowledge="log", max_unacknowledged=8, checkpoint_interval_s=0.0)
    with running(consumer := Consumer(settings, seen.factory)):
        wait_for(lambda: len(seen.ids()) == 8, "the bound")
        first = decode(site.begin())
        trackers[0].ack(LogPlace(first + 1))
        assert consumer.position(0) == encode(first + 8), "the first one is left"
        trackers[0].ack(LogPlace(first))
        wait_for(lambda: len(seen.ids()) == 10, "room for two more")
        assert seen.ids() == ids[:10]


@pytest.mark.long
@pytest.mark.parametrize("how", ["seek", "return"])
def test_a_seek_or_a_returned_cursor_discards_what_is_read_again_and_keeps_what_is_before(
    site: Site, how: str
) -> None:
    site.prepare()
    ids = site.put(6, logs=1)
    begin = decode(site.begin())
    moved = threading.Event()

    def process(logs: LogBatch, tracker: Tracker) -> str | None:
        last = ids[-1] in ids_of(logs)
        for group in logs.groups:
            if group.place.cursor in (begin + 1, begin + 4) and not moved.is_set():
                tracker.nack(group, delay_s=1.5 if group.place.cursor == begin + 1 else 10)
        if last and not moved.is_set():
            moved.set()
            if how == "return":
                return encode(begin + 3)
            consumer.seek(0, encode(begin + 3))
        elif moved.is_set():
            tracker.save()
        return None

    seen = Seen(process)
    consumer = Consumer(site.settings(max_bytes=1), seen.factory)
    with running(consumer):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    again = ids[1]  # on a busy machine, also before the others are read
    assert [one for one in seen.ids() if one != again] == [one for one in [*ids, *ids[3:]] if one != again]
    assert seen.ids().count(again) >= 2


@pytest.mark.long
def test_after_kills_whatever_was_not_acknowledged_comes_again(site: Site) -> None:
    site.prepare(shards=2, timeout_s=3)
    for shard in (0, 1):
        site.put(60, shard=shard)
    seen: Counter[str] = Counter()
    acknowledged: set[str] = set()
    settings = {"acknowledge": "log", "read": "ack", "max_bytes": 200, "checkpoint_interval_s": 0.0} | QUICK
    with programs() as start:
        for attempt in range(3):
            program = start(site, f"c-{attempt % 2}", **settings)
            wait_for(lambda program=program: len(program.of("acked")) > 20, "some logs")  # type: ignore[misc]
            program.end(signal.SIGKILL)
            seen += program.ids()
            acknowledged |= {one["id"] for one in program.of("acked")}
        last = start(site, "c-2", **settings)
        wait_for(lambda: site.saved() == site.ends(), "the end")
        assert last.end(signal.SIGTERM) == 0
        acknowledged |= {one["id"] for one in last.of("acked")}
        seen += last.ids()
    assert acknowledged == set(site.sent), "nothing is passed that was not acknowledged"
    print(f"sent {len(site.sent)}, delivered {seen.total()}, repeated {seen.total() - len(site.sent)}")


def test_what_was_refused_before_a_save_is_refused_again_with_all_up_to_a_log(site: Site) -> None:
    site.prepare()
    ids = site.put(4, logs=1)
    refused: list[str] = []

    def process(logs: LogBatch, tracker: Tracker) -> None:
        if len(logs.groups) == 4 and not refused:
            tracker.nack(logs.groups[1], delay_s=1000)
            tracker.save(cursor=logs.groups[2].cursor)
            tracker.nack_up_to(logs.groups[3], delay_s=0.05)
            refused.extend(ids[1:])
        tracker.save()

    seen = Seen(process)
    with running(Consumer(site.settings(max_wait_s=0.3, max_logs=4), seen.factory)) as run:
        wait_for(lambda: site.saved() == site.ends(), "all to be acknowledged")
        assert run.consumer.errors() == ()
    assert seen.ids() == ids + refused


def test_a_time_that_is_far_away_does_not_end_the_consumer(site: Site) -> None:
    site.prepare()
    ids = site.put(2, logs=1)
    seen = Seen(lambda logs, tracker: tracker.nack(logs.groups[0], delay_s=1e10))
    with running(Consumer(site.settings(max_bytes=1), seen.factory)):
        wait_for(lambda: seen.ids() == ids, "both")
        ids += site.put(1, logs=1)
        wait_for(lambda: seen.ids() == ids, "what follows")
