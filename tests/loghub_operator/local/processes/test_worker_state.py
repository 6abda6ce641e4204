"""A worker process as its status file describes it, also if its worker is of another release."""

import pytest

from loghub_operator.local.processes.worker_state import ProcessState, worker_of
from loghub_operator.model.observed import WorkerPhase
from loghub_operator.model.revision import Revision
from tests.loghub_operator.support.status_server import worker_status

STATE = ProcessState(
    name="access-0",
    ordinal=0,
    revision=Revision(settings="a", pod_template="b"),
    alive=True,
    stopping=False,
    drain_requested_at_unix_s=None,
    failure=None,
)


@pytest.mark.parametrize(
    ("phase", "wanted"),
    [
        ("running", WorkerPhase.RUNNING),
        ("fenced", WorkerPhase.STARTING),
        ("left", WorkerPhase.LEFT),
        ("warming", WorkerPhase.STARTING),  # of another release
    ],
)
def test_a_worker_is_ready_only_in_a_phase_that_is_known_to_be(phase: str, wanted: WorkerPhase) -> None:
    worker = worker_of(STATE, worker_status(phase=phase), now_unix_s=5.0)
    assert (worker.phase, worker.ready) == (wanted, wanted is WorkerPhase.RUNNING)


def test_settings_that_a_worker_ignores_are_observed() -> None:
    worker = worker_of(STATE, worker_status(ignored_settings=["surprise"]), now_unix_s=5.0)
    assert worker.ignored_settings == ("surprise",)
