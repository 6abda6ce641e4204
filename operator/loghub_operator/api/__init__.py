"""The custom resource: its models, its rules, its CRD."""

from loghub_operator.api.documents import resources_in
from loghub_operator.api.parse import InvalidResourceError, Problem, parse_resource, parse_stored
from loghub_operator.api.status import Phase, ShardStatus, Status
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup

__all__ = [
    "InvalidResourceError",
    "LogHubConsumerGroup",
    "Phase",
    "Problem",
    "ShardStatus",
    "Status",
    "parse_resource",
    "parse_stored",
    "resources_in",
]
