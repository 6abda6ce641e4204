"""Logs that wait in a retry logstore, on a real service: when they come again, and where they end."""

import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from loghub.contract.processor import retry_group
from loghub.domain.subscription import SubscriptionType
from loghub.wire import loggroup, names
from loghub.wire.cursor import decode
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub.wire.subscriptions import SubscriptionSpec
from loghub_consumer import (
    Consumer,
    ConsumerSettings,
    DeadLetterFolder,
    DeadLetterLogstore,
    LogBatch,
    OnFailure,
    RetryLogstore,
    SubscriptionOptions,
    Tracker,
)
from loghub_consumer.batch import select_logs
from loghub_consumer.failure.dead_letter import TAG_PREFIX
from loghub_consumer.failure.retry_logstore import Origin, RetryMark, mark_of
from tests.loghub_consumer.support import GROUP, PROJECT, Seen, Site, running, wait_for
from tests.loghub_consumer.virtual import world

DELAYS_S = (0.4, 0.8)


@pytest.fixture
def waits(site: Site) -> Site:
    """A site with a retry logstore and a dead letter."""
    site.prepare()
    for name in ("retry", "rejected"):
        site.client.create_logstore(f"{site.logstore}-{name}", shards=1)
    return site


def settings(site: Site, name: str = "c-0", **changes: object) -> ConsumerSettings:
    dead_letter = DeadLetterLogstore(project=PROJECT, logstore=f"{site.logstore}-rejected")
    defaults: dict[str, object] = {
        "on_failure": OnFailure(policy="DeadLetter", max_attempts=2, dead_letter=dead_letter),
        "retry": RetryLogstore(logstore=f"{site.logstore}-retry", delays_s=DELAYS_S),
        "redelivery_delay_s": 0.05,
        "checkpoint_interval_s": 0.0,
    }
    return site.settings(name, **(defaults | changes))


def end(site: Site, name: str) -> tuple[str, str]:
    """The end of a further logstore, and its checkpoint in the group; "" before its consumer has begun."""
    logstore, name_of_group = f"{site.logstore}-{name}", retry_group(GROUP, site.logstore)
    has_group = any(group.name == name_of_group for group in site.client.list_groups(logstore))
    found = site.client.get_checkpoints(logstore, name_of_group) if has_group else ()
    checkpoints = {one.shard: one.cursor for one in found}
    return site.client.get_cursor(logstore, 0, "end"), checkpoints.get(0, "")


def is_done(site: Site) -> bool:
    retry_end, saved = end(site, "retry")
    return site.saved() == site.ends() and retry_end == saved


