"""The session of a consumer in a subscription, and what it has to tell the log service, as values."""

import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from loghub.backoff import Backoff, without_jitter
from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub.wire.subscriptions import (
    MAX_DELAY_S,
    MAX_EXCHANGE_BYTES,
    MAX_IDS,
    Exchange,
    Nack,
    SubscriptionSpec,
)
from loghub_consumer import (
    ConsumerSettings,
    Credentials,
    MultiLogstoreConsumer,
    SubscriptionOptions,
    held_shard,
)
from loghub_consumer import subscription_session as sessions
from loghub_consumer.acknowledgments import Deliveries, Fate, Outbox, SettledLogs
from loghub_consumer.batch import LogPlace
from loghub_consumer.held_shard import ThreadStep
from loghub_consumer.membership.membership import ShardPhase
from loghub_consumer.program_parts import own_parts
from loghub_consumer.shard_table import HeldShardEntry, ShardTable
from loghub_consumer.shared_buffers import SharedBuffers
from loghub_consumer.subscription_assignment import SubscriptionAssignment
from loghub_consumer.subscription_session import ReceiveBounds, ReceiveRoom, Session, Stage
from loghub_consumer.tracker import Acknowledgement
from loghub_consumer.unacknowledged import Unsettled
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_consumer.support import Seen
from tests.simulator.service import VirtualClock

LEASE_S = 30.0
RETRIES = Backoff(first_s=0.2, max_s=10.0, random=without_jitter)
SHARED = SubscriptionOptions(type=SubscriptionType.SHARED)


def serving(*active: int, now: float = 100.0) -> Session:
    session = sessions.joined(Session(lease_s=LEASE_S), name="s-1", lease_s=LEASE_S, sent_s=now)
    return sessions.answered(session, active=active, known=active, sent_s=now)


# -- the session


def test_a_session_is_over_a_little_before_its_lease_and_each_answer_renews_it() -> None:
    session = serving(0)
    assert not session.is_over(100.0 + LEASE_S - 5.1)
    assert session.is_over(100.0 + LEASE_S - 5.0)
    renewed = sessions.answered(session, active=(0,), known=(0,), sent_s=110.0)
    assert not renewed.is_over(100.0 + LEASE_S)
    late = sessions.answered(renewed, active=(0,), known=(0,), sent_s=105.0)
    assert late.heard_s == 110.0, "the answer to an earlier call"


def test_a_shard_that_was_lost_comes_back_with_another_epoch() -> None:
    session = serving(0, 1)
    (first, second) = session.shards
    assert first.epoch != second.epoch
    session = sessions.answered(session, active=(1,), known=(0, 1), sent_s=101.0)
    assert [one.shard for one in session.shards] == [1]
    assert session.standby == (0,)
    session = sessions.answered(session, active=(0, 1), known=(0, 1), sent_s=102.0)
    assert session.held[1] == second.epoch, "it was there all the time"
    assert session.held[0] not in (first.epoch, second.epoch)


def test_a_session_that_ends_loses_its_shards_and_is_joined_again() -> None:
    session = sessions.ended(replace(serving(0), number=7))
    assert (session.has_joined, session.number, session.shards) == (False, 0, ())
    again = sessions.joined(session, name="s-2", lease_s=LEASE_S, sent_s=150.0)
    again = sessions.answered(again, active=(0,), known=(0,), sent_s=150.0)
    assert again.held[0] == session.last_epoch + 1


def test_a_consumer_that_ends_begins_no_shard_and_leaves_when_the_last_one_is_released() -> None:
    session = sessions.given_up(serving(0, 1))
    assert {one.phase for one in session.shards} == {ShardPhase.DRAINING}
    session = sessions.answered(session, active=(0, 1, 2), known=(0, 1, 2), sent_s=101.0)
    assert set(session.held) == {0, 1}
    for shard, epoch in session.held.items():
        assert sessions.released(session, shard, epoch=epoch + 9) == session, "an earlier assignment of it"
        session = sessions.released(session, shard, epoch=epoch)
    assert (session.shards, session.stage) == ((), Stage.ENDING)
    assert sessions.left(session).stage is Stage.LEFT
    assert sessions.given_up(Session(lease_s=LEASE_S)).stage is Stage.LEFT, "it never joined"
    assert sessions.ended(sessions.given_up(serving(0))).stage is Stage.LEFT, "nobody is left to tell"


