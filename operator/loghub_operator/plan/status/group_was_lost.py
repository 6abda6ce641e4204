"""Condition GroupWasLost: whether shards had no checkpoint and continued by the sink's own record, as the
workers report (docs/sinks.md 7)."""

from loghub_operator.api.conditions import ConditionStatus, ConditionType, ConditionUpdate
from loghub_operator.api.state_reasons import GroupWasLostReason
from loghub_operator.model.state_reports import StateReports
from loghub_operator.plan.listing import listed

MOST_SHARDS = 5  # in a message


def group_was_lost_finding(reports: StateReports) -> ConditionUpdate:
    """Whether the group had no checkpoint of a held shard that the sink has logs of."""
    unread = f"no report from {listed(reports.unread, MOST_SHARDS)}" if reports.unread else ""
    if reports.continued:
        shards = listed((f"shard {shard} at {cursor}" for shard, cursor in reports.continued), MOST_SHARDS)
        rest = len(reports.continued) - MOST_SHARDS
        more = f" and {rest} more shards" if rest > 0 else ""
        message = (
            f"the group had no checkpoint, and the sink has logs: {shards}{more} continued after them, so"
            " none comes twice; to have them again, set spec.resetCheckpoints"
        )
        message = "; ".join(filter(None, (message, unread)))
        return _update("True", GroupWasLostReason.CONTINUED_FROM_SINK, message)
    if unread:
        return _update("Unknown", GroupWasLostReason.LOSS_NOT_REPORTED, unread)
    none = "each shard began at its checkpoint, or is new to the sink"
    return _update("False", GroupWasLostReason.HAS_CHECKPOINTS, none)


def _update(status: ConditionStatus, reason: GroupWasLostReason, message: str) -> ConditionUpdate:
    return ConditionUpdate(type=ConditionType.GROUP_WAS_LOST, status=status, reason=reason, message=message)
