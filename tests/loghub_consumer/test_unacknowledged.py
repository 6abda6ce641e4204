"""What is not acknowledged, against a plain model: sets of logs, and numbers as times."""

import math
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loghub.backoff import Backoff, without_jitter
from loghub.client.port import Credentials
from loghub_consumer import ConsumerSettings
from loghub_consumer import held_shard as hs
from loghub_consumer.held_shard import (
    NOTHING,
    Again,
    Buffered,
    HeldShardState,
    NextStep,
    ReceiveLimits,
    ThreadStep,
    next_step,
)
from loghub_consumer.unacknowledged import (
    ENTRY_BYTES,
    GRID_S,
    TIMED_OUT,
    RedeliveryRules,
    Unacknowledged,
    Unsettled,
)

LOGS = 4  # of each log group
Log = tuple[int, int]


def empty() -> Unacknowledged:
    return Unacknowledged(lambda raw: LOGS)


def handed_out(cursors: range, *, due_s: float | None = None) -> Unacknowledged:
    unacknowledged = empty()
    for cursor in cursors:
        unacknowledged.add(Unsettled(cursor, b"12345", None, 1, True, due_s))
    return unacknowledged


@pytest.mark.parametrize("times", [(1.0, 1.0), (1.0, 3.0, 1.0)])
def test_what_is_refused_twice_for_the_same_time_comes_once(times: tuple[float, ...]) -> None:
    unacknowledged = handed_out(range(5, 6))
    for time in times:
        assert unacknowledged.refuse(5, None, due=at(time))
    assert taken(unacknowledged, 2.0) == [{(5, index) for index in range(LOGS)}]
    (one,) = unacknowledged
    assert one.delivery == 2


def test_what_is_refused_may_have_no_time_that_comes() -> None:
    unacknowledged = handed_out(range(5, 6))
    assert unacknowledged.refuse(5, None, due=at(math.inf))
    assert (unacknowledged.due_s, taken(unacknowledged, 1e300)) == (math.inf, [])


def test_all_up_to_a_log_is_without_what_waits_for_its_first_delivery() -> None:
    unacknowledged = handed_out(range(5, 7))
    unacknowledged.add(Unsettled(4, b"12345", None, 1, False, 100.0))
    assert unacknowledged.up_to(6, 0) == [(5, None), (6, 0)]


def at(due_s: float):  # type: ignore[no-untyped-def]
    return lambda delivery: due_s


def logs_of(one: Unsettled) -> set[Log]:
    return {(one.cursor, index) for index in (range(LOGS) if one.only is None else one.only)}


def taken(unacknowledged: Unacknowledged, now: float, *, max_bytes: int = 1000) -> list[set[Log]]:
    return [logs_of(one) for one in unacknowledged.take_due(max_bytes=max_bytes, now=now, again=None)]


def test_the_floor_is_the_first_log_group_of_which_a_log_is_left() -> None:
    unacknowledged = handed_out(range(5, 8))
    for cursor, index, floor in ((6, None, 5), (5, 0, 5), (5, 3, 5), (5, 1, 5), (5, 2, 7), (7, None, None)):
        assert unacknowledged.acknowledge(cursor, index)
        assert unacknowledged.floor == floor
    assert (len(unacknowledged), unacknowledged.bytes) == (0, 0)
    assert not unacknowledged.acknowledge(5, 2), "a second time changes nothing"


def test_parts_of_a_log_group_come_again_at_their_own_times() -> None:
    unacknowledged = handed_out(range(1))
    unacknowledged.refuse(0, 2, due=at(10))
    unacknowledged.refuse(0, 0, due=at(5))
    unacknowledged.refuse(0, 1, due=at(10))
    assert unacknowledged.due_s == 5
    assert taken(unacknowledged, 4) == []
    assert taken(unacknowledged, 5) == [{(0, 0)}]
    assert taken(unacknowledged, 10) == [{(0, 1), (0, 2)}]
    assert unacknowledged.due_s is None, "the rest was not refused"


def test_logs_with_the_same_number_of_deliveries_come_together_in_order_up_to_the_limit() -> None:
    unacknowledged = handed_out(range(4))
    unacknowledged.refuse(3, None, due=at(1))
    assert taken(unacknowledged, 1) == [{(3, index) for index in range(LOGS)}]
    for cursor in (2, 3, 0, 1):
        unacknowledged.refuse(cursor, None, due=at(2))
    batches = [unacknowledged.take_due(max_bytes=10, now=2, again=None) for _ in range(3)]
    assert [sorted({one.delivery for one in batch}) for batch in batches] == [[2], [3], [2]]
    assert [[one.cursor for one in batch] for batch in batches] == [[0, 2], [3], [1]]


