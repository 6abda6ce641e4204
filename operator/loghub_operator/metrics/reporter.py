"""The interface through which `reconcile` reports what it observed and how each reconcile ended.

This implementation ignores everything; `loghub_operator.controller.exporters` contains the implementation
that updates the metrics.
"""

from loghub_operator.api.status import Condition
from loghub_operator.model.group_metrics import GroupMetrics


class MetricsReporter:
    """Ignores every report."""

    def observed(self, metrics: GroupMetrics, conditions: tuple[Condition, ...]) -> None:
        """A reconcile observed this."""

    def unobserved(self, namespace: str, name: str, conditions: tuple[Condition, ...]) -> None:
        """A reconcile could not observe the group, and reported these conditions instead, if any."""

    def deleted(self, namespace: str, name: str) -> None:
        """The group is deleted or being deleted."""

    def managed_elsewhere(self, namespace: str, name: str, operator: str) -> None:
        """Another operator manages the group."""

    def group_left_behind(self) -> None:
        """A consumer group was left at its log service although it should be deleted, or its object moved to
        another endpoint.
        """

    def reconciled(self, result: str, seconds: float) -> None:
        """A reconcile ended with ``success``, ``error`` or ``panic``."""
