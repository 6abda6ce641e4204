"""What the workers of one group report about logs that they cannot deliver.

A worker runs the user's code, so its report is not trusted: what does not look like a report is left out, and
the number of entries is bounded.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from loghub.error_class import is_error_class
from loghub.worker_contract import LONGEST_REASON, FailingShard, SkippedLogGroups, WorkerStatus

MOST_ENTRIES = 1000  # of all workers of a group together
T = TypeVar("T", FailingShard, SkippedLogGroups)
_CURSOR = re.compile(r"[A-Za-z0-9+/=]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFailures:
    """The failing shards of a group. ``unread`` are the workers whose report is not known, although they are
    ready."""

    failing: tuple[FailingShard, ...] = ()
    skipped: tuple[SkippedLogGroups, ...] = ()
    unread: tuple[str, ...] = ()


NO_FAILURES = ShardFailures()


def shard_failures(statuses: Mapping[str, WorkerStatus | None], *, ready: Collection[str]) -> ShardFailures:
    """What these workers report, by shard; ``ready`` are the names of those that are ready."""
    known = [status for name, status in statuses.items() if status is not None and status.consumer == name]
    failing = (_checked(one) for status in known for one in status.failing if _is_failing(one))
    skipped = (one for status in known for one in status.skipped if _CURSOR.fullmatch(one.last_cursor))
    answered = {status.consumer for status in known}
    return ShardFailures(
        failing=_first(failing),
        skipped=_first(skipped),
        unread=tuple(sorted(name for name in ready if name not in answered)),
    )


def _is_failing(one: FailingShard) -> bool:
    is_reason = one.reason.isalnum() and len(one.reason) <= LONGEST_REASON
    return is_reason and _CURSOR.fullmatch(one.cursor) is not None


def _checked(one: FailingShard) -> FailingShard:
    """A shard that fails is not hidden by a class that is none, perhaps of a newer worker."""
    return one if is_error_class(one.error) else msgspec.structs.replace(one, error="")


def _first(entries: Iterable[T]) -> tuple[T, ...]:
    return tuple(sorted(entries, key=lambda one: one.shard)[:MOST_ENTRIES])
