"""The result of planning: actions, status, and what the next reconcile needs to remember."""

from dataclasses import dataclass

from loghub_operator.api.status import Status
from loghub_operator.model.actions import Action
from loghub_operator.model.group_metrics import GroupMetrics
from loghub_operator.model.memory import NO_MEMORY, Memory
from loghub_operator.model.observed import Peer


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order, and what to report."""

    actions: tuple[Action, ...]
    status: Status
    metrics: GroupMetrics | None = None  # for Prometheus and autoscalers; None during a deletion
    memory: Memory = NO_MEMORY  # for the next reconcile, if all actions are carried out
    owner: Peer | None = None  # another object that owns the group; for the operator's log, not for users
