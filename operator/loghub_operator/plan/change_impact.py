"""What a change costs: nothing, other numbers, a word to the log service, or new pods.

What for: workers are restarted only where they must be, and a person is told which it was. What it
must not know: the fields of the spec; what they come to is compared. Read next:
`loghub_operator.plan.planner`.

A worker reads its settings once, at its start, so every setting of a worker rolls. Taken by what
runs are the credentials (the worker reads the mounted Secret again) and what the log service alone
needs to know: the order of a group's shards.
"""

from dataclasses import dataclass
from enum import StrEnum

from loghub_operator.model.observed import GroupObserved


class ChangeImpact(StrEnum):
    """From the cheapest to the dearest.

    NONE: nothing about workers or group. SCALE: another number of the same workers. RELOAD: the log
    service is told, and no worker is restarted. ROLL: the workers are restarted one at a time, each
    while it stays a member, so that no shard moves where a restart takes less than the group's timeout.
    """

    NONE = "none"
    SCALE = "scale"
    RELOAD = "reload"
    ROLL = "roll"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What runs, or should: all that a spec comes to for the workers and their group."""

    replicas: int
    group: GroupObserved | None
    pods: str  # equal for pods that need not be replaced by one another


def change_class(old: Running, new: Running) -> ChangeImpact:
    """The dearest that is needed to get from one to the other."""
    if old.pods != new.pods:
        return ChangeImpact.ROLL
    if old.group != new.group:
        return ChangeImpact.RELOAD
    return ChangeImpact.NONE if old.replicas == new.replicas else ChangeImpact.SCALE
