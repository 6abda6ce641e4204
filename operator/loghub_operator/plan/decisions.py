"""Everything that one reconcile decided, from which its events and its status are built."""

from dataclasses import dataclass

from loghub_operator.api.conditions import ConditionUpdate
from loghub_operator.api.status import CheckpointResetStatus
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import ObservedState
from loghub_operator.plan.change_impact import ChangeImpact
from loghub_operator.plan.desired import Desired
from loghub_operator.plan.drift_backoff import DriftBackoff
from loghub_operator.plan.rollout import Rollout
from loghub_operator.plan.scaling.autoscaler import ScalingDecision
from loghub_operator.plan.scaling_steps import ReplicaPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """``group`` is condition GroupSynced, and ``reset`` how far a checkpoint reset is now. ``impact`` is that
    of getting from what runs to what should run.
    """

    resource: LogHubConsumerGroup
    observed: ObservedState
    desired: Desired
    scaling: ScalingDecision
    replicas: ReplicaPlan
    rollout: Rollout
    impact: ChangeImpact
    drift: DriftBackoff
    group: ConditionUpdate
    reset: CheckpointResetStatus | None
