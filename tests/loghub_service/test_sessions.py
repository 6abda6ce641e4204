"""The table of sessions: names, leases, and what is put back after it was dropped."""

from loghub_service.dispatch.sessions import (
    LOOK_S,
    LeasedConsumer,
    SessionTable,
    begin_call,
    end_call,
    is_of_generation,
    session_text,
)
from loghub_service.subscription.events import Delivery


def session(name: str, *, number: int = 1, lease_s: float = 10.0, now_s: float = 0.0) -> LeasedConsumer:
    return LeasedConsumer(
        id=f"id of {name} {number}",
        subscription=(1, "s"),
        name=name,
        number=number,
        nonce="",
        lease_s=lease_s,
        bodies=True,
        expires_s=now_s + lease_s,
        seen_s=now_s,
    )


def ended_at(table: SessionTable, begin_s: int, stop_s: int) -> dict[str, int]:
    """When each session ended, with a look in each second."""
    found = dict[str, int]()
    for now_s in range(begin_s, stop_s):
        for one in table.ended(now_s):
            table.remove(one)
            found[one.id] = now_s
    return found


def test_a_session_is_known_by_its_text_in_its_subscription_until_it_ends() -> None:
    table, one = SessionTable(), session("a")
    table.add(one)
    assert table.find((1, "s"), one.id) is one
    assert table.find((1, "other"), one.id) is None
    assert table.find((2, "s"), one.id) is None
    assert table.named((1, "s"), "a") is one
    one.closed()
    assert (table.find((1, "s"), one.id), table.named((1, "s"), "a")) == (None, None)
    table.add(session("a", number=2))
    assert len(table) == 1
    table.remove(one)  # the old one is gone already
    assert table.named((1, "s"), "a") is not None


def test_a_lease_begins_again_with_each_call_and_lasts_through_one() -> None:
    table, one, busy = SessionTable(), session("a", lease_s=5.0), session("b", lease_s=5.0)
    table.add(one)
    table.add(busy)
    begin_call(busy, 0.0)
    assert ended_at(table, 0, 4) == {}
    begin_call(one, 4.0)
    end_call(one, 4.0)
    assert ended_at(table, 4, 30) == {one.id: 9}
    end_call(busy, 30.0)
    assert ended_at(table, 30, 60) == {busy.id: 35}


def test_a_gap_in_the_looks_is_added_to_each_lease() -> None:
    table, one = SessionTable(), session("a", lease_s=5.0)
    table.add(one)
    assert ended_at(table, 0, 3) == {}
    assert ended_at(table, 1000, 1003) == {}
    assert ended_at(table, 1003, 1010) == {one.id: 1003}
    assert LOOK_S == 1.0


def test_a_lease_that_began_again_after_a_gap_is_not_longer() -> None:
    table, one = SessionTable(), session("a", lease_s=5.0)
    table.add(one)
    assert ended_at(table, 0, 3) == {}
    begin_call(one, 1000.0)
    end_call(one, 1000.0)
    assert ended_at(table, 1000, 1010) == {one.id: 1005}


def test_a_session_is_of_the_generation_in_its_text_and_of_no_other() -> None:
    text = session_text("A1", "SECRET")
    assert [is_of_generation(text, one) for one in ("A1", "A", "A11", "")] == [True, False, False, False]
    of_an_older_release = "RUN1-0-SECRET"  # its subscriptions had no generation
    for one in (of_an_older_release, "anything", ""):
        assert not is_of_generation(one, "A1")
    assert not is_of_generation(of_an_older_release, "")


def test_what_did_not_fit_is_first_again_unless_it_was_dropped_meanwhile() -> None:
    one = session("a")
    one.deliver(Delivery(1, 0, [(0, 2, 0)]))
    one.deliver(Delivery(1, 7, [(5, 6, 0)]))
    epochs, taken = dict(one.epochs), one.take(0.0)
    one.deliver(Delivery(1, 0, [(2, 3, 0)]))
    assert (one.queued_logs, len(taken)) == (1, 2)
    one.put_back(taken, epochs)
    assert [runs for _, runs in one.queue] == [[(0, 2, 0)], [(5, 6, 0)], [(2, 3, 0)]]
    epochs, taken = dict(one.epochs), one.take(0.0)
    one.last = list(taken)
    one.drop(0)
    one.put_back(taken, epochs)
    assert (list(one.queue), one.last) == ([(7, [(5, 6, 0)])], [(7, [(5, 6, 0)])])


def test_a_standby_loses_what_was_dealt_to_it_and_both_are_informed() -> None:
    one, noticed = session("a"), list[int]()
    one.wake = lambda: noticed.append(one.changes)
    one.deliver(Delivery(1, 0, [(0, 2, 0)]))
    one.active_changed(0, is_active=False)
    one.active_changed(0, is_active=True)
    assert (list(one.queue), one.changes, noticed) == ([], 2, [0, 1, 2])
