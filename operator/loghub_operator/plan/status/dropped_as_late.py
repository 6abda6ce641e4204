"""Condition LogsDroppedAsLate: whether a stateful pipeline dropped rows as late, as the workers report."""

from datetime import UTC, datetime

from loghub.incomplete_state import KeptState
from loghub_operator.api.conditions import ConditionStatus, ConditionType, ConditionUpdate
from loghub_operator.api.state_reasons import LateReason
from loghub_operator.model.state_reports import StateReports
from loghub_operator.plan.listing import listed

MOST_WORKERS = 5  # in a message
END_OF_TIME_S = 253_402_300_800  # the year 10000, which Python cannot represent


def dropped_as_late_finding(reports: StateReports, *, stateful: bool) -> ConditionUpdate:
    """Whether a worker dropped rows that lay behind the watermark, within the last hour."""
    if not stateful:
        return _update("False", LateReason.NOTHING_LATE, "the pipeline keeps no state")
    unread = f"no report from {listed(reports.unread, MOST_WORKERS)}" if reports.unread else ""
    if reports.late:
        is_ahead = any(state.is_ahead for _, state in reports.late)
        reason = LateReason.WATERMARK_AHEAD if is_ahead else LateReason.DROPPED_AS_LATE
        dropped = listed((_dropped(name, state) for name, state in reports.late), MOST_WORKERS)
        more = len(reports.late) - MOST_WORKERS
        dropped += f" and {more} more workers" if more > 0 else ""
        return _update("True", reason, "; ".join(filter(None, (dropped, unread))))
    if unread:
        return _update("Unknown", LateReason.LATE_NOT_REPORTED, unread)
    return _update("False", LateReason.NOTHING_LATE, "no row was dropped as late within the last hour")


def _dropped(name: str, state: KeptState) -> str:
    return f"{name} dropped {state.late_rows} rows as late (watermark {_time(state.watermark_s)})"


def _time(unix_s: float | None) -> str:
    if unix_s is None or not 0 <= unix_s < END_OF_TIME_S:
        return "unknown" if unix_s is None else f"{unix_s:.0f} unix seconds"
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _update(status: ConditionStatus, reason: LateReason, message: str) -> ConditionUpdate:
    kind = ConditionType.LOGS_DROPPED_AS_LATE
    return ConditionUpdate(type=kind, status=status, reason=reason, message=message)
