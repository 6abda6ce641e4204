"""Consumers over the real service: what a processor gets, what is saved, and how a consumer ends."""

import threading

import pytest

from loghub.client.port import GroupInfo
from loghub.wire.cursor import decode, encode
from loghub.wire.errors import LogHubError
from loghub_consumer import (
    Consumer,
    ConsumerSettings,
    DeadLetterLogstore,
    LogBatch,
    OnFailure,
    Processor,
    RetryLogstore,
    ShardLostError,
    Tracker,
)
from tests.loghub_consumer.support import (
    GROUP,
    PROJECT,
    RecordingListener,
    Running,
    Seen,
    Site,
    ids_of,
    released,
    running,
    wait_for,
)


@pytest.mark.long
def test_a_consumer_reads_every_shard_in_order_and_saves(site: Site) -> None:
    site.prepare(shards=3)
    ids = {shard: site.put(30, shard=shard) for shard in range(3)}
    seen = Seen()
    with running(Consumer(site.settings(), seen.factory)):
        wait_for(lambda: site.saved() == site.ends(), "all to be saved")
        ids[1] += site.put(2, shard=1)
        wait_for(lambda: len(seen.ids(1)) == len(ids[1]), "what was written later")
    assert {shard: seen.ids(shard) for shard in ids} == ids
    assert sorted(seen.calls) == sorted(
        f"{call} {shard}" for call in ("initialize", "shutdown") for shard in range(3)
    )
    assert site.client.group_status(site.logstore, GROUP).consumers == (), "it has left"


def test_the_group_and_the_consumer_have_the_names_of_the_settings(site: Site) -> None:
    site.prepare()
    site.client.create_group(site.logstore, GroupInfo(name="others", timeout_s=30, order=False))

    def names(group: str) -> list[str]:
        return [one.name for one in site.client.group_status(site.logstore, group).consumers]

    with running(Consumer(site.settings("mine", consumer_group="others"), Seen().factory)):
        wait_for(lambda: names("others") == ["mine"], "the consumer")
        assert names(GROUP) == []


@pytest.mark.long
def test_a_returned_cursor_rolls_the_shard_back(site: Site) -> None:
    site.prepare()
    ids = site.put(6)
    begin = decode(site.begin())
    returned = [encode(begin + 4), encode(begin + 1)]  # forward, then back

    def process(logs: LogBatch, tracker: Tracker) -> str | None:
        if returned:
            return returned.pop(0)
        tracker.save()
        return None

    seen = Seen(process)
    with running(Consumer(site.settings(max_bytes=1), seen.factory)):
        wait_for(lambda: site.saved() == site.ends(), "the end")
    assert seen.ids() == ids[:2] + ids[8:10] + ids[2:]


@pytest.mark.long
def test_an_exception_brings_the_same_logs_again_after_a_pause_and_others_go_on(site: Site) -> None:
    site.prepare(shards=2)
    ids = site.put(3)
    failures = [ValueError("first"), ValueError("second")]

    def process(logs: LogBatch, tracker: Tracker) -> None:
        if logs.shard == 0 and failures:
            raise failures.pop(0)
        tracker.save()

    seen = Seen(process)
    consumer = Consumer(site.settings(), seen.factory)
    with running(consumer):
        wait_for(lambda: not failures, "the failures")
        others = site.put(2, shard=1)
        wait_for(lambda: seen.ids(1) == others and site.saved() == site.ends(), "both shards")
        assert consumer.errors() == ()
    first, *again = [batch for shard, batch in seen.batches if shard == 0]
    assert again[:2] == [first, first]
    assert seen.ids(0)[2 * len(first) :] == ids


def test_the_error_of_a_processor_is_reported_while_it_lasts(site: Site) -> None:
    site.prepare()
    site.put()
    fails = threading.Event()
    fails.set()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        if fails.is_set():
            raise ValueError("no such user")

    consumer = Consumer(site.settings(), Seen(process).factory)
    with running(consumer):
        wait_for(lambda: bool(consumer.errors()), "the error")
        (error,) = consumer.errors()
        assert (error.shard, error.reason) == (0, "ProcessorFailed")
        assert "ValueError: no such user" in error.message
        fails.clear()
        wait_for(lambda: not consumer.errors(), "the success")
        assert site.saved() == {0: site.begin()}, "nothing is saved unless the processor says so"


