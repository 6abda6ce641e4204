"""Identifies a consumer group within its project."""

from dataclasses import dataclass

from loghub_operator.api.v1alpha1 import LogHubConsumerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    """A consumer group and its logstore."""

    logstore: str
    group: str

    @classmethod
    def of(cls, resource: LogHubConsumerGroup) -> "GroupKey":
        return cls(logstore=resource.spec.logstore, group=resource.group)