def test_a_call_that_fails_is_repeated_later_each_time_with_the_same_number() -> None:
    session, pauses = serving(0), []
    for _ in range(8):
        session = sessions.failed(session, retries=RETRIES, now=200.0)
        pauses.append(session.due_s - 200.0)
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])
    assert session.number == 0
    assert sessions.answered(session, active=(0,), known=(0,), sent_s=201.0, number=1).failures == 0


@pytest.mark.parametrize(
    ("unbegun", "open_logs", "free_bytes", "expected"),
    [
        (0, 0, 1 << 20, ReceiveRoom(logs=100, bytes=4096)),
        (75, 75, 1 << 20, ReceiveRoom(logs=25, bytes=4096)),
        (76, 76, 1 << 20, None),  # less than a quarter is free
        (0, 150, 1 << 20, ReceiveRoom(logs=50, bytes=4096)),
        (0, 180, 1 << 20, None),
        (0, 10, 1023, None),
        (0, 10, 1024, ReceiveRoom(logs=100, bytes=1024)),
        (0, 0, 0, ReceiveRoom(logs=100, bytes=1)),  # whatever others hold, something is read
    ],
)
def test_the_room_for_another_answer(
    unbegun: int, open_logs: int, free_bytes: int, expected: ReceiveRoom | None
) -> None:
    bounds = ReceiveBounds(prefetch_logs=100, max_unacknowledged=200, max_bytes=4096)
    assert sessions.room(bounds, unbegun=unbegun, open_logs=open_logs, free_bytes=free_bytes) == expected


def test_a_receive_that_waits_renews_the_session_and_nothing_else_is_sent_meanwhile() -> None:
    session = serving(0)
    assert session.wait_s == pytest.approx(10.0)
    assert session.renewal_due_s(None) == pytest.approx(110.0)
    assert session.renewal_due_s(108.0) == pytest.approx(118.0)
    assert replace(session, lease_s=3600.0).wait_s == 20.0


# -- what is settled


def settled(outbox: Outbox, shard: int = 0, session: str = "s-1") -> Deliveries:
    return Deliveries(outbox=outbox, session=session, shard=shard, keeps_refused=False, begin=1000)


def test_what_is_settled_is_sent_as_runs_of_positions() -> None:
    outbox = Outbox()
    one = settled(outbox)
    one.settle(Fate.ACKNOWLEDGED, 1007, (4, 2, 3), logs=3)
    one.settle(Fate.ACKNOWLEDGED, 1008, None, logs=5)
    one.settle(Fate.ACKNOWLEDGED, 1009, None, logs=5)
    one.settle(Fate.RELEASED, 1003, (0,), logs=1)
    one.settle(Fate.REFUSED, 1002, (1,), logs=1, due_s=12.0)
    one.settle(Fate.REFUSED, 1002, (2,), logs=1, due_s=12.0)
    one.settle(Fate.REFUSED, 1001, (0,), logs=1, due_s=3.0)
    sent = outbox.take()
    assert sent is not None
    assert sent.acks == {0: ((position_of(7, 2), position_of(7, 5)), (position_of(8), position_of(10)))}
    assert sent.release == {0: ((position_of(3), position_of(3, 1)),)}
    assert sent.nacks(10.0) == (
        Nack(shard=0, runs=((position_of(1), position_of(1, 1)),), delay_s=0.0),
        Nack(shard=0, runs=((position_of(2, 1), position_of(2, 3)),), delay_s=2.0),
    ), "by their time; one that has passed is now"