@pytest.mark.long
def test_a_batch_is_received_by_count_or_time_whichever_comes_first(site: Site) -> None:
    site.prepare()
    site.put(5, logs=2)
    seen = Seen()
    with running(Consumer(site.settings(max_logs=4, max_wait_s=1.5), seen.factory)):
        wait_for(lambda: site.saved() == site.ends(), "all batches")
    assert [len(ids) for _, ids in seen.batches] == [4, 4, 2]


@pytest.mark.long
def test_pulls_run_ahead_of_a_slow_processor_within_their_bound(site: Site) -> None:
    site.prepare(shards=2)
    for shard in (0, 1):
        site.put(40, logs=50, shard=shard)
    may_go = threading.Event()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        may_go.wait(60)
        tracker.save(persist=False)

    bound = 20_000
    seen = Seen(process)
    consumer = Consumer(site.settings(max_buffered_bytes=bound, max_bytes=1), seen.factory)

    def held() -> int:
        return sum(state.held_bytes for state in consumer._table.states().values())

    with running(consumer), released(may_go):
        wait_for(lambda: held() > bound / 2, "pulls ahead of the batch that is being processed")
        states = consumer._table.states
        wait_for(lambda: not any(state.is_pulling for state in states().values()), "the bound")
        group_bytes = 2_000
        assert held() < bound + 2 * group_bytes
        may_go.set()
        wait_for(lambda: len(seen.ids()) == len(site.sent), "all")
        wait_for(lambda: held() == 0, "nothing to be held")


@pytest.mark.long
def test_wakeup_and_shutdown_while_processing_let_the_batch_end(site: Site) -> None:
    site.prepare()
    for end in ("wakeup", "shutdown"):
        site.put(2)
        runs, may_end = threading.Event(), threading.Event()

        def process(
            logs: LogBatch, tracker: Tracker, runs: threading.Event = runs, may_end: threading.Event = may_end
        ) -> None:
            runs.set()
            may_end.wait(60)
            tracker.save()

        seen = Seen(process)
        consumer = Consumer(site.settings(max_bytes=1), seen.factory)
        with running(consumer) as run, released(may_end):
            assert runs.wait(60)
            if end == "wakeup":
                consumer.wakeup()
            else:
                assert not consumer.shutdown(timeout_s=0.3), "the batch still runs"
            may_end.set()
            run.join()
        assert len(seen.batches) == 1, "no further batch began"
        assert decode(site.saved()[0]) == decode(site.begin()) + (1 if end == "wakeup" else 2)


def test_a_processor_may_shut_its_consumer_down(site: Site) -> None:
    site.prepare()
    site.put()
    consumers: list[Consumer] = []

    def process(logs: LogBatch, tracker: Tracker) -> None:
        tracker.save()
        consumers[0].shutdown()

    consumers.append(Consumer(site.settings(), Seen(process).factory))
    run = Running(consumers[0])
    run.join()
    assert run.error is None
    assert site.saved() == site.ends()


def last_heartbeat_s(consumer: Consumer) -> float:
    last_s: float | None = consumer.inspect(lambda membership, *_: membership.last_good_s)
    assert last_s is not None
    return last_s


@pytest.mark.long
def test_a_processor_that_never_returns_keeps_its_shard_and_harms_no_other(site: Site) -> None:
    site.prepare(shards=2, timeout_s=3)
    hangs = threading.Event()
    site.put()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        if logs.shard == 0:
            hangs.set()
            threading.Event().wait()
        tracker.save()

    listener, seen = RecordingListener(), Seen(process)
    consumer = Consumer(site.settings(drain_timeout_s=0.5), seen.factory, listener)
    with running(consumer):
        assert hangs.wait(60)
        hung_s = last_heartbeat_s(consumer)
        others = site.put(3, shard=1)
        wait_for(lambda: seen.ids(1) == others, "the other shard")
        wait_for(lambda: last_heartbeat_s(consumer) > hung_s + 4, "heartbeats after a whole session")
        status = site.client.group_status(site.logstore, GROUP)
        assert {one.shard: one.holder for one in status.shards} == {0: "c-0", 1: "c-0"}
        assert {call for call, _ in listener.calls} == {"assigned"}
    assert listener.shards("lost") == {0}, "after the drain timeout it is abandoned"
    assert listener.shards("revoked") == {1}
    assert site.client.group_status(site.logstore, GROUP).consumers == ()


