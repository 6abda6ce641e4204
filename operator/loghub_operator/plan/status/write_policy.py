"""Decides whether a new status differs enough from the old one to be written."""

from typing import Any

from loghub_operator.api.status import Status

LAG_EVERY_S = 10.0
_TIMES = ("observedAt", "checkpointAgeSeconds")
_MOVING = ("lag", "lagSeconds", "lagLogs", "checkpoint", "message", "inputs", "uncappedReplicas", "formula")


def worth_writing(old: Status, new: Status, *, since_last_s: float) -> bool:
    """Whether the new status says something that the old one does not, and whether it is time to write it."""
    before, after = _without(_TIMES, old.to_dict()), _without(_TIMES, new.to_dict())
    if before == after:
        return False
    return _without(_MOVING, before) != _without(_MOVING, after) or since_last_s >= LAG_EVERY_S


def _without(names: tuple[str, ...], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(names, part) for key, part in value.items() if key not in names}
    if isinstance(value, list):
        return [_without(names, part) for part in value]
    return value
