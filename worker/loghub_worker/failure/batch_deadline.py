"""How long a batch may take, as pure decisions.

A batch that exceeds its timeout is cancelled. User code in Spark's Python processes ends with them; but the
driver's own code, or a disk that does not answer, cannot be cancelled. Such a batch would keep the shards of
the worker forever, so after some more time the worker gives them up and ends.
"""

from dataclasses import dataclass
from enum import StrEnum

from loghub_worker.batch_plan import Range

MAX_CANCEL_S = 30.0  # Spark ends a Python process two seconds after its task was cancelled


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunningBatch:
    """A batch that runs since `began_s` on the monotonic clock. Compared by identity."""

    ranges: tuple[Range, ...]
    began_s: float


class DeadlineStep(StrEnum):
    """What to do about a running batch."""

    WAIT = "wait"
    CANCEL = "cancel"
    GIVE_UP = "give up"


def deadline_step(running: RunningBatch | None, *, timeout_s: float, now: float) -> DeadlineStep:
    """What to do about this batch now."""
    if running is None or now < running.began_s + timeout_s:
        return DeadlineStep.WAIT
    return DeadlineStep.CANCEL if now < running.began_s + hung_after_s(timeout_s) else DeadlineStep.GIVE_UP


def hung_after_s(timeout_s: float) -> float:
    """The age from which on a batch counts as one that cannot be cancelled."""
    return timeout_s + min(MAX_CANCEL_S, timeout_s)
