"""What a worker's own status proves about the shards, and when it proves nothing."""

from typing import Any

import msgspec
import pytest

from loghub.contract.worker import STATUS_FRESH_S
from loghub.domain.state_inference import WorkerReport
from loghub_operator.logservice.group_state import report_of
from tests.loghub_operator.support.status_server import shard, worker_status

TIMEOUT_S = 30.0
HELD = frozenset({0, 1})
NOTHING_HELD = WorkerReport()
NO_REPORT = None
STATUS = worker_status(shard(0), shard(1, draining=True))


def report(*, age_s: float = 0.0, **changed: Any) -> WorkerReport | None:
    status = msgspec.structs.replace(STATUS, **changed)
    return report_of(status, consumer="access-0", age_s=age_s, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("starting", NO_REPORT),  # its name may hold what the process before it held
        ("running", WorkerReport(held=HELD, draining=frozenset({1}))),
        ("fenced", NO_REPORT),  # the service waits longer than the worker before it frees the shards
        ("draining", WorkerReport(held=HELD)),  # the service has assigned nothing of it to another consumer
        ("left", NO_REPORT),  # where leaving is silence, the name holds its shards until it times out
        ("failed", NO_REPORT),
    ],
)
def test_a_status_in_each_phase_gives_the_expected_report(phase: str, expected: WorkerReport | None) -> None:
    assert report(phase=phase) == expected


@pytest.mark.parametrize("phase", ["running", "draining", "fenced", "left"])
def test_a_worker_with_an_expired_session_holds_no_shard_whatever_it_lists(phase: str) -> None:
    assert report(phase=phase, last_heartbeat_age_s=TIMEOUT_S) == NOTHING_HELD
    assert report(phase=phase, last_heartbeat_age_s=TIMEOUT_S - 2.0, age_s=2.0) == NOTHING_HELD
    assert report(phase=phase, last_heartbeat_age_s=TIMEOUT_S - 0.1) != NOTHING_HELD


def test_a_failed_worker_has_no_report_whatever_its_heartbeat() -> None:
    assert report(phase="failed", last_heartbeat_age_s=TIMEOUT_S) is NO_REPORT


def test_a_worker_without_a_heartbeat_has_no_report_even_while_it_drains() -> None:
    assert report(phase="draining", shards=[], last_heartbeat_age_s=None) is NO_REPORT


def test_the_status_of_another_consumer_is_no_report() -> None:
    assert report(consumer="access-1") is NO_REPORT


@pytest.mark.parametrize("phase", ["running", "draining"])
def test_shards_whose_position_lies_beyond_their_end_are_in_the_report(phase: str) -> None:
    beyond = msgspec.structs.replace(shard(0), beyond_end=3)
    reported = report(phase=phase, shards=[beyond, shard(1)])
    assert reported is not None
    assert reported.beyond_end == frozenset({0})


def test_an_old_status_is_no_report() -> None:
    assert report(age_s=STATUS_FRESH_S) is not NO_REPORT
    assert report(age_s=STATUS_FRESH_S + 0.1) is NO_REPORT


def test_a_status_from_before_the_clock_was_set_back_is_no_report() -> None:
    assert report(age_s=-3600.0) is NO_REPORT


def test_no_status_is_no_report() -> None:
    assert report_of(None, consumer="access-0", age_s=0.0, timeout_s=TIMEOUT_S) is NO_REPORT


def test_a_member_without_shards_reports_that() -> None:
    assert report(shards=[]) == NOTHING_HELD