def test_what_was_not_answered_is_sent_again_as_it_was_before_what_came_later() -> None:
    """With another log it would be another settlement, in which the log service could refuse the same ones
    twice."""
    calls: list[str] = []
    outbox = Outbox(lambda: calls.append("first"))
    one = settled(outbox)
    one.settle(Fate.ACKNOWLEDGED, 1000, None, logs=1)
    one.settle(Fate.ACKNOWLEDGED, 1001, None, logs=1)
    sent = taken(outbox)
    one.settle(Fate.ACKNOWLEDGED, 1002, None, logs=1)
    assert calls == ["first", "first"], "also if something is under way"
    outbox.put_back(sent)
    assert (len(outbox), outbox.last) == (3, 3)
    one.settle(Fate.REFUSED, 1003, None, logs=1)
    assert calls == ["first", "first"], "something waits already"
    again = taken(outbox)
    assert again is sent
    later = taken(outbox)
    assert [run.number for run in later.runs] == [3, 4]
    assert (again.number, later.number, len(outbox)) == (2, 4, 0)


def test_an_exchange_carries_a_bounded_number_of_runs_of_one_session() -> None:
    outbox = Outbox()
    for session in ("s-1", "s-2"):
        one = settled(outbox, session=session)
        for index in range(MAX_IDS + 1):
            one.settle(Fate.ACKNOWLEDGED, 1000 + 2 * index, None, logs=1)
    sizes = []
    while (sent := outbox.take()) is not None:
        sizes.append((sent.session, len(sent.acks[0])))
    assert sizes == [("s-1", MAX_IDS), ("s-1", 1), ("s-2", MAX_IDS), ("s-2", 1)]


def test_an_exchange_is_taken_whatever_was_refused() -> None:
    """Logs that each have a time of their own, in many shards, and pauses that the log service does not take:
    an exchange that it refuses would be repeated forever, and hold up all acknowledgments behind it."""
    outbox = Outbox()
    for number in range(MAX_IDS):
        shard, cursor = 1 << 20 | number % 1000, 1000 + (1 << 40) + 2 * number
        one = settled(outbox, shard)
        one.settle(Fate.REFUSED, cursor, (70_000,), logs=1, due_s=MAX_DELAY_S + number)
        one.settle(Fate.ACKNOWLEDGED, cursor + 1, (70_000,), logs=1)
    numbers: list[int] = []
    while (sent := outbox.take()) is not None:
        exchange = Exchange(
            consumer="c" * 128,
            type=SubscriptionType.KEY_SHARED,
            session="s" * 64,
            acks=sent.acks,
            nacks=sent.nacks(0.0),
            release=sent.release,
        )
        assert len(msgspec.msgpack.encode(exchange)) <= MAX_EXCHANGE_BYTES
        assert all(0 <= nack.delay_s <= MAX_DELAY_S for nack in exchange.nacks)
        numbers += [run.number for run in sent.runs]
    assert numbers == list(range(1, 2 * MAX_IDS + 1))


def taken(outbox: Outbox) -> SettledLogs:
    sent = outbox.take()
    assert sent is not None
    return sent


def test_a_delay_that_a_subscription_does_not_take_is_refused_in_words() -> None:
    table, entry, clock, outbox = waiting_table()
    table.deliver(entry, [delivered(1000, "a")])
    tracked = Acknowledgement(entry, made().redelivery)
    for delay_s in (MAX_DELAY_S + 1, math.inf):
        with pytest.raises(ValueError, match="at most 604800 s, which are 7 days"):
            tracked.refuse((LogPlace(1000),), delay_s, "")
    assert len(outbox) == 0
    tracked.refuse((LogPlace(1000),), MAX_DELAY_S, "")
    ((_, nack),) = [(nack.shard, nack) for nack in taken(outbox).nacks(clock.monotonic_s())]
    assert nack.delay_s == MAX_DELAY_S


# -- what is delivered