def test_what_is_neither_acknowledged_nor_refused_comes_again_after_the_timeout() -> None:
    unacknowledged = handed_out(range(3), due_s=30)
    unacknowledged.acknowledge(1)
    unacknowledged.refuse(2, None, due=at(99))
    (again,) = unacknowledged.take_due(max_bytes=1000, now=30, again=at(60))
    assert (again.cursor, again.delivery, again.is_out) == (0, 2, True)
    assert unacknowledged.due_s == 60, "and again"
    assert unacknowledged.acknowledge(0), "an acknowledgement that comes late counts"
    assert unacknowledged.due_s == pytest.approx(99, abs=GRID_S)


def test_refusing_each_log_of_a_large_log_group_costs_little() -> None:
    unacknowledged = Unacknowledged(lambda raw: 20_000)
    unacknowledged.add(Unsettled(0, b"12345", None, 1, True))
    for index in range(20_000):
        unacknowledged.refuse(0, index, due=at(1 + index / 1e6))
    assert len(list(unacknowledged)) <= 3
    assert sum(len(one.only or ()) for one in unacknowledged) == 20_000


def test_what_is_done_takes_no_memory_though_it_would_come_again_later_than_one_that_is_left() -> None:
    unacknowledged = empty()
    groups = [Unsettled(cursor, bytes(1000), None, 1, True, 600.0) for cursor in range(5000)]
    for one in groups:
        unacknowledged.add(one)
        if one.cursor:
            unacknowledged.acknowledge(one.cursor)
    for seconds in range(5000):
        unacknowledged.refuse(0, None, due=at(600.0 + seconds))
    assert unacknowledged.bytes == 1000 + ENTRY_BYTES
    assert sum(len(one.raw) for one in groups) == 1000
    assert len(unacknowledged._due) < 100, "nor does what holds no longer"


def test_a_log_group_without_logs_is_not_divided_though_the_batch_with_it_failed() -> None:
    unacknowledged = Unacknowledged(lambda raw: 0)
    one = Unsettled(5, b"12345", None, 1, True)
    unacknowledged.add(one)
    unacknowledged.suspect_out([one], due_s=3.0, failure=TIMED_OUT, divisor=8)
    assert (list(unacknowledged), one.is_out, unacknowledged.due_s) == ([one], False, 3.0)


def test_parts_of_a_log_group_have_its_bytes_once() -> None:
    unacknowledged = empty()
    for index in range(LOGS):
        unacknowledged.refuse_first(5, index, raw=bytes(1000), due_s=float(index))
    assert unacknowledged.bytes == 1000 + LOGS * ENTRY_BYTES
    assert len({id(one.raw) for one in unacknowledged}) == 1
    for index in range(LOGS):
        unacknowledged.acknowledge(5, index)
    assert unacknowledged.bytes == 0


@dataclass
class Model:
    """Which logs are not acknowledged, and when those that were refused are due."""

    unacknowledged: Unacknowledged
    left: set[Log] = field(default_factory=set)
    due: dict[Log, float] = field(default_factory=dict)
    now: float = 0.0

    def check(self) -> None:
        assert {log for one in self.unacknowledged for log in logs_of(one)} == self.left
        assert self.unacknowledged.floor == min((cursor for cursor, _ in self.left), default=None)
        assert (self.unacknowledged.bytes == 0) == (not self.left)
        assert self.unacknowledged.due_s == pytest.approx(min(self.due.values(), default=None), abs=GRID_S)

    def hit(self, cursor: int, index: int | None) -> set[Log]:
        return {log for log in self.left if log[0] == cursor and index in (None, log[1])}

    def acknowledge(self, cursor: int, index: int | None) -> None:
        hit = self.hit(cursor, index)
        assert self.unacknowledged.acknowledge(cursor, index) == bool(hit)
        self.left -= hit
        for log in hit:
            self.due.pop(log, None)

    def refuse(self, cursor: int, index: int | None, delay_s: float) -> None:
        hit = self.hit(cursor, index)
        assert self.unacknowledged.refuse(cursor, index, due=at(self.now + delay_s)) == bool(hit)
        self.due |= dict.fromkeys(hit, self.now + delay_s)

    def take(self) -> set[Log]:
        logs = set().union(*taken(self.unacknowledged, self.now, max_bytes=10))
        assert all(self.due.pop(log) <= self.now for log in logs), "nothing comes early, nor if it is done"
        return logs


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["acknowledge", "refuse", "refuse", "take", "wait"]),
        st.integers(0, 3),
        st.none() | st.integers(0, LOGS - 1),
        st.integers(0, 5),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(STEPS)
