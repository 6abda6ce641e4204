"""Derives the state of a worker process, `WorkerObserved`, as `loghub_operator.observe.pods` does for a pod.

The sources are the worker's status file, its termination message (`loghub.worker_contract`), and the state of
the process.
"""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from loghub.worker_contract import WorkerStatus, parse_termination_message
from loghub_operator.local.paths import WorkerFolder
from loghub_operator.model.observed import WorkerObserved, WorkerPhase
from loghub_operator.model.revision import Revision

NOT_APPLIED = "the change is not applied"
STALE_S = 30.0  # a worker whose status is older than this hangs
LAST_WORDS_BYTES = 4096

_PHASES = {
    "starting": WorkerPhase.STARTING,
    "running": WorkerPhase.RUNNING,
    # Its heartbeats get no response: it must not deliver, so it is not ready.
    "fenced": WorkerPhase.STARTING,
    "draining": WorkerPhase.RUNNING,
    "left": WorkerPhase.LEFT,
    "failed": WorkerPhase.FAILED,
}


class LocalReason(StrEnum):
    """A worker's process, with `loghub up`.

    WORKER_UNRESPONSIVE: the process runs but has not reported its status for too long. START_FAILED: the
    process cannot be started; the message contains the error. TRIAL_TIMED_OUT: changed settings are tried in
    a process of its own, which has taken ten minutes; perhaps code of the pipeline hangs where it is
    imported. The workers run on with the settings from before.
    """

    WORKER_UNRESPONSIVE = "WorkerUnresponsive"
    START_FAILED = "StartFailed"
    TRIAL_TIMED_OUT = "TrialTimedOut"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """What the supervisor knows of a worker; ``failure`` are the reason and message of its last failure, and
    ``rejected`` those of settings that it would run with, had they passed their trial."""

    name: str
    ordinal: int
    revision: Revision
    alive: bool
    stopping: bool
    drain_requested_at_unix_s: float | None
    failure: tuple[str, str] | None
    rejected: tuple[str, str] | None = None


def worker_of(state: ProcessState, status: WorkerStatus | None, *, silent_s: float) -> WorkerObserved:
    """The worker as `loghub_operator.plan` expects it; ``status`` is None before its first report, and has
    been the same for ``silent_s``."""
    phase, reason, message = _phase(state, status, silent_s)
    return WorkerObserved(
        name=state.name,
        ordinal=state.ordinal,
        phase=phase,
        ready=phase is WorkerPhase.RUNNING,
        revision=state.revision,
        drain_requested=state.drain_requested_at_unix_s is not None,
        drain_requested_at_unix_s=state.drain_requested_at_unix_s,
        reason=reason,
        message=message,
        ignored_settings=() if status is None else tuple(status.ignored_settings),
    )


def _phase(state: ProcessState, status: WorkerStatus | None, silent_s: float) -> tuple[WorkerPhase, str, str]:
    if not state.alive:
        return (WorkerPhase.FAILED, *state.failure) if state.failure else (WorkerPhase.PENDING, "", "")
    if state.stopping:
        return WorkerPhase.STOPPING, "", ""
    if status is not None and silent_s > STALE_S:
        return (
            WorkerPhase.FAILED,
            LocalReason.WORKER_UNRESPONSIVE,
            f"the worker has not reported its status for {int(silent_s)} s",
        )
    # A phase of another release says at least that the worker is not known to be ready.
    phase = WorkerPhase.STARTING if status is None else _PHASES.get(status.phase, WorkerPhase.STARTING)
    if phase is WorkerPhase.STARTING and state.failure is not None and state.failure[0]:
        return WorkerPhase.FAILED, *state.failure  # reported until the worker is ready
    if state.rejected is not None and phase is WorkerPhase.RUNNING:
        reason, message = state.rejected
        return phase, reason, f"{NOT_APPLIED}: {message}"
    if status is None:
        return phase, "", ""
    return phase, status.reason, status.message


def read_status(folder: WorkerFolder) -> WorkerStatus | None:
    """The status that the worker wrote last; None if its current process has not written any: that of an
    earlier one was removed. No time is compared, since the clock may have been set meanwhile."""
    try:
        return msgspec.json.decode(folder.status.read_bytes(), type=WorkerStatus)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def last_words(folder: WorkerFolder) -> tuple[str, str] | None:
    """The reason and message of a fatal error, which the worker writes as ``Reason: message``; None if there
    is no message."""
    try:
        text = folder.last_words.read_bytes()[:LAST_WORDS_BYTES].decode(errors="replace").strip()
    except OSError:
        return None
    return parse_termination_message(text) or (("", text) if text else None)
