"""The custom resource: its models, its rules, its CRD."""

from loghub_operator.api.parse import InvalidResourceError, Problem, parse_resource, resources_in
from loghub_operator.api.status import Condition, Phase, ShardStatus, Status
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup, Spec

__all__ = [
    "Condition",
    "InvalidResourceError",
    "LogHubConsumerGroup",
    "Phase",
    "Problem",
    "ShardStatus",
    "Spec",
    "Status",
    "parse_resource",
    "resources_in",
]
