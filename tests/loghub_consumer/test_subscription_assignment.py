"""Consumers of a subscription on a real service; besides the pairs of `test_subscription_pairs`."""

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from loghub.client.http import HttpLogHub
from loghub.wire.cursor import decode, encode
from loghub.wire.errors import LogHubError
from loghub.wire.subscriptions import SubscriptionSpec
from loghub_consumer import (
    Consumer,
    ConsumerSettings,
    LogBatch,
    SubscriptionOptions,
    SubscriptionType,
    Tracker,
)
from tests.loghub_consumer.cutting_proxy import cutting
from tests.loghub_consumer.support import (
    GROUP,
    PROJECT,
    Hook,
    RecordingListener,
    Seen,
    Site,
    ids_of,
    released,
    running,
    wait_for,
)
from tests.support import ROOT, STOP_GUARD_S, running_service

PAGE = (ROOT / "docs" / "processor.md").read_text(encoding="utf-8")
SHARED = SubscriptionOptions(type=SubscriptionType.SHARED)
FAILOVER = SubscriptionOptions(type=SubscriptionType.FAILOVER)


def settings(site: Site, name: str, how: SubscriptionOptions, **changes: Any) -> ConsumerSettings:
    given = {"subscription": how, "acknowledge": "log", "create_group": True}
    return site.settings(name, **(given | changes))


def ack(_: LogBatch, tracker: Tracker) -> None:
    tracker.ack()


def backlog(site: Site, name: str = GROUP) -> int | None:
    """None also before there is a subscription."""
    exists = any(one.name == name for one in site.client.list_subscriptions(site.logstore))
    return site.client.subscription_status(site.logstore, name).backlog_logs if exists else None


def test_two_consumers_get_logs_of_one_shard_and_each_log_once(site: Site) -> None:
    site.client.create_logstore(site.logstore, shards=1)
    ids = site.put(20, logs=3)
    both = threading.Event()
    first, second = Seen(), Seen()

    def wait_for_the_other(logs: LogBatch, tracker: Tracker) -> None:
        if first.ids() and second.ids():
            both.set()
        both.wait(STOP_GUARD_S)
        tracker.ack()

    first.hook = second.hook = wait_for_the_other
    how = SubscriptionOptions(type=SubscriptionType.SHARED, prefetch_logs=10)
    consumers = [
        Consumer(settings(site, name, how, max_logs=5), seen.factory)
        for name, seen in (("c-0", first), ("c-1", second))
    ]
    with released(both), running(consumers[0]), running(consumers[1]):
        wait_for(lambda: len(first.ids()) + len(second.ids()) == len(ids) and backlog(site) == 0, "all logs")
        assert consumers[0].assignment() == consumers[1].assignment() == (0,)
        with pytest.raises(ValueError, match="single logs of a subscription are acknowledged"):
            consumers[0].lag(0)
        with pytest.raises(ValueError, match="a shard has no position"):
            consumers[0].position(0)
        assert consumers[0].backlog(0) is not None
    assert sorted(first.ids() + second.ids()) == sorted(ids)


def test_a_refused_log_keeps_its_time_and_count_when_its_consumer_ends(site: Site) -> None:
    site.client.create_logstore(site.logstore, shards=1)
    (name,) = site.put(1, logs=1)
    deliveries: list[int] = []

    def refuse(logs: LogBatch, tracker: Tracker) -> None:
        deliveries.append(logs.delivery)
        tracker.nack(delay_s=0.2)
        tracker.save()  # the log service has it

    def take(logs: LogBatch, tracker: Tracker) -> None:
        deliveries.append(logs.delivery)
        tracker.ack()

    first = Seen(refuse)
    with running(Consumer(settings(site, "c-0", SHARED), first.factory)):
        wait_for(lambda: bool(deliveries), "the first delivery")
    with running(Consumer(settings(site, "c-1", SHARED), Seen(take).factory)):
        wait_for(lambda: backlog(site) == 0, "the acknowledgment")
    assert deliveries == list(range(1, len(deliveries) + 1))
    assert len(deliveries) > 1, name


def test_the_standby_learns_that_it_is_one_and_takes_over_in_order(site: Site) -> None:
    site.client.create_logstore(site.logstore, shards=1)

    class StandbyListener(RecordingListener):
        def on_standby(self, shards: tuple[int, ...]) -> None:
            self.calls.append(("standby", shards))

    first, second = Seen(ack), Seen(ack)
    standby = StandbyListener()
    with running(Consumer(settings(site, "c-0", FAILOVER), first.factory)) as active:
        wait_for(lambda: "initialize 0" in first.calls, "the active one")
        lower = SubscriptionOptions(type=SubscriptionType.FAILOVER, priority=1)
        with running(Consumer(settings(site, "c-1", lower), second.factory, standby)):
            wait_for(lambda: ("standby", (0,)) in standby.calls, "the stand-by")
            ids = site.put(5)
            wait_for(lambda: backlog(site) == 0, "the first logs")
            assert (first.ids(), second.ids()) == (ids, [])
            active.consumer.shutdown(STOP_GUARD_S)
            wait_for(lambda: ("standby", ()) in standby.calls, "the new active one")
            later = site.put(5)
            wait_for(lambda: backlog(site) == 0, "the others")
    assert second.ids() == later