def group(*names: str) -> bytes:
    return encode(LogGroup(logs=tuple(Log(time=1, contents=(("id", name),)) for name in names)))


def delivered(cursor: int, *names: str, redeliveries: int = 0) -> Unsettled:
    return Unsettled(cursor, group(*names), None, redeliveries, False, logs=len(names))


def waiting_table(**limits: Any) -> tuple[ShardTable, HeldShardEntry, VirtualClock, Outbox]:
    clock, outbox, given = VirtualClock(), Outbox(), made(**limits)
    shared = SharedBuffers(1 << 20)
    table = ShardTable(given.limits, given.redelivery, clock, shared, random=lambda: 0.5)
    entry = table.add(0, epoch=1, position=0)
    entry.unacknowledged.deliveries = settled(outbox)
    entry.apply(lambda state, now: held_shard.initialized(state, now=now))
    return table, entry, clock, outbox


def test_a_batch_of_delivered_logs_is_complete_by_logs_or_time() -> None:
    table, entry, clock, _ = waiting_table(max_logs=4, max_wait_s=2.0)
    table.deliver(entry, [delivered(1000, "a", "b"), delivered(1001, "c")])
    assert table.next_step(entry) == (ThreadStep.WAIT, 2.0)
    table.deliver(entry, [delivered(1002, "d", "e"), delivered(1003, "f")])
    assert table.next_step(entry)[0] is ThreadStep.REDELIVER, "four are there"
    assert entry.kept is not None
    assert [one.cursor for one in entry.kept.again or ()] == [1000, 1001], "a log group is not divided"
    assert entry.unacknowledged.unbegun[0] == 3
    entry.end_batch(lambda state, _: held_shard.batch_done(state, end=1002, size=0, generation=0))
    assert table.next_step(entry)[0] is ThreadStep.REDELIVER, "the rest has waited for as long"
    entry.end_batch(lambda state, _: held_shard.batch_done(state, end=1004, size=0, generation=0))
    table.deliver(entry, [delivered(1004, "g")])
    clock.now_s += 2.0
    assert table.next_step(entry)[0] is ThreadStep.REDELIVER, "the time has passed"


def test_logs_with_different_counts_are_different_batches() -> None:
    table, entry, _, _ = waiting_table()
    table.deliver(entry, [delivered(1000, "a"), delivered(1001, "b", redeliveries=2), delivered(1002, "c")])
    found = []
    for _ in range(2):
        assert table.next_step(entry)[0] is ThreadStep.REDELIVER
        assert entry.kept is not None
        found.append((entry.kept.batch.delivery, [one.cursor for one in entry.kept.again or ()]))
        entry.end_batch(lambda state, _: held_shard.batch_done(state, end=1003, size=0, generation=0))
    assert found == [(1, [1000, 1002]), (3, [1001])]


def test_what_is_delivered_twice_is_there_once_and_what_is_not_begun_is_released() -> None:
    table, entry, _, outbox = waiting_table()
    table.deliver(entry, [delivered(1000, "a", "b")])
    once = Unsettled(1000, group("a", "b"), {1}, 0, False)
    table.deliver(entry, [once, delivered(1001, "c")])
    assert (table.delivered().unbegun, table.delivered().open, outbox.counts.delivered) == (3, 3, 3)
    entry.unacknowledged.acknowledge(1000, 0)
    assert table.delivered().unbegun == 2
    table.release_unbegun()
    assert (table.delivered().unbegun, table.delivered().open) == (0, 0)
    sent = taken(outbox)
    assert sent.acks == {0: ((position_of(0), position_of(0, 1)),)}
    assert sent.release == {0: ((position_of(0, 1), position_of(0, 2)), (position_of(1), position_of(2)))}


def test_a_paused_shard_gets_no_more_and_takes_no_room() -> None:
    table, entry, _, _ = waiting_table()
    table.deliver(entry, [delivered(1000, "a")])
    assert (table.delivered().ready, table.delivered().is_held) == ((0,), False)
    entry.pause()
    found = table.delivered()
    assert (found.ready, found.is_held, found.unbegun, found.open) == ((), True, 0, 1)