def test_nothing_is_forgotten_and_nothing_done_comes_again(
    steps: list[tuple[str, int, int | None, int]],
) -> None:
    model = Model(handed_out(range(4)), {(cursor, index) for cursor in range(4) for index in range(LOGS)})
    for what, cursor, index, seconds in steps:
        if what == "acknowledge":
            model.acknowledge(cursor, index)
        elif what == "refuse":
            model.refuse(cursor, index, float(seconds))
        elif what == "take":
            model.take()
        else:
            model.now += seconds
        model.check()
    model.now += 100
    refused, come = set(model.due), set()
    while logs := model.take():
        come |= logs
    assert come == refused


# -- how much, and when

RULES = RedeliveryRules(
    by_log=False,
    backoff=Backoff(first_s=1, max_s=8, random=without_jitter),
    ack_timeouts=None,
    max_unacknowledged=100,
)
TIMEOUTS = Backoff(first_s=30, max_s=30, random=without_jitter)


def test_the_distance_from_the_first_that_is_left_to_the_last_that_was_handed_over_is_bounded() -> None:
    assert RULES.room(floor=None, position=7) is None, "returning acknowledges"
    assert [RULES.room(floor=7, position=at) for at in (8, 106, 107, 300)] == [99, 1, 0, 0]
    by_log = RedeliveryRules(
        by_log=True, backoff=RULES.backoff, ack_timeouts=TIMEOUTS, max_unacknowledged=100
    )
    assert by_log.room(floor=None, position=7) == 100
    assert RULES.again(5) is None


def test_what_is_not_acknowledged_in_time_has_twice_as_long_each_time_up_to_the_longest() -> None:
    key = Credentials(access_key_id="id", access_key_secret="secret")
    names = {"project": "demo", "logstore": "access", "consumer_group": "readers", "consumer": "c-0"}
    settings = ConsumerSettings(endpoint="http://loghub", credentials=key, acknowledge="log", **names)
    for max_s, timeouts in ((None, [10, 10, 10, 10]), (25.0, [10, 20, 25, 25])):
        rules = replace(settings, ack_timeout_s=10.0, max_ack_timeout_s=max_s).redelivery
        first = rules.again(0)
        assert first is not None
        unacknowledged = handed_out(range(1), due_s=first(1))
        waited: list[float] = []
        now = 0.0
        for _ in timeouts:
            assert unacknowledged.due_s is not None
            waited.append(unacknowledged.due_s - now)
            now = unacknowledged.due_s
            assert unacknowledged.take_due(max_bytes=1000, now=now, again=rules.again(now))
        assert waited == timeouts


def pulling() -> HeldShardState:
    return hs.initialized(HeldShardState(shard=3, epoch=1, position=100, read_to=100), now=0)


@pytest.mark.parametrize(
    ("again", "buffered", "expected"),
    [
        (Again(due_s=9), NOTHING, NextStep(ThreadStep.WAIT, 9)),
        (Again(due_s=7), NOTHING, NextStep(ThreadStep.REDELIVER)),
        (Again(due_s=7), Buffered(groups=1, since_s=1), NextStep(ThreadStep.REDELIVER)),
        (Again(due_s=9), Buffered(groups=1, since_s=1), NextStep(ThreadStep.PROCESS)),
        (Again(due_s=9), Buffered(groups=1, since_s=6), NextStep(ThreadStep.WAIT, 8)),
        (Again(due_s=9, is_full=True), Buffered(groups=1, since_s=1), NextStep(ThreadStep.WAIT, 9)),
        (Again(is_full=True), Buffered(groups=1, since_s=1), NextStep(ThreadStep.WAIT)),
    ],
)
def test_what_is_due_comes_before_new_logs_which_wait_for_room(
    again: Again, buffered: Buffered, expected: NextStep
) -> None:
    limits = ReceiveLimits(max_logs=None, max_bytes=1000, max_wait_s=2)
    assert next_step(pulling(), buffered, limits, is_full=False, now=7, again=again) == expected
    for state in (hs.paused(pulling()), hs.batch_began(pulling()), hs.revoked(pulling()), hs.lost(pulling())):
        assert next_step(state, buffered, limits, is_full=False, now=7, again=again) == NextStep(
            ThreadStep.WAIT
        )


def test_what_is_not_acknowledged_counts_as_memory_of_the_shard() -> None:
    state = hs.retained(pulling(), size=300)
    assert hs.pull_due_s(state, share_bytes=300) is None
    assert hs.pull_due_s(state, share_bytes=400) is not None
    assert hs.next_pull(state, share_bytes=400, batch_bytes=1 << 30).bytes == 100
    assert hs.shut_down(hs.revoked(state)).memory_bytes == 0
