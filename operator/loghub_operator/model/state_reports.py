"""What the workers of one group report about the state of a stateful pipeline.

A worker runs the user's code, so its report is not trusted: what does not look like a report is left out, and
the number of entries is bounded.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from loghub.incomplete_state import IncompleteState
from loghub.worker_contract import WorkerStatus

MOST_ENTRIES = 1000  # of all workers of a group together
_CURSOR = re.compile(r"[A-Za-z0-9+/=]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReports:
    """The shards whose state lacks earlier logs. ``unread`` are the workers whose report is not known,
    although they are ready."""

    incomplete: tuple[IncompleteState, ...] = ()
    unread: tuple[str, ...] = ()


NO_STATE_REPORTS = StateReports()


def state_reports(statuses: Mapping[str, WorkerStatus | None], *, ready: Collection[str]) -> StateReports:
    """What these workers report, by shard; ``ready`` are the names of those that are ready."""
    known = [status for name, status in statuses.items() if status is not None and status.consumer == name]
    incomplete = (one for status in known for one in status.incomplete if _CURSOR.fullmatch(one.cursor))
    answered = {status.consumer for status in known}
    return StateReports(
        incomplete=tuple(sorted(incomplete, key=lambda one: one.shard)[:MOST_ENTRIES]),
        unread=tuple(sorted(name for name in ready if name not in answered)),
    )
