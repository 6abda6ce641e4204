"""Several logstores in one program."""

import re
import threading
from dataclasses import replace
from typing import Any

import pytest

from loghub_consumer import (
    ConsumerSettings,
    DeadLetterLogstore,
    LogBatch,
    MultiLogstoreConsumer,
    MultiLogstoreListener,
    OnFailure,
    RetryLogstore,
    Tracker,
)
from tests.loghub_consumer.support import PROJECT, Running, Seen, Site, released, running, wait_for


class Logstores:
    """Logstores with the same prefix, and what was seen of each."""

    def __init__(self, site: Site) -> None:
        self._first = site
        self.sites: dict[str, Site] = {}
        self.seen: dict[str, Seen] = {}
        self.calls: list[tuple[str, str, tuple[int, ...]]] = []

    def name(self, end: str) -> str:
        return f"{self._first.logstore}-{end}"

    def add(self, end: str, *, shards: int = 1) -> Site:
        site = Site(self._first.service, self._first.client)
        site.logstore = self.name(end)
        self.sites[end] = site
        self.seen.setdefault(site.logstore, Seen())  # first: a look-up may find the logstore at once
        site.prepare(shards=shards)
        return site

    def factory(self, logstore: str) -> Any:
        return self.seen[logstore].factory

    def ids(self, end: str) -> list[str]:
        return self.seen[self.name(end)].ids()

    def settings(self, **changes: Any) -> ConsumerSettings:
        plain = self._first.plain_settings(**changes)
        plain.pop("logstore")
        assert plain["project"] == PROJECT
        return ConsumerSettings(credentials=self._first.service.credentials, **plain)

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.escape(self._first.logstore) + "-.*")

    def consumer(self, settings: ConsumerSettings, **changes: Any) -> MultiLogstoreConsumer:
        named: dict[str, Any] = {"logstores": self.pattern, "look_up_interval_s": 0.2} | changes
        listener = named.pop("listener", RecordingListener(self))
        return MultiLogstoreConsumer(settings, self.factory, named.pop("logstores"), listener, **named)


class RecordingListener(MultiLogstoreListener):
    def __init__(self, logstores: Logstores) -> None:
        self._calls = logstores.calls

    def on_assigned(self, logstore: str, shards: tuple[int, ...]) -> None:
        self._calls.append(("assigned", logstore, shards))

    def on_revoked(self, logstore: str, shards: tuple[int, ...]) -> None:
        self._calls.append(("revoked", logstore, shards))

    def on_lost(self, logstore: str, shards: tuple[int, ...]) -> None:
        self._calls.append(("lost", logstore, shards))


@pytest.fixture
def logstores(site: Site) -> Logstores:
    return Logstores(site)


@pytest.mark.long
def test_logstores_that_match_join_and_those_that_are_deleted_leave(logstores: Logstores) -> None:
    a, b = logstores.add("a", shards=2), logstores.add("b")
    ids = {"a": a.put(2) + a.put(2, shard=1), "b": b.put(2)}
    consumer = logstores.consumer(logstores.settings())
    with running(consumer):
        wait_for(lambda: sorted(logstores.ids("a")) == sorted(ids["a"]), "the first logstore")
        wait_for(lambda: logstores.ids("b") == ids["b"], "the second logstore")
        c = logstores.add("c")
        more = c.put(3)
        wait_for(lambda: logstores.ids("c") == more, "a logstore that is new")
        b.client.delete_logstore(b.logstore)
        wait_for(lambda: b.logstore not in consumer.consumers(), "a logstore that was deleted")
        assert ("lost", b.logstore, (0,)) in logstores.calls
        more += c.put(1)
        wait_for(lambda: logstores.ids("c") == more, "the others to go on")
        wait_for(lambda: c.saved() == c.ends(), "the checkpoint")
        assert consumer.errors() == {}
    assert {call for call in logstores.calls if call[0] == "revoked"} == {
        ("revoked", a.logstore, (0, 1)),
        ("revoked", c.logstore, (0,)),
    }


@pytest.mark.long
def test_a_logstore_that_is_deleted_and_created_again_between_two_look_ups_is_read_from_its_begin(
    logstores: Logstores,
) -> None:
    a = logstores.add("a")
    ids = a.put(2)
    consumer = logstores.consumer(logstores.settings(create_group=True), look_up_interval_s=2.0)
    with running(consumer):
        wait_for(lambda: logstores.ids("a") == ids, "the logs of the first one")
        a.client.delete_logstore(a.logstore)
        a.client.create_logstore(a.logstore, shards=1)
        more = a.put(2)
        wait_for(lambda: bool(a.client.list_groups(a.logstore)), "the group to be created again")
        wait_for(lambda: a.saved() == a.ends(), "the checkpoint")
        wait_for(lambda: consumer.errors() == {}, "its error to be gone")
        assert logstores.ids("a")[-len(more) :] == more


def test_what_fails_in_one_logstore_is_reported_by_logstore_and_tried_again(logstores: Logstores) -> None:
    a, b = logstores.add("a"), logstores.add("b")
    b.client.delete_group(b.logstore, "readers")
    names = (a.logstore, b.logstore, logstores.name("missing"))
    consumer = logstores.consumer(logstores.settings(), logstores=names)
    with running(consumer):
        ids = a.put(2)
        wait_for(lambda: logstores.ids("a") == ids, "the logstore that works")
        wait_for(lambda: len(consumer.errors()) == 2, "the errors")
        reasons = {name: error.reason for name, (error,) in consumer.errors().items()}
        assert reasons == {names[1]: "ConsumerGroupNotFound", names[2]: "LogstoreNotFound"}
        b.create_group()
        ids = b.put(1)
        wait_for(lambda: logstores.ids("b") == ids, "the group that exists again")
        wait_for(lambda: set(consumer.errors()) == {names[2]}, "its error to be gone")


