"""Which worker processes to start and to stop now.

What for: the manners of a StatefulSet, as values: names by ordinal, missing ones started
together, other settings brought in one at a time from the highest ordinal, a back-off after
a failure. What it must not know: processes, files, the time's source. Read next:
`loghub_operator.local.processes.supervisor`, which carries it out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 60.0
STEADY_S = 30.0  # so long ready, and an earlier failure is forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Run the ordinals 0 .. replicas-1 with these settings."""

    replicas: int
    config_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One ordinal that has, or had, a process. ``start_at_s`` is monotonic: no start before it."""

    ordinal: int
    config_hash: str
    alive: bool
    ready: bool
    stopping: bool
    start_at_s: float


@dataclass(frozen=True, slots=True)
class Start:
    """Start this ordinal with the wanted settings."""

    ordinal: int


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGTERM now, SIGKILL after the grace."""

    ordinal: int


def backoff_s(failures: int) -> float:
    """The wait after so many failures in a row (1, 2, ...): doubling, bounded."""
    doublings = min(max(failures - 1, 0), 16)
    return float(min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0**doublings))


def staffing(wanted: Wanted | None, slots: Iterable[Slot], *, now: float) -> tuple[Start | Stop, ...]:
    """What to do now; ``wanted`` None is nothing at all. Empty when everything is as it should be."""
    by_ordinal = {slot.ordinal: slot for slot in slots}
    replicas = 0 if wanted is None else wanted.replicas
    steps: list[Start | Stop] = [
        Stop(slot.ordinal)
        for slot in by_ordinal.values()
        if slot.ordinal >= replicas and slot.alive and not slot.stopping
    ]
    if wanted is None:
        return tuple(steps)
    for ordinal in range(replicas):
        slot = by_ordinal.get(ordinal)
        if slot is None or (not slot.alive and _may_start(slot, wanted, now)):
            steps.append(Start(ordinal))
    outdated = _to_replace(wanted, by_ordinal)
    return (*steps, Stop(outdated)) if outdated is not None else tuple(steps)


def next_start_s(wanted: Wanted | None, slots: Iterable[Slot]) -> float | None:
    """When a back-off ends next; None when none runs."""
    replicas = 0 if wanted is None else wanted.replicas
    waits = [slot.start_at_s for slot in slots if slot.ordinal < replicas and not slot.alive]
    return min(waits, default=None)


def _may_start(slot: Slot, wanted: Wanted, now: float) -> bool:
    """Other settings may be the cure, so a back-off is not waited for with them."""
    return slot.config_hash != wanted.config_hash or now >= slot.start_at_s


def _to_replace(wanted: Wanted, by_ordinal: dict[int, Slot]) -> int | None:
    """The highest with other settings, once all above it are ready with the wanted ones."""
    for ordinal in reversed(range(wanted.replicas)):
        slot = by_ordinal.get(ordinal)
        if slot is None or not slot.alive or slot.stopping:
            return None
        if slot.config_hash != wanted.config_hash:
            return ordinal
        if not slot.ready:
            return None
    return None