@pytest.mark.long
def test_the_group_is_deleted_and_created_again(site: Site) -> None:
    site.prepare(timeout_s=3)
    ids = site.put(2)
    errors: list[type[Exception]] = []
    may_save = threading.Event()
    began = threading.Event()

    def process(logs: LogBatch, tracker: Tracker) -> None:
        began.set()
        may_save.wait(60)
        try:
            tracker.save()
        except ShardLostError as error:
            errors.append(type(error))

    listener, seen = RecordingListener(), Seen(process)
    consumer = Consumer(site.settings(), seen.factory, listener)
    with running(consumer), released(may_save):
        assert began.wait(60)
        site.client.delete_group(site.logstore, GROUP)
        wait_for(lambda: listener.shards("lost") == {0}, "the end of the session")
        assert [error.reason for error in consumer.errors()] == ["ConsumerGroupNotFound"]
        assert consumer.assignment() == ()
        may_save.set()
        wait_for(lambda: errors == [ShardLostError], "the save that comes too late")
        site.client.create_group(site.logstore, GroupInfo(name=GROUP, timeout_s=3, order=False))
        wait_for(lambda: site.saved().get(0) == site.ends()[0], "the group to be consumed again")
    assert seen.ids() == seen.batches[0][1] + ids, "the first batch was not saved"
    assert seen.calls.count("initialize 0") == 2, "each assignment has a processor of its own"


def test_a_missing_group_is_an_error_that_says_what_to_do_or_is_created(site: Site) -> None:
    site.client.create_logstore(site.logstore, shards=1)
    with pytest.raises(LogHubError, match="create it, or set create_group"):
        Consumer(site.settings(), Seen().factory).run()
    ids = site.put()
    seen = Seen()
    with running(Consumer(site.settings(create_group=True, timeout_s=17), seen.factory)):
        wait_for(lambda: seen.ids() == ids, "the logs")
    (group,) = site.client.list_groups(site.logstore)
    assert (group.name, group.timeout_s, group.order) == (GROUP, 17, False)


@pytest.mark.long
def test_initialize_is_tried_again_and_a_listener_that_fails_ends_the_consumer(site: Site) -> None:
    site.prepare()
    ids = site.put()
    failures = [OSError("no database")]

    class Starting(Processor):
        def initialize(self, shard: int) -> None:
            if failures:
                raise failures.pop()

        def process(self, logs: LogBatch, tracker: Tracker) -> None:
            seen.add(logs.shard, ids_of(logs))

    seen = Seen()
    with running(Consumer(site.settings(), Starting)):
        wait_for(lambda: seen.ids() == ids, "the second attempt")

    def fail(shards: tuple[int, ...]) -> None:
        raise LookupError("no offsets")

    run = Running(Consumer(site.settings(), seen.factory, RecordingListener(fail)))
    run.join()
    assert isinstance(run.error, LookupError)
    assert site.client.group_status(site.logstore, GROUP).consumers == (), "it left the group first"


def into(logstore: str) -> OnFailure:
    return OnFailure(policy="DeadLetter", dead_letter=DeadLetterLogstore(project=PROJECT, logstore=logstore))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"fetch_interval_s": 0.1}, "fetch_interval_s is 0.1; it must be at least 0.2"),
        ({"max_logs": 0}, "max_logs is 0; it must be at least 1, or None for no limit"),
        ({"heartbeat_interval_s": 0}, "heartbeat_interval_s is 0; it must be above 0"),
        ({"consumer": ""}, "consumer is empty"),
        ({"max_ack_timeout_s": 1.0}, "must be at least ack_timeout_s, which it needs"),
        ({"query": "*", "on_failure": OnFailure(policy="Skip")}, "query needs on_failure 'Retry'"),
        ({"shards": ()}, "shards is empty; name at least one shard"),
        ({"shards": (0,), "consumer_group": "", "checkpoint_store": object()}, "consumer_group is empty"),
        (
            {
                "shards": (0,),
                "on_failure": OnFailure(policy="Skip"),
                "retry": RetryLogstore(logstore="r", delays_s=(1.0,)),
            },
            "retry needs a consumer group",
        ),
        ({"logstore": "own", "on_failure": into("own")}, "of own that fail would be written into own itself"),
        (
            {"logstore": "own", "on_failure": into("other"), "retry": RetryLogstore(logstore="own")},
            "of own that fail would be written into own itself",
        ),
        (
            {"on_failure": into("other"), "retry": RetryLogstore(logstore="other")},
            "dead_letter and retry both name other",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(site: Site, wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConsumerSettings(credentials=site.service.credentials, **(site.plain_settings() | wrong))