def test_an_error_of_the_listener_ends_all_logstores(logstores: Logstores) -> None:
    logstores.add("a"), logstores.add("b")

    class Failing(MultiLogstoreListener):
        def on_assigned(self, logstore: str, shards: tuple[int, ...]) -> None:
            if logstore == logstores.name("b"):
                raise LookupError("no offsets")

    run = Running(logstores.consumer(logstores.settings(), listener=Failing()))
    run.join()
    assert isinstance(run.error, LookupError)
    for site in logstores.sites.values():
        assert site.client.group_status(site.logstore, "readers").consumers == ()


@pytest.mark.long
def test_all_logstores_together_hold_no_more_than_the_bound(logstores: Logstores) -> None:
    sites = logstores.add("a"), logstores.add("b")
    may_end = threading.Event()
    for seen in logstores.seen.values():
        seen.hook = lambda _, __: may_end.wait(60) and None
    bound = 20_000
    consumer = logstores.consumer(logstores.settings(max_buffered_bytes=bound, max_bytes=1000))

    def held() -> list[int]:
        tables = [one._table for one in consumer.consumers().values()]
        return [state.held_bytes for table in tables for state in table.states().values()]

    with running(consumer), released(may_end):
        wait_for(lambda: len(held()) == 2, "both")  # the first alone may have all of it
        for site in sites:
            site.put(200, logs=20)
        wait_for(lambda: sum(held()) >= bound * 0.7, "full buffers")
        assert sum(held()) < bound * 1.3
        assert max(held()) < bound * 0.7, "each has an equal part"
        may_end.set()
        wait_for(lambda: all(len(logstores.ids(end)) == 4000 for end in "ab"), "all logs")


@pytest.mark.long
def test_a_logstore_with_a_lower_priority_waits_for_the_backlog_of_another(logstores: Logstores) -> None:
    high, low = logstores.add("high"), logstores.add("low")
    high.put(5)
    order: list[str] = []
    began, may_end = threading.Event(), threading.Event()

    def of_high(_: LogBatch, tracker: Tracker) -> None:
        order.append("high")
        began.set()
        may_end.wait(60)
        tracker.save()

    def of_low(_: LogBatch, tracker: Tracker) -> None:
        order.append("low")
        tracker.save()

    logstores.seen[high.logstore].hook, logstores.seen[low.logstore].hook = of_high, of_low
    consumer = logstores.consumer(
        logstores.settings(max_bytes=1),
        change=lambda one: replace(one, priority=int(one.logstore == high.logstore)),
    )
    with running(consumer), released(may_end):
        assert began.wait(60)
        wait_for(lambda: low.logstore in consumer.consumers(), "the other logstore")
        of_low_ids = low.put(3)
        other = consumer.consumers()[low.logstore]
        wait_for(lambda: other.assignment() == (0,) and other.lag(0).log_groups == 3, "its logs")
        may_end.set()
        wait_for(lambda: logstores.ids("low") == of_low_ids, "its turn")
        assert order == ["high"] * 5 + ["low"] * 3
        wait_for(lambda: low.saved() == low.ends(), "the end")
        # One that fails, or is paused, has no turn to wait for.
        logstores.seen[high.logstore].hook = fails
        high.put(1)
        wait_for(lambda: bool(consumer.errors()), "the error")
        more = low.put(1)
        wait_for(lambda: logstores.ids("low") == of_low_ids + more, "while the other fails")


def fails(_: LogBatch, __: Tracker) -> None:
    raise RuntimeError("not now")


@pytest.mark.long
def test_a_logstore_is_paused_also_before_it_exists(logstores: Logstores) -> None:
    a = logstores.add("a")
    consumer = logstores.consumer(logstores.settings())
    consumer.pause([a.logstore, logstores.name("b")])
    with running(consumer):
        wait_for(lambda: a.logstore in consumer.consumers(), "the logstore")
        b, c = logstores.add("b"), logstores.add("c")
        ids = {"a": a.put(), "b": b.put(), "c": c.put()}
        wait_for(lambda: logstores.ids("c") == ids["c"], "the logstore that goes on")
        wait_for(lambda: all(one.assignment() == (0,) for one in consumer.consumers().values()), "all shards")
        assert (logstores.ids("a"), logstores.ids("b")) == ([], [])
        assert consumer.consumers()[b.logstore].paused() == (0,)
        consumer.resume([a.logstore, b.logstore])
        wait_for(lambda: (logstores.ids("a"), logstores.ids("b")) == (ids["a"], ids["b"]), "the others")


INTO_ITSELF = OnFailure(
    policy="DeadLetter", dead_letter=DeadLetterLogstore(project=PROJECT, logstore="a-rejected")
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logstore": "one"}, "logstore is set"),
        ({"retry": RetryLogstore(logstore="r")}, "retry is set"),
        ({"on_failure": INTO_ITSELF}, "a-rejected, which is one of those that are read"),
    ],
)
def test_settings_of_several_logstores_that_cannot_work_are_refused(
    logstores: Logstores, changes: dict[str, Any], message: str
) -> None:
    settings = logstores.settings()
    for name, value in changes.items():
        object.__setattr__(settings, name, value)
    with pytest.raises(ValueError, match=message):
        MultiLogstoreConsumer(settings, logstores.factory, re.compile("a-.*"))
    with pytest.raises(ValueError, match=message):
        MultiLogstoreConsumer(settings, logstores.factory, ["a-one", "a-rejected"])