def test_a_subscription_moves_for_all_of_its_consumers(site: Site) -> None:
    site.client.create_logstore(site.logstore, shards=1)
    ids = site.put(4, logs=1)
    seen = Seen(ack)
    consumer = Consumer(settings(site, "c-0", SHARED), seen.factory)
    with running(consumer):
        wait_for(lambda: backlog(site) == 0, "all logs")
        consumer.seek(0, encode(decode(site.begin()) + 2))
        wait_for(lambda: seen.ids().count(ids[3]) == 2 and backlog(site) == 0, "the last two again")
    assert sorted(seen.ids()) == sorted(ids + ids[2:])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda logs, tracker: tracker.save(cursor=logs.begin_cursor), "no position to save"),
        (lambda logs, _: logs.begin_cursor, "process returned a cursor"),
    ],
)
def test_what_a_subscription_lacks_is_refused_in_words(site: Site, how: Hook, message: str) -> None:
    site.client.create_logstore(site.logstore, shards=1)
    site.put(1, logs=1)
    consumer = Consumer(settings(site, "c-0", SHARED, redelivery_delay_s=0.05), Seen(how).factory)
    with running(consumer):
        wait_for(lambda: any(message in one.message for one in consumer.errors()), message)


def test_a_subscription_that_is_missing_or_different_is_an_error_that_says_what_to_do(site: Site) -> None:
    site.client.create_logstore(site.logstore, shards=1)
    missing = Consumer(settings(site, "c-0", SHARED, create_group=False), Seen().factory)
    with pytest.raises(LogHubError, match="create it, or set create_group"):
        missing.run()
    with running(Consumer(settings(site, "c-0", SHARED), Seen().factory)) as run:
        wait_for(
            lambda: isinstance(run.consumer, Consumer) and run.consumer.assignment() == (0,), "the shard"
        )
    with pytest.raises(LogHubError, match=r"has the type Shared .* settings say Failover"):
        Consumer(settings(site, "c-0", FAILOVER), Seen().factory).run()


def test_what_was_saved_before_the_service_is_killed_never_comes_again(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        client = HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)
        client.create_project("tests")
        site = Site(service, client)
        client.create_logstore(site.logstore, shards=1)
        ids, saved, again = site.put(40, logs=2), set[str](), set[str]()

        def save_every_second(logs: LogBatch, tracker: Tracker) -> None:
            named = [(log, str(log.get("id"))) for group in logs.groups for log in group.logs]
            again.update(saved & {name for _, name in named})
            done = [one for one in named if int(one[1].split("-")[1]) % 2 or was_killed.is_set()]
            for log, _ in done:
                tracker.ack(log)
            tracker.save()
            saved.update(name for _, name in done)

        was_killed = threading.Event()
        seen = Seen(save_every_second)
        with running(Consumer(settings(site, "c-0", SHARED, max_logs=10, timeout_s=5), seen.factory)):
            wait_for(lambda: len(saved) == 40, "every second log")
            service.kill9()
            was_killed.set()
            service.start()
            wait_for(lambda: saved == set(ids), "the others")
        assert again == set()
        client.close()


@pytest.mark.parametrize("how", [FAILOVER, pytest.param(SHARED, marks=pytest.mark.deep)])
def test_answers_that_a_proxy_takes_away_lose_no_log_and_no_receipt(
    site: Site, how: SubscriptionOptions
) -> None:
    site.client.create_logstore(site.logstore, shards=2)
    ids = [*site.put(8, logs=3), *site.put(8, logs=3, shard=1)]
    random, receipted, again = Random(1), set[str](), set[str]()

    def save_each_batch(logs: LogBatch, tracker: Tracker) -> None:
        names = ids_of(logs)
        again.update(receipted & set(names))
        tracker.ack()
        tracker.save()
        receipted.update(names)

    service, seen = site.service, Seen(save_each_batch)
    # The client repeats a call twice by itself, so one in five fails.
    with cutting(service.host, service.port, lambda: random.random() < 0.6) as proxy:
        changes: dict[str, Any] = {
            "endpoint": proxy.endpoint,
            "max_logs": 5,
            "redelivery_delay_s": 0.05,
            "timeout_s": 5,
        }
        site.client.create_subscription(site.logstore, GROUP, SubscriptionSpec(type=how.type))
        consumers = [Consumer(settings(site, f"c-{n}", how, **changes), seen.factory) for n in range(2)]
        with running(consumers[0]), running(consumers[1]):
            wait_for(lambda: backlog(site) == 0 and proxy.cuts > 3, "all logs")
    assert set(seen.ids()) == set(ids)
    assert again == set()


@pytest.mark.long
def test_the_program_of_the_page_shares_the_logs_of_a_shard(site: Site, tmp_path: Path) -> None:
    site.client.create_logstore(site.logstore, shards=1)
    ids = site.put(5, logs=3)
    found = re.search(r"## 11 .*?```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    text = found[1]
    for written, real in {
        "http://127.0.0.1:8080": site.service.endpoint,
        'logstore="access"': f'logstore="{site.logstore}"',
        'Path("credentials")': f"Path({str(site.service.credentials_dir)!r})",
    }.items():
        assert written in text
        text = text.replace(written, real)
    file = tmp_path / "program.py"
    file.write_text(text)
    process = subprocess.Popen([sys.executable, file], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: bool(site.client.list_subscriptions(site.logstore)), "the subscription")
        wait_for(lambda: backlog(site, "resizers") == 0, "the acknowledgments")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=STOP_GUARD_S)
    finally:
        process.kill()
        process.wait(STOP_GUARD_S)
    assert (process.returncode, sorted(output.split())) == (0, sorted(ids))
