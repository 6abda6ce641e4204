"""Which processes to start and stop: the behavior of a StatefulSet, case by case."""

import pytest

from loghub_operator.local.processes.process_plan import (
    MAX_BACKOFF_S,
    DesiredWorkers,
    Slot,
    Start,
    Stop,
    backoff_s,
    next_start_s,
    plan_steps,
)
from loghub_operator.model.revision import Revision

NEW, OLD = Revision(settings="new"), Revision(settings="old")


def slot(ordinal: int, **given: object) -> Slot:
    usual = {"revision": NEW, "alive": True, "ready": True, "stopping": False, "start_at_s": 0.0}
    return Slot(ordinal=ordinal, **{**usual, **given})  # type: ignore[arg-type]


def wanted(replicas: int) -> DesiredWorkers:
    return DesiredWorkers(replicas=replicas, revision=NEW)


def test_missing_workers_are_started_together() -> None:
    assert plan_steps(wanted(3), [slot(1)], now=0.0) == (Start(0), Start(2))


def test_a_worker_beyond_the_number_is_stopped_once() -> None:
    assert plan_steps(wanted(1), [slot(0), slot(1)], now=0.0) == (Stop(1),)
    assert plan_steps(wanted(1), [slot(0), slot(1, stopping=True)], now=0.0) == ()


def test_zero_desired_workers_stop_all() -> None:
    assert plan_steps(None, [slot(0), slot(1), slot(2, alive=False)], now=0.0) == (Stop(0), Stop(1))


def test_a_dead_worker_is_restarted_after_its_back_off() -> None:
    dead = slot(0, alive=False, ready=False, start_at_s=10.0)
    assert plan_steps(wanted(1), [dead], now=9.9) == ()
    assert next_start_s(wanted(1), [dead]) == 10.0
    assert plan_steps(wanted(1), [dead], now=10.0) == (Start(0),)


def test_other_settings_do_not_wait_for_a_back_off() -> None:
    dead = slot(0, alive=False, ready=False, start_at_s=10.0, revision=OLD)
    assert plan_steps(wanted(1), [dead], now=0.0) == (Start(0),)


def test_other_settings_are_rolled_out_one_worker_at_a_time_from_the_highest() -> None:
    both = [slot(0, revision=OLD), slot(1, revision=OLD)]
    assert plan_steps(wanted(2), both, now=0.0) == (Stop(1),)
    stopping = [slot(0, revision=OLD), slot(1, revision=OLD, stopping=True)]
    assert plan_steps(wanted(2), stopping, now=0.0) == ()
    starting = [slot(0, revision=OLD), slot(1, ready=False)]
    assert plan_steps(wanted(2), starting, now=0.0) == ()
    ready = [slot(0, revision=OLD), slot(1)]
    assert plan_steps(wanted(2), ready, now=0.0) == (Stop(0),)


def test_a_worker_that_is_not_ready_with_older_settings_is_replaced_all_the_same() -> None:
    assert plan_steps(wanted(1), [slot(0, revision=OLD, ready=False)], now=0.0) == (Stop(0),)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1.0), (2, 2.0), (4, 8.0), (1000, MAX_BACKOFF_S)])
def test_the_back_off_doubles_and_is_bounded(failures: int, seconds: float) -> None:
    assert backoff_s(failures) == seconds


def test_nothing_is_planned_in_the_desired_state() -> None:
    assert plan_steps(wanted(2), [slot(0), slot(1)], now=0.0) == ()
    assert next_start_s(wanted(2), [slot(0), slot(1)]) is None