class Refusing:
    """Refuses each log as often as said; notes when and for which time each came."""

    def __init__(self, times: dict[str, int]) -> None:
        self._times = times
        self._lock = threading.Lock()
        self.came: dict[str, list[tuple[int, float]]] = {}

    def __call__(self, logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            for log in group.logs:
                name = str(log.get("id"))
                with self._lock:
                    self.came.setdefault(name, []).append((logs.delivery, time.monotonic()))
                    times = len(self.came[name])
                if times <= self._times.get(name, 0):
                    tracker.nack(log, reason=f"time {times}")
        tracker.save()

    def deliveries(self, name: str) -> list[int]:
        return [delivery for delivery, _ in self.came[name]]


@pytest.mark.long
def test_logs_wait_in_the_retry_logstore_and_end_in_the_dead_letter(waits: Site) -> None:
    ids = waits.put(3, logs=2)
    begin = decode(waits.begin())
    refusing = Refusing({ids[1]: 2, ids[2]: 3, ids[5]: 99})
    with running(consumer := Consumer(settings(waits), Seen(refusing).factory)):
        wait_for(lambda: len(refusing.came.get(ids[5], [])) == 4 and is_done(waits), "all to be settled")
        assert consumer.errors() == ()
    expected = {ids[1]: [1, 2, 3], ids[2]: [1, 2, 3, 4], ids[5]: [1, 2, 3, 4]}
    assert {name: refusing.deliveries(name) for name in ids} == {name: [1] for name in ids} | expected
    for name in expected:
        times = [at for _, at in refusing.came[name]]
        for (before, after), delay_s in zip(pairwise(times[1:]), DELAYS_S, strict=False):
            assert after - before >= delay_s - 0.002, "the time is written in milliseconds"
    (group,) = in_dead_letter(waits)
    tags = {str(name): str(value) for name, value in group.tags}
    assert not any(name.startswith("retry_") for name in tags)
    found = {name.removeprefix(TAG_PREFIX): value for name, value in tags.items()}
    assert (found["logstore"], found["shard"], decode(found["cursor"])) == (waits.logstore, "0", begin + 2)
    assert (found["attempts"], found["retries"], found["message"]) == ("4", "2", "time 4")
    assert [log.contents for log in group.logs] == [(("id", ids[5].encode()),)]


def in_dead_letter(site: Site) -> list[LogGroup]:
    name = f"{site.logstore}-rejected"
    pulled = site.client.pull_logs(name, 0, cursor=site.client.get_cursor(name, 0, "begin"), count=100)
    return [loggroup.decode(group) for group in loggroup.split(pulled.body)]


@pytest.mark.long
def test_what_waits_comes_to_the_next_consumer_and_is_not_saved_before(waits: Site) -> None:
    ids = waits.put(2, logs=1)
    refusing = Refusing({ids[0]: 2})
    long = RetryLogstore(logstore=f"{waits.logstore}-retry", delays_s=(3600.0,))
    with running(Consumer(settings(waits, retry=long), Seen(refusing).factory)):
        wait_for(lambda: waits.saved() == waits.ends(), "the refused log to be put away")
        wait_for(lambda: end(waits, "retry")[1] != "", "the retry logstore to be opened")
    retry_end, saved = end(waits, "retry")
    assert decode(saved) == decode(retry_end) - 1, "what waits is not passed"
    assert refusing.deliveries(ids[0]) == [1, 2]
    pulled = waits.client.pull_logs(f"{waits.logstore}-retry", 0, cursor=saved, count=1)
    (raw,) = loggroup.split(pulled.body)
    mark = mark_of(bytes(raw))
    assert mark is not None
    assert (mark.delay_s, mark.attempts, mark.retries) == (3600.0, 2, 1)


@pytest.mark.long
def test_what_others_wrote_into_the_retry_logstore_is_handed_over_at_once(waits: Site) -> None:
    group = LogGroup(logs=(Log(time=1, contents=(("id", "foreign"),)),), tags=(("retry_delay_ms", "many"),))
    waits.client.put_logs(f"{waits.logstore}-retry", encode(group))
    seen = Seen()
    with running(Consumer(settings(waits), seen.factory)):
        wait_for(lambda: seen.ids() == ["foreign"] and is_done(waits), "the log")


ODD_MARKS: dict[str, str] = {
    "delay_ms": "9" * 400,
    "not_before_ms": "9" * 400,
    "retries": "-1000000000",
    "attempts": "-7",
    "shard": "-1",
    "project": "/etc",
    "logstore": "../..",
    "consumer_group": "..",
}


def mark(**parts: str) -> tuple[tuple[str, str], ...]:
    """The tags of a log group that waits."""
    usual = {
        "project": PROJECT,
        "logstore": "access",
        "consumer_group": GROUP,
        "shard": "0",
        "cursor": encode_cursor(5),
        "attempts": "2",
        "retries": "1",
        "not_before_ms": "0",
        "delay_ms": "400",
    }
    return tuple((f"retry_{name}", value) for name, value in (usual | parts).items())


@pytest.mark.parametrize("part", ODD_MARKS)
def test_a_mark_that_no_consumer_writes_is_none(part: str) -> None:
    log = Log(time=1, contents=(("id", "x"),))
    assert mark_of(encode(LogGroup(logs=(log,), tags=mark()))) is not None
    assert mark_of(encode(LogGroup(logs=(log,), tags=mark(kind="subscription")))) is not None
    assert mark_of(encode(LogGroup(logs=(log,), tags=mark(**{part: ODD_MARKS[part]})))) is None


@pytest.mark.long
def test_odd_marks_neither_end_a_consumer_nor_lead_out_of_the_folder_of_the_dead_letter(
    waits: Site, tmp_path: Path
) -> None:
    """Every client of the retry logstore can write marks of any content."""
    odd = ODD_MARKS | {"project": str(tmp_path / "elsewhere")}
    for part, value in odd.items():
        logs = (Log(time=1, contents=(("id", part),)),)
        group = LogGroup(logs=logs, tags=mark(**{"logstore": waits.logstore, part: value}))
        waits.client.put_logs(f"{waits.logstore}-retry", encode(group))
    folder = DeadLetterFolder(path=str(tmp_path / "rejected"))
    on_failure = OnFailure(policy="DeadLetter", max_attempts=1, max_consecutive=100, dead_letter=folder)
    short = RetryLogstore(logstore=f"{waits.logstore}-retry", delays_s=(0.05,))
    refusing = Refusing(dict.fromkeys(odd, 99))
    with running(Consumer(settings(waits, on_failure=on_failure, retry=short), Seen(refusing).factory)):
        wait_for(lambda: is_done(waits), "all to be settled")
    inside = tmp_path / "rejected" / PROJECT / f"{waits.logstore}-retry" / retry_group(GROUP, waits.logstore)
    written = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert len(written) == len(odd)
    assert {path.parent for path in written} == {inside}


@pytest.mark.long
def test_logs_that_wait_are_settled_however_many_of_them_fail_in_a_row(waits: Site) -> None:
    """Nothing but logs that have failed is there, so that tells nothing of the processor."""
    ids = [f"refused-{number}" for number in range(3)]
    for number, one in enumerate(ids):
        logs = (Log(time=1, contents=(("id", one),)),)
        tags = mark(logstore=waits.logstore, cursor=encode_cursor(number), delay_ms="0")
        waits.client.put_logs(f"{waits.logstore}-retry", encode(LogGroup(logs=logs, tags=tags)))
    dead_letter = DeadLetterLogstore(project=PROJECT, logstore=f"{waits.logstore}-rejected")
    on_failure = OnFailure(policy="DeadLetter", max_attempts=1, max_consecutive=1, dead_letter=dead_letter)
    once = RetryLogstore(logstore=f"{waits.logstore}-retry", delays_s=(0.05,))
    refusing = Refusing(dict.fromkeys(ids, 99))
    with running(Consumer(settings(waits, on_failure=on_failure, retry=once), Seen(refusing).factory)):
        wait_for(lambda: is_done(waits), "all to be settled")
    found = [log.contents for group in in_dead_letter(waits) for log in group.logs]
    assert sorted(found) == [(("id", one.encode()),) for one in ids]


def test_logs_that_wait_for_another_group_are_passed_over(waits: Site) -> None:
    """Two groups were given one retry logstore: each reads it, and must not process the other's logs."""
    retry = f"{waits.logstore}-retry"
    for owner, logstore in (("others", waits.logstore), (GROUP, "others"), (GROUP, waits.logstore)):
        logs = (Log(time=1, contents=(("id", f"{owner} of {logstore}"),)),)
        tags = mark(consumer_group=owner, logstore=logstore)
        waits.client.put_logs(retry, encode(LogGroup(logs=logs, tags=tags)))
    seen = Seen()
    with running(Consumer(settings(waits), seen.factory)):
        wait_for(lambda: is_done(waits), "all to be settled")
    assert seen.ids() == [f"{GROUP} of {waits.logstore}"]


def test_groups_of_two_logstores_share_their_name_and_a_retry_logstore(waits: Site) -> None:
    """As those of two objects may. In one group, the consumer that gets the shard of the retry
    logstore would pass over what the other one has to read."""
    other = f"{waits.logstore}-other"
    waits.client.create_logstore(other, shards=1)
    (group,) = (one for one in waits.client.list_groups(waits.logstore) if one.name == GROUP)
    waits.client.create_group(other, group)
    for logstore in (waits.logstore, other):
        for number in range(10):
            log = Log(time=1, contents=(("id", f"{logstore} {number}"),))
            waits.client.put_logs(logstore, encode(LogGroup(logs=(log,))))
    refusing = {name: Refusing({f"{name} {n}": 2 for n in range(10)}) for name in (waits.logstore, other)}
    with ExitStack() as stack:
        for number, (logstore, processor) in enumerate(refusing.items()):
            changed = settings(waits, f"c-{number}", logstore=logstore)
            stack.enter_context(running(Consumer(changed, Seen(processor).factory)))
        wait_for(
            lambda: all(
                len(one.came) == 10 and min(map(len, one.came.values())) == 3 for one in refusing.values()
            ),
            "each log to come again from the retry logstore",
        )
    for logstore, processor in refusing.items():
        assert {name: processor.deliveries(name) for name in processor.came} == {
            f"{logstore} {number}": [1, 2, 3] for number in range(10)
        }


@pytest.mark.parametrize("seed", range(2))
def test_a_group_and_a_subscription_share_their_name_and_a_retry_logstore(seed: int) -> None:
    """Each of them has refused each log of the logstore, and gets all of its own back and no other one."""
    with world(seed) as one:
        one.make_logstore("access")
        one.make_logstore("waiting", has_group=False)
        one.client.create_subscription("access", GROUP, SubscriptionSpec(type=SubscriptionType.SHARED))
        ids = [f"{number}" for number in range(8)]
        for name in ids:
            one.put("access", [name])
        usual = one.settings(
            "access",
            on_failure=OnFailure(policy="Skip", max_attempts=1),
            retry=RetryLogstore(logstore="waiting", delays_s=(1.0, 2.0)),
        )
        shared = SubscriptionOptions(type=SubscriptionType.SHARED)
        readers = {
            "group": usual,
            "subscription": replace(usual, consumer="c-1", acknowledge="log", subscription=shared),
        }
        refusing = {name: Refusing(dict.fromkeys(ids, 2)) for name in readers}
        programs = [
            one.start(partial(Consumer, readers[name], Seen(refusing[name]).factory), name)
            for name in readers
        ]
        one.until(
            lambda: all(
                len(each.came) == len(ids) and min(map(len, each.came.values())) == 3
                for each in refusing.values()
            ),
            "each log from the retry logstore",
        )
        for program in programs:
            program.end()
    for each in refusing.values():
        assert {name: each.deliveries(name) for name in each.came} == {name: [1, 2, 3] for name in ids}


def test_names_of_groups_in_a_retry_logstore_are_valid_and_all_different() -> None:
    pairs = [("a", "b"), ("a", "b-c"), ("a-FROM-b", "c"), ("a", "c"), ("g" * 128, "b"), ("g" * 128, "b2")]
    found = [retry_group(*pair) for pair in (*pairs, ("g" * 127, "b"), ("g" * 120, "bb"), ("g", "l" * 80))]
    assert found[0] == "a-FROM-b"
    found += [
        retry_group(*pair, is_subscription=True)
        for pair in (*pairs, ("a-OF-b", "c"), ("a.b", "c"), ("." * 128, "c"), ("." * 127, "c"))
    ]
    assert len(set(found)) == len(found)
    assert all(names.CONSUMER_GROUP.allows(name) for name in found)


def test_a_retry_logstore_that_is_deleted_and_created_again_is_read_again(waits: Site) -> None:
    retry = f"{waits.logstore}-retry"
    first, last = waits.put(2, logs=1)
    refusing = Refusing({first: 2, "again": 2})
    consumer = Consumer(settings(waits, heartbeat_interval_s=0.2), Seen(refusing).factory)
    with running(consumer):
        wait_for(lambda: len(refusing.came.get(first, [])) == 3 and is_done(waits), "the retry")
        waits.client.delete_logstore(retry)
        wait_for(lambda: any(one.shard is None for one in consumer.errors()), "the error")
        waits.client.create_logstore(retry, shards=1)
        again = LogGroup(logs=(Log(time=1, contents=(("id", "again"),)),))
        waits.client.put_logs(waits.logstore, encode(again))
        wait_for(lambda: len(refusing.came.get("again", [])) == 3 and is_done(waits), "the retry")
        wait_for(lambda: consumer.errors() == (), "no error")
    assert refusing.deliveries("again") == [1, 2, 3]
    assert refusing.deliveries(last) == [1]


def test_a_retry_logstore_that_does_not_exist_is_an_error_at_the_start(site: Site) -> None:
    site.prepare()
    with pytest.raises(Exception, match="retry"):
        Consumer(settings(site), Seen().factory).run()
    with pytest.raises(ValueError, match="retry needs on_failure"):
        settings(site, on_failure=OnFailure())
    with pytest.raises(ValueError, match="must be above 0"):
        settings(site, retry=RetryLogstore(logstore="r", delays_s=(0.0,)))


def test_a_wait_is_never_longer_than_its_delay_whatever_the_clocks_say() -> None:
    mark = RetryMark(
        origin=Origin(project="p", logstore="l", consumer_group="g"),
        shard=0, cursor=1, attempts=2, retries=1, not_before_unix_s=1000.0, delay_s=60.0,
    )  # fmt: skip
    assert [mark.wait_s(now) for now in (980.0, 1000.0, 5000.0, 0.0)] == [20.0, 0.0, 0.0, 60.0]


def test_parts_and_tags_of_a_log_group_leave_the_rest_as_it_is() -> None:
    logs = tuple(Log(time=n, time_ns=n, contents=(("k", b"\xff%d" % n),)) for n in range(3))
    group = LogGroup(
        logs=logs, topic="t", source="s", machine_uuid="u", tags=(("host", "h"), ("retry_a", "1"))
    )
    raw = encode(group)
    assert select_logs(raw, None) is raw
    assert loggroup.decode(select_logs(raw, (0, 2))).logs == (logs[0], logs[2])
    rest = loggroup.decode(select_logs(raw, (1,)))
    assert (rest.tags, rest.topic, rest.source, rest.machine_uuid) == (group.tags, "t", "s", "u")
