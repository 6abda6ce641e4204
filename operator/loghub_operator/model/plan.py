"""The result of planning: actions, status, and what the next reconcile needs to remember."""

from dataclasses import dataclass

from loghub_operator.api.status import Status
from loghub_operator.model.actions import Action
from loghub_operator.model.drift_state import NO_DRIFT_HISTORY, DriftHistory
from loghub_operator.model.group_metrics import GroupMetrics
from loghub_operator.model.scaling_state import NOTHING, ScalingState


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order, and what to report."""

    actions: tuple[Action, ...]
    status: Status
    readings: GroupMetrics | None = None  # for metrics and autoscalers; None during a deletion
    memory: ScalingState = NOTHING  # for the next reconcile
    mends: DriftHistory = NO_DRIFT_HISTORY  # the same, if all actions were carried out