def test_logs_wait_for_the_entry_of_their_session_though_an_earlier_one_opens_late() -> None:
    clock, given = VirtualClock(), made()
    client = MemoryServer(clock, subscriptions=True).client(given.project)
    client.create_project()
    client.create_logstore(given.logstore, shards=2)
    client.create_subscription(given.logstore, given.consumer_group, SubscriptionSpec(type=SHARED.type))
    key = client.list_shards(given.logstore)[1].begin_key
    client.put_logs(given.logstore, group("a"), hash_key=key)
    parts = own_parts(1 << 20)
    table = ShardTable(given.limits, given.redelivery, clock, parts.buffers, random=lambda: 0.5)
    one = SubscriptionAssignment(given, client, table, parts=parts, random=lambda: 0.5, is_worker=False)
    one._receive()  # joins
    early = {shard.shard: shard.epoch for shard in one.held()}
    ready = table.add(0, epoch=early[0], position=0)
    one.opened(ready)
    ready.apply(lambda state, now: held_shard.initialized(state, now=now))
    begin = client.get_cursor(given.logstore, 0, "begin")
    client.seek_subscription(given.logstore, given.consumer_group, {0: begin})
    for _ in range(3):  # the session has ended, another one begins, and gets the log
        one._receive()
    late = {shard.shard: shard.epoch for shard in one.held()}
    assert early[1] != late[1]
    for epochs in (early, late):
        entry = table.add(1, epoch=epochs[1], position=0)
        one.opened(entry)
    assert entry.unacknowledged.unbegun[0] == 1


# -- settings


def made(**changes: object) -> ConsumerSettings:
    given: dict[str, object] = {
        "endpoint": "http://127.0.0.1:1",
        "project": "demo",
        "logstore": "access",
        "consumer_group": "readers",
        "consumer": "c-0",
        "credentials": Credentials(access_key_id="id", access_key_secret="secret"),
        "acknowledge": "log",
        "subscription": SHARED,
    }
    return ConsumerSettings(**(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"acknowledge": "batch"}, "needs acknowledge='log'"),
        ({"shards": (0,)}, "shards cannot be used with subscription"),
        ({"last_initial_shard": 3}, "last_initial_shard cannot be used with subscription"),
        ({"end_time_s": 1}, "end_time_s cannot be used with subscription"),
        ({"query": "* | where a = '1'"}, "query cannot be used with subscription"),
        ({"timeout_s": 3601}, "a subscription allows 3600"),
    ],
)
def test_settings_that_a_subscription_cannot_have_are_refused_in_words(
    changes: dict[str, object], message: str
) -> None:
    made()
    with pytest.raises(ValueError, match=message):
        made(**changes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": SubscriptionType.SHARED, "key": ("user",)}, "key and slots need the type KeyShared"),
        ({"type": SubscriptionType.FAILOVER, "slots": ((0, 9),)}, "key and slots need the type KeyShared"),
        ({"type": SubscriptionType.SHARED, "priority": -1}, "it must be from 0 to"),
        ({"type": SubscriptionType.SHARED, "prefetch_logs": 0}, "it must be at least 1"),
    ],
)
def test_settings_of_a_subscription_that_cannot_work_are_refused(
    given: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SubscriptionOptions(**given)  # type: ignore[arg-type]


def test_a_type_that_is_a_text_is_refused() -> None:
    with pytest.raises(TypeError, match="it must be a loghub_consumer"):
        SubscriptionOptions(type="shared")  # type: ignore[arg-type]


def test_consumers_of_several_logstores_have_no_subscription() -> None:
    with pytest.raises(ValueError, match="run a Consumer for each logstore"):
        MultiLogstoreConsumer(made(logstore=""), lambda _: Seen().factory, {"access"})
