"""What the workers of one group report about the state of a stateful pipeline.

A worker runs the user's code, so its report is not trusted: what does not look like a report is left out, and
the number of entries is bounded.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from loghub.incomplete_state import IncompleteState, KeptState
from loghub.worker_contract import WorkerStatus

MOST_ENTRIES = 1000  # of all workers of a group together
LATE_S = 3600.0  # how long rows that were dropped as late are reported
_CURSOR = re.compile(r"[A-Za-z0-9+/=]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReports:
    """The shards whose state lacks earlier logs, and the workers that dropped rows as late within an hour,
    with their states. ``continued`` are the shards without a checkpoint that continued by the sink's record,
    with that cursor. ``unread`` are the workers whose report is not known, although they are ready."""

    incomplete: tuple[IncompleteState, ...] = ()
    late: tuple[tuple[str, KeptState], ...] = ()
    continued: tuple[tuple[int, str], ...] = ()
    unread: tuple[str, ...] = ()


NO_STATE_REPORTS = StateReports()


def state_reports(statuses: Mapping[str, WorkerStatus | None], *, ready: Collection[str]) -> StateReports:
    """What these workers report, by shard; ``ready`` are the names of those that are ready."""
    known = [status for name, status in statuses.items() if status is not None and status.consumer == name]
    incomplete = (one for status in known for one in status.incomplete if _CURSOR.fullmatch(one.cursor))
    kept = ((status.consumer, status.state) for status in known if status.state is not None)
    late = sorted((one for one in kept if _is_late(one[1])), key=lambda one: one[0])
    answered = {status.consumer for status in known}
    return StateReports(
        incomplete=tuple(sorted(incomplete, key=lambda one: one.shard)[:MOST_ENTRIES]),
        late=tuple(late[:MOST_ENTRIES]),
        continued=tuple(sorted(_continued(known))[:MOST_ENTRIES]),
        unread=tuple(sorted(name for name in ready if name not in answered)),
    )


def _continued(statuses: Iterable[WorkerStatus]) -> Iterator[tuple[int, str]]:
    for one in (shard for status in statuses for shard in status.shards):
        if one.sink_cursor is not None and _CURSOR.fullmatch(one.sink_cursor):
            yield one.shard, one.sink_cursor


def _is_late(state: KeptState) -> bool:
    return state.late_rows > 0 and state.late_age_s is not None and state.late_age_s < LATE_S
