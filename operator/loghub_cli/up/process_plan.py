"""Decides which worker processes to start and to stop now.

The rules are the rules of a StatefulSet with parallel pod management: workers have names by ordinal, missing
workers start together, changed settings are rolled out one worker at a time from the highest ordinal, and a
failed worker restarts after a back-off. One thing more: no worker that is ready is stopped for settings that
have not passed a trial, since a laptop often has one worker, and a typo would end all delivery.
`loghub_cli.up.supervisor` carries the steps out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from loghub.backoff import backoff_s
from loghub_operator.model.revision import Revision

FIRST_BACKOFF_S = 1.0  # doubles after each end in a row
MAX_BACKOFF_S = 60.0  # a program that was corrected is tried again within a minute
STEADY_S = 30.0  # a worker that has been ready this long has its back-off reset


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredWorkers:
    """Run the ordinals 0 .. replicas-1 at this revision."""

    replicas: int
    revision: Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """An ordinal that has, or had, a process. It must not start before ``start_at_s``, in monotonic
    seconds."""

    ordinal: int
    revision: Revision
    alive: bool
    ready: bool
    stopping: bool
    start_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The last trial of settings. One that failed is not repeated before ``again_at_s``, in monotonic
    seconds. Invariant: a trial that is running has not passed."""

    revision: Revision
    running: bool
    passed: bool
    again_at_s: float

    def allows(self, revision: Revision) -> bool:
        return self.passed and self.revision == revision


@dataclass(frozen=True, slots=True)
class Start:
    """Start this ordinal with the desired settings."""

    ordinal: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Send SIGTERM now, and SIGKILL after the grace period."""

    ordinal: int


@dataclass(frozen=True, slots=True)
class Try:
    """Try the desired settings; a trial of others ends."""


@dataclass(frozen=True, slots=True)
class EndTrial:
    """What is tried is not desired any more."""


Step = Start | Stop | Try | EndTrial


def restart_pause_s(failures: int) -> float:
    """The pause before a process starts again after this many failures in a row (1, 2, ...)."""
    return backoff_s(failures, first_s=FIRST_BACKOFF_S, max_s=MAX_BACKOFF_S)


def plan_steps(
    desired: DesiredWorkers | None, slots: Iterable[Slot], trial: Trial | None, *, now: float
) -> tuple[Step, ...]:
    """The steps to take now; ``desired`` None means no workers. Empty if the workers are as desired."""
    # 1. Surplus workers stop, all together, and a trial of settings that are not desired ends.
    by_ordinal = {slot.ordinal: slot for slot in slots}
    replicas = 0 if desired is None else desired.replicas
    steps: list[Step] = [
        Stop(slot.ordinal)
        for slot in by_ordinal.values()
        if slot.ordinal >= replicas and slot.alive and not slot.stopping
    ]
    if trial is not None and trial.running and (desired is None or trial.revision != desired.revision):
        steps.append(EndTrial())
        trial = None
    if desired is None:
        return tuple(steps)
    # 2. Missing workers start, all together, each after its own back-off.
    for ordinal in range(replicas):
        slot = by_ordinal.get(ordinal)
        if slot is None or (not slot.alive and _may_start(slot, desired, now)):
            steps.append(Start(ordinal))
    # 3. Workers with other settings are replaced one at a time, once a trial of the new ones has passed.
    outdated = _to_replace(desired, by_ordinal)
    if outdated is None:
        return tuple(steps)
    # A worker that is not ready delivers nothing that a trial would protect.
    if not by_ordinal[outdated].ready or (trial is not None and trial.allows(desired.revision)):
        return (*steps, Stop(outdated))
    return (*steps, Try()) if _is_trial_due(trial, desired, now) else tuple(steps)


def _is_trial_due(trial: Trial | None, desired: DesiredWorkers, now: float) -> bool:
    if trial is None or trial.revision != desired.revision:
        return True
    return not trial.running and now >= trial.again_at_s


def next_start_s(
    desired: DesiredWorkers | None, slots: Iterable[Slot], trial: Trial | None = None
) -> float | None:
    """The time when the next back-off ends; None if there is none."""
    replicas = 0 if desired is None else desired.replicas
    waits = [slot.start_at_s for slot in slots if slot.ordinal < replicas and not slot.alive]
    if desired is not None and trial is not None and trial.revision == desired.revision:
        waits += [] if trial.running or trial.passed else [trial.again_at_s]
    return min(waits, default=None)


def _may_start(slot: Slot, desired: DesiredWorkers, now: float) -> bool:
    """Whether the back-off has ended or the settings have changed, since new settings may fix the failure."""
    return slot.revision != desired.revision or now >= slot.start_at_s


def _to_replace(desired: DesiredWorkers, by_ordinal: dict[int, Slot]) -> int | None:
    """The highest ordinal with other settings, once all above it are ready with the desired settings."""
    for ordinal in reversed(range(desired.replicas)):
        slot = by_ordinal.get(ordinal)
        if slot is None or not slot.alive or slot.stopping:
            return None
        if slot.revision != desired.revision:
            return ordinal
        if not slot.ready:
            return None
    return None
