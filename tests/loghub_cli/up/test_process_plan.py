"""Which processes to start and stop: the behavior of a StatefulSet, case by case."""

import pytest

from loghub_cli.up.process_plan import (
    MAX_BACKOFF_S,
    DesiredWorkers,
    EndTrial,
    Slot,
    Start,
    Stop,
    Trial,
    Try,
    next_start_s,
    plan_steps,
    restart_pause_s,
)
from loghub_operator.model.revision import Revision

NEW, OLD = Revision(settings="new"), Revision(settings="old")

PASSED = Trial(revision=NEW, running=False, passed=True, again_at_s=0.0)


def slot(ordinal: int, **given: object) -> Slot:
    usual = {"revision": NEW, "alive": True, "ready": True, "stopping": False, "start_at_s": 0.0}
    return Slot(ordinal=ordinal, **{**usual, **given})  # type: ignore[arg-type]


def wanted(replicas: int) -> DesiredWorkers:
    return DesiredWorkers(replicas=replicas, revision=NEW)


def test_missing_workers_are_started_together() -> None:
    assert plan_steps(wanted(3), [slot(1)], PASSED, now=0.0) == (Start(0), Start(2))


def test_a_worker_beyond_the_number_is_stopped_once() -> None:
    assert plan_steps(wanted(1), [slot(0), slot(1)], PASSED, now=0.0) == (Stop(1),)
    assert plan_steps(wanted(1), [slot(0), slot(1, stopping=True)], PASSED, now=0.0) == ()


def test_zero_desired_workers_stop_all() -> None:
    assert plan_steps(None, [slot(0), slot(1), slot(2, alive=False)], PASSED, now=0.0) == (Stop(0), Stop(1))


def test_a_dead_worker_is_restarted_after_its_back_off() -> None:
    dead = slot(0, alive=False, ready=False, start_at_s=10.0)
    assert plan_steps(wanted(1), [dead], PASSED, now=9.9) == ()
    assert next_start_s(wanted(1), [dead]) == 10.0
    assert plan_steps(wanted(1), [dead], PASSED, now=10.0) == (Start(0),)


def test_other_settings_do_not_wait_for_a_back_off() -> None:
    dead = slot(0, alive=False, ready=False, start_at_s=10.0, revision=OLD)
    assert plan_steps(wanted(1), [dead], PASSED, now=0.0) == (Start(0),)


def test_other_settings_are_rolled_out_one_worker_at_a_time_from_the_highest() -> None:
    both = [slot(0, revision=OLD), slot(1, revision=OLD)]
    assert plan_steps(wanted(2), both, PASSED, now=0.0) == (Stop(1),)
    stopping = [slot(0, revision=OLD), slot(1, revision=OLD, stopping=True)]
    assert plan_steps(wanted(2), stopping, PASSED, now=0.0) == ()
    starting = [slot(0, revision=OLD), slot(1, ready=False)]
    assert plan_steps(wanted(2), starting, PASSED, now=0.0) == ()
    ready = [slot(0, revision=OLD), slot(1)]
    assert plan_steps(wanted(2), ready, PASSED, now=0.0) == (Stop(0),)


def test_a_worker_that_is_not_ready_with_older_settings_is_replaced_all_the_same() -> None:
    assert plan_steps(wanted(1), [slot(0, revision=OLD, ready=False)], None, now=0.0) == (Stop(0),)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1.0), (2, 2.0), (4, 8.0), (1000, MAX_BACKOFF_S)])
def test_the_back_off_doubles_and_is_bounded(failures: int, seconds: float) -> None:
    assert restart_pause_s(failures) == seconds


def test_nothing_is_planned_in_the_desired_state() -> None:
    assert plan_steps(wanted(2), [slot(0), slot(1)], PASSED, now=0.0) == ()
    assert next_start_s(wanted(2), [slot(0), slot(1)]) is None


# --- a trial before a worker that is ready is stopped -----------------------------------------------

RUNS = Trial(revision=NEW, running=True, passed=False, again_at_s=0.0)
FAILED = Trial(revision=NEW, running=False, passed=False, again_at_s=10.0)
OF_OLD = Trial(revision=OLD, running=False, passed=True, again_at_s=0.0)


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize(
    ("trial", "now", "steps"),
    [
        (None, 0.0, (Try(),)),
        (OF_OLD, 0.0, (Try(),)),
        (RUNS, 0.0, ()),
        (RUNS, 999.0, ()),
        (FAILED, 9.9, ()),
        (FAILED, 10.0, (Try(),)),
    ],
)
def test_no_worker_that_is_ready_is_stopped_for_settings_that_have_not_passed(
    replicas: int, trial: Trial | None, now: float, steps: tuple[object, ...]
) -> None:
    outdated = [slot(ordinal, revision=OLD) for ordinal in range(replicas)]
    assert plan_steps(wanted(replicas), outdated, trial, now=now) == steps
    assert plan_steps(wanted(replicas), outdated, PASSED, now=now) == (Stop(replicas - 1),)


def test_a_trial_of_what_is_not_desired_any_more_ends() -> None:
    of_others = Trial(revision=Revision(settings="typo"), running=True, passed=False, again_at_s=0.0)
    assert plan_steps(wanted(1), [slot(0)], of_others, now=0.0) == (EndTrial(),)
    assert plan_steps(wanted(1), [slot(0, revision=OLD)], of_others, now=0.0) == (EndTrial(), Try())
    assert plan_steps(None, [], RUNS, now=0.0) == (EndTrial(),)
    assert plan_steps(None, [], FAILED, now=99.0) == ()


def test_a_trial_that_failed_is_waited_for_and_no_other() -> None:
    outdated = [slot(0, revision=OLD)]
    assert next_start_s(wanted(1), outdated, FAILED) == 10.0
    for trial in (None, RUNS, PASSED, OF_OLD):
        assert next_start_s(wanted(1), outdated, trial) is None


def test_without_a_worker_that_is_ready_nothing_is_tried() -> None:
    dead = slot(0, alive=False, ready=False, revision=OLD)
    assert plan_steps(wanted(1), [dead], None, now=0.0) == (Start(0),)
    assert plan_steps(wanted(2), [], None, now=0.0) == (Start(0), Start(1))
