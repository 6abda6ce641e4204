"""A worker process as its status file describes it, also if its worker is of another release."""

from pathlib import Path

import msgspec
import pytest

from loghub_cli.up.paths import WorkerFolder
from loghub_cli.up.worker_process import STALE_S, ProcessState, read_status, worker_of
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
    worker = worker_of(STATE, worker_status(phase=phase), silent_s=5.0)
    assert (worker.phase, worker.ready) == (wanted, wanted is WorkerPhase.RUNNING)


def test_settings_that_a_worker_ignores_are_observed() -> None:
    worker = worker_of(STATE, worker_status(ignored_settings=["surprise"]), silent_s=5.0)
    assert worker.ignored_settings == ("surprise",)


@pytest.mark.parametrize("written_at", [0.0, 1e10], ids=["long ago", "ahead"])
def test_a_clock_that_was_set_changes_nothing(written_at: float, tmp_path: Path) -> None:
    status = worker_status(phase="running", written_at=written_at)
    folder = WorkerFolder(tmp_path)
    folder.status.write_bytes(msgspec.json.encode(status))
    assert read_status(folder) == status
    assert worker_of(STATE, status, silent_s=STALE_S).phase is WorkerPhase.RUNNING
    assert worker_of(STATE, status, silent_s=STALE_S + 1).reason == "WorkerUnresponsive"
