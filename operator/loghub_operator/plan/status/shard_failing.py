"""Condition ShardFailing: whether logs cannot be delivered, from the reports of the workers."""

from collections.abc import Iterable, Iterator

from loghub.worker_contract import FailingShard, SkippedLogGroups
from loghub_operator.api.conditions import (
    ConditionStatus,
    ConditionType,
    ConditionUpdate,
    ShardFailingReason,
)
from loghub_operator.model.shard_failures import ShardFailures
from loghub_operator.plan.listing import listed

MOST_SHARDS = 5  # in a message
# By what a shard waits for (`loghub.worker_contract`); the first that applies to any shard is the reason.
_WAITING = (
    ("stopped", ShardFailingReason.SHARD_STOPPED),
    ("limited", ShardFailingReason.FAILURE_LIMIT_REACHED),
    ("settling", ShardFailingReason.DEAD_LETTER_PENDING),
    ("retrying", ShardFailingReason.RETRYING_LOG_GROUP),
)


def shard_failing_finding(failures: ShardFailures) -> ConditionUpdate:
    """Whether a shard waits at a log group that cannot be delivered, or one was skipped within an hour."""
    return ConditionUpdate(
        type=ConditionType.SHARD_FAILING,
        status=_status(failures),
        reason=_reason(failures),
        message="; ".join(_sentences(failures)) or "every shard is read",
    )


def waits(failures: ShardFailures) -> bool:
    """Whether a shard waits, which does not pass by itself."""
    return bool(failures.failing)


def _status(failures: ShardFailures) -> ConditionStatus:
    if failures.failing or failures.skipped:
        return "True"
    return "Unknown" if failures.unread else "False"


def _reason(failures: ShardFailures) -> ShardFailingReason:
    states = {one.state for one in failures.failing}
    if states:
        known = (reason for state, reason in _WAITING if state in states)
        return next(known, ShardFailingReason.RETRYING_LOG_GROUP)  # a newer worker may have other states
    if failures.skipped:
        kept = all(one.dead_lettered for one in failures.skipped)
        return ShardFailingReason.DATA_DEAD_LETTERED if kept else ShardFailingReason.DATA_SKIPPED
    return ShardFailingReason.NOT_REPORTED if failures.unread else ShardFailingReason.NO_SHARD_FAILING


def _sentences(failures: ShardFailures) -> Iterator[str]:
    if failures.failing:
        yield f"waiting: {_listed(map(_waiting, failures.failing), len(failures.failing))}"
    if failures.skipped:
        yield f"in the last hour: {_listed(map(_skipped, failures.skipped), len(failures.skipped))}"
    if failures.unread:
        yield f"no report from {listed(failures.unread, MOST_SHARDS)}"


def _listed(texts: Iterable[str], count: int) -> str:
    more = f" and {count - MOST_SHARDS} more shards" if count > MOST_SHARDS else ""
    return f"{listed(texts, MOST_SHARDS)}{more}"


def _waiting(one: FailingShard) -> str:
    why = f"{one.reason}, {one.error}" if one.error else one.reason
    return f"shard {one.shard} at cursor {one.cursor} ({why}, {one.attempts} attempts)"


def _skipped(one: SkippedLogGroups) -> str:
    done = "dead-lettered" if one.dead_lettered else "skipped"
    return f"{one.log_groups} log groups of shard {one.shard} {done}, the last at cursor {one.last_cursor}"
