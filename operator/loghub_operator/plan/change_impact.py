"""Classifies what a changed spec requires: nothing, another number of workers, a group update, or new pods.

Workers restart only if a change requires it, and an event reports which case applies. The module compares
what two specs amount to, not their fields. A worker reads its settings once, at startup, so every changed
setting of a worker causes a rolling restart. Two changes need no restart: credentials, because a worker reads
the mounted Secret again, and settings that only the log service needs to know, such as the order of a group's
shards.
"""

from dataclasses import dataclass
from enum import StrEnum

from loghub_operator.model.observed import GroupSettings
from loghub_operator.model.revision import Revision


class ChangeImpact(StrEnum):
    """From the cheapest to the most expensive.

    NONE: neither the workers nor the group change. SCALE: only the number of workers changes. RELOAD: the
    group is updated at the log service, and no worker restarts. ROLL: the workers restart one at a time, and
    each keeps its membership, so that no shard is reassigned if a restart takes less than the group's
    timeout.
    """

    NONE = "none"
    SCALE = "scale"
    RELOAD = "reload"
    ROLL = "roll"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What a spec amounts to for the workers and their group, as it runs or as it should run."""

    replicas: int
    group: GroupSettings | None
    revision: Revision


def change_impact(old: Running, new: Running) -> ChangeImpact:
    """The most expensive impact that is needed to get from ``old`` to ``new``."""
    if not old.revision.same_workers(new.revision):
        return ChangeImpact.ROLL
    if old.group != new.group:
        return ChangeImpact.RELOAD
    return ChangeImpact.NONE if old.replicas == new.replicas else ChangeImpact.SCALE
