"""A fight over a field is fought ever more slowly; whoever errs once is corrected at once."""

import pytest

from loghub_operator.model.drift_state import NO_DRIFT_HISTORY, DriftHistory
from loghub_operator.plan.drift_backoff import (
    AT_ONCE,
    CALM_S,
    FIRST_PAUSE_S,
    FORGOTTEN_S,
    LONGEST_PAUSE_S,
    evaluate,
    pause_s,
)

NUMBER = "StatefulSet access spec.replicas"
PORTS = "Service access-workers spec.ports"
START = 1_000_000.0


def fought(times: int, *paths: str, wanted: str = "1", apart_s: float = LONGEST_PAUSE_S) -> DriftHistory:
    """So many mends, the last one at START."""
    mends = NO_DRIFT_HISTORY
    for number in range(times):
        now = START - (times - 1 - number) * apart_s
        mends = evaluate(mends, paths, wanted=wanted, now=now).mends
    return mends


def test_pauses_double_up_to_a_bound() -> None:
    assert [pause_s(times) for times in range(AT_ONCE)] == [0.0] * AT_ONCE
    assert [pause_s(AT_ONCE + more) for more in range(3)] == [FIRST_PAUSE_S * 2**more for more in range(3)]
    assert pause_s(10_000) == LONGEST_PAUSE_S


def test_who_undoes_each_mend_at_once_is_answered_ever_later() -> None:
    """A day, looked at each second."""
    mends, at = NO_DRIFT_HISTORY, []
    for second in range(24 * 3600):
        seen = evaluate(mends, (NUMBER,), wanted="1", now=START + second)
        if seen.mends_now:
            mends = seen.mends
            at.append(second)
    assert at[:6] == [0, 1, 2, 22, 62, 142]
    assert len(at) <= 24 * 3600 / LONGEST_PAUSE_S + AT_ONCE + 6


@pytest.mark.parametrize(("times", "held"), [(0, False), (AT_ONCE - 1, False), (AT_ONCE, True)])
def test_a_few_mends_are_done_at_once(times: int, held: bool) -> None:
    seen = evaluate(fought(times, NUMBER), (NUMBER,), wanted="1", now=START + 1)
    assert (seen.mends_now, bool(seen.held), bool(seen.contested)) == (not held, held, held)


def test_a_pause_is_of_one_object() -> None:
    seen = evaluate(fought(9, NUMBER), (NUMBER, PORTS), wanted="1", now=START + 1)
    assert (seen.held, seen.mends_now, seen.contested) == ((NUMBER,), True, ("StatefulSet access",))
    assert (seen.mends.done["StatefulSet access"].times, seen.again_s) == (10, LONGEST_PAUSE_S)
    assert seen.mends.done["Service access-workers"].times == 1


@pytest.mark.parametrize(
    ("wanted", "later_s"),
    [("2", 1.0), ("1", FORGOTTEN_S), ("1", -1.0)],
    ids=["another wish", "long ago", "the clock was set back"],
)
def test_it_begins_anew(wanted: str, later_s: float) -> None:
    seen = evaluate(fought(9, NUMBER), (NUMBER,), wanted=wanted, now=START + later_s)
    assert (seen.held, seen.contested, seen.mends.done["StatefulSet access"].times) == ((), (), 1)


def test_contested_is_told_until_it_stays_as_it_was_set_back() -> None:
    mends = fought(AT_ONCE + 1, NUMBER)
    assert evaluate(mends, (), wanted="1", now=START + CALM_S - 1).contested == ("StatefulSet access",)
    assert evaluate(mends, (), wanted="1", now=START + CALM_S).contested == ()
    assert evaluate(mends, (NUMBER,), wanted="1", now=START + CALM_S).contested == ("StatefulSet access",)
    # Changed a few times and left alone then is no fight.
    assert evaluate(fought(AT_ONCE, NUMBER), (), wanted="1", now=START + 1).contested == ()


def test_what_is_remembered_is_bounded() -> None:
    mends = NO_DRIFT_HISTORY
    for number in range(1000):
        path = f"ConfigMap access-{number} (gone)"
        mends = evaluate(mends, (path,), wanted="1", now=START + number * FORGOTTEN_S / 10).mends
    assert len(mends.done) <= 10
