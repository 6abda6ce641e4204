"""A field that another client keeps changing is corrected less and less often; a single change at once."""

from dataclasses import replace

import pytest

from loghub_operator.model.memory import NO_DRIFT_HISTORY, DriftHistory, FieldPath, ObjectName
from loghub_operator.model.revision import Revision
from loghub_operator.plan.drift import (
    AT_ONCE,
    CALM_S,
    FIRST_PAUSE_S,
    FORGOTTEN_S,
    MAX_PAUSE_S,
    DriftBackoff,
    evaluate,
    pause_s,
)

STATEFUL_SET = ObjectName(kind="StatefulSet", name="access")
SERVICE = ObjectName(kind="Service", name="access-workers")
NUMBER = FieldPath(object=STATEFUL_SET, path=FieldPath.REPLICAS)
PORTS = FieldPath(object=SERVICE, path="spec.ports")
FIRST, SECOND = Revision(settings="1"), Revision(settings="2")
START = 1_000_000.0


def drift_backoff(
    history: DriftHistory,
    *fields: FieldPath,
    after_s: float,
    revision: Revision = FIRST,
    replicas: int = 3,
) -> DriftBackoff:
    return evaluate(history, fields, revision=revision, replicas=replicas, now=START + after_s)


def corrected(times: int, *fields: FieldPath) -> DriftHistory:
    """So many corrections, the last one at START."""
    history = NO_DRIFT_HISTORY
    for number in range(times):
        after_s = -(times - 1 - number) * MAX_PAUSE_S
        history = drift_backoff(history, *fields, after_s=after_s).history
    return history


def test_pauses_double_up_to_a_bound() -> None:
    assert [pause_s(times) for times in range(AT_ONCE)] == [0.0] * AT_ONCE
    assert [pause_s(AT_ONCE + more) for more in range(3)] == [FIRST_PAUSE_S * 2**more for more in range(3)]
    assert pause_s(10_000) == MAX_PAUSE_S


@pytest.mark.long
def test_a_change_after_each_correction_is_corrected_later_each_time() -> None:
    """For a day, with a reconcile each second."""
    history, at = NO_DRIFT_HISTORY, []
    for second in range(24 * 3600):
        backoff = drift_backoff(history, NUMBER, after_s=second)
        if backoff.corrects:
            history = backoff.history
            at.append(second)
    assert at[:6] == [0, 1, 2, 22, 62, 142]
    assert len(at) <= 24 * 3600 / MAX_PAUSE_S + AT_ONCE + 6


@pytest.mark.parametrize(("times", "delayed"), [(0, False), (AT_ONCE - 1, False), (AT_ONCE, True)])
def test_the_first_corrections_have_no_delay(times: int, delayed: bool) -> None:
    backoff = drift_backoff(corrected(times, NUMBER), NUMBER, after_s=1)
    assert (backoff.corrects, bool(backoff.delayed), bool(backoff.contested)) == (
        not delayed,
        delayed,
        delayed,
    )


def test_the_back_off_of_one_object_does_not_delay_another() -> None:
    backoff = drift_backoff(corrected(9, NUMBER), NUMBER, PORTS, after_s=1)
    assert (backoff.delayed, backoff.corrects, backoff.contested) == ((NUMBER,), True, (STATEFUL_SET,))
    assert (backoff.history.corrections[STATEFUL_SET].times, backoff.pause_s) == (10, MAX_PAUSE_S)
    assert backoff.history.corrections[SERVICE].times == 1


@pytest.mark.parametrize(
    ("revision", "replicas", "later_s"),
    [
        (SECOND, 3, 1.0),
        (replace(FIRST, generation=2), 3, 1.0),
        (FIRST, 4, 1.0),
        (FIRST, 3, FORGOTTEN_S),
        (FIRST, 3, -1.0),
    ],
    ids=["another revision", "another spec", "another number", "long ago", "the clock was set back"],
)
def test_the_count_of_corrections_starts_over(revision: Revision, replicas: int, later_s: float) -> None:
    backoff = drift_backoff(
        corrected(9, NUMBER), NUMBER, after_s=later_s, revision=revision, replicas=replicas
    )
    assert (backoff.delayed, backoff.contested) == ((), ())
    assert backoff.history.corrections[STATEFUL_SET].times == 1


def test_contested_lasts_until_the_object_stays_as_it_was_corrected() -> None:
    history = corrected(AT_ONCE + 1, NUMBER)
    assert drift_backoff(history, after_s=CALM_S - 1).contested == (STATEFUL_SET,)
    assert drift_backoff(history, after_s=CALM_S).contested == ()
    assert drift_backoff(history, NUMBER, after_s=CALM_S).contested == (STATEFUL_SET,)
    # Changed a few times and then left alone is no conflict.
    assert drift_backoff(corrected(AT_ONCE, NUMBER), after_s=1).contested == ()


def test_the_history_is_bounded() -> None:
    history = NO_DRIFT_HISTORY
    for number in range(1000):
        missing = FieldPath(object=ObjectName(kind="ConfigMap", name=f"access-{number}"), path="")
        history = drift_backoff(history, missing, after_s=number * FORGOTTEN_S / 10).history
    assert len(history.corrections) <= 10
