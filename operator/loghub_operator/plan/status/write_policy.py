"""Decides whether a new status differs enough from the old one to be written."""

from typing import Any

from loghub_operator.api.status import NUMBERS_EVERY_S, Status

_TIMES = frozenset({"observedAt", "checkpointAgeSeconds"})
_MOVING = frozenset(
    {
        "lag",
        "retryLogGroups",
        "deadLetterLogGroups",
        "lagSeconds",
        "lagLogs",
        "checkpoint",
        "message",
        "inputs",
        "uncappedReplicas",
        "formula",
    }
)


def worth_writing(
    old: Status, new: Status, *, since_last_s: float, numbers_every_s: float = NUMBERS_EVERY_S
) -> bool:
    """Whether the new status says something that the old one does not, and whether it is time to write it."""
    before, after = old.to_dict(), new.to_dict()
    if _same(before, after, without=_TIMES):
        return False
    return since_last_s >= numbers_every_s or not _same(before, after, without=_TIMES | _MOVING)


def _same(one: Any, other: Any, *, without: frozenset[str]) -> bool:
    if one == other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        names = one.keys() - without
        return names == other.keys() - without and all(
            _same(one[name], other[name], without=without) for name in names
        )
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return all(_same(a, b, without=without) for a, b in zip(one, other, strict=True))
    return False
