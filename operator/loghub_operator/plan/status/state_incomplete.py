"""Condition StateIncomplete: whether the state of a stateful pipeline lacks logs, as the workers report."""

from collections.abc import Iterable

from loghub.incomplete_state import IncompleteState
from loghub_operator.api.conditions import ConditionStatus, ConditionType, ConditionUpdate
from loghub_operator.api.state_reasons import StateIncompleteReason
from loghub_operator.model.state_reports import StateReports
from loghub_operator.plan.listing import listed

MOST_SHARDS = 5  # in a message
# By what the workers report (`loghub.incomplete_state`); the first that applies to any shard is the reason.
_REASONS = (
    ("Unusable", StateIncompleteReason.STATE_UNUSABLE),
    ("Changed", StateIncompleteReason.PIPELINE_CHANGED),
    ("Reset", StateIncompleteReason.CHECKPOINTS_RESET),
    ("Elsewhere", StateIncompleteReason.SHARD_MOVED),
)


def state_incomplete_finding(reports: StateReports, *, stateful: bool) -> ConditionUpdate:
    """Whether the state of a held shard lacks logs that were read before."""
    if not stateful:
        return _update("False", StateIncompleteReason.NO_STATE, "the pipeline keeps no state")
    unread = f"no report from {listed(reports.unread, MOST_SHARDS)}" if reports.unread else ""
    if reports.incomplete:
        message = f"the state has the logs of {_shards(reports.incomplete)} only"
        return _update("True", _reason(reports.incomplete), "; ".join(filter(None, (message, unread))))
    if unread:
        return _update("Unknown", StateIncompleteReason.STATE_NOT_REPORTED, unread)
    return _update("False", StateIncompleteReason.STATE_COMPLETE, "the state has the logs of each shard")


def _update(status: ConditionStatus, reason: StateIncompleteReason, message: str) -> ConditionUpdate:
    return ConditionUpdate(type=ConditionType.STATE_INCOMPLETE, status=status, reason=reason, message=message)


def _reason(incomplete: Iterable[IncompleteState]) -> StateIncompleteReason:
    reported = {one.why for one in incomplete}
    known = (reason for why, reason in _REASONS if why in reported)
    return next(known, StateIncompleteReason.SHARD_MOVED)  # a newer worker may have other causes


def _shards(incomplete: tuple[IncompleteState, ...]) -> str:
    texts = (f"shard {one.shard} from cursor {one.cursor}" for one in incomplete)
    more = f" and {len(incomplete) - MOST_SHARDS} more shards" if len(incomplete) > MOST_SHARDS else ""
    return f"{listed(texts, MOST_SHARDS)}{more}"
