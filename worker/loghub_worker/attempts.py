"""Which of some log groups make a pipeline fail: the search of a dry run, and what it reports.

A pipeline that fails for some logs is run again for parts of them, down to the log groups that fail by
themselves, as a worker does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loghub.contract.dry_run import REJECTED_SHOWN, DryRunReport, LogSample, RejectedLogs, SampledGroup
from loghub.wire.cursor import encode as encode_cursor
from loghub_consumer.batch import KeptGroup, LogBatch, batch_again, count_logs
from loghub_consumer.errors import FatalError
from loghub_consumer.failure.policy import Cause, Failure


@dataclass(slots=True)
class Attempts:
    """What became of some log groups: `rejected` fail by themselves, `untried` were not looked at any more
    after so many."""

    passed: list[SampledGroup] = field(default_factory=list)
    rejected: list[RejectedLogs] = field(default_factory=list)
    untried: list[SampledGroup] = field(default_factory=list)


def divide(
    groups: Sequence[SampledGroup],
    attempt: Callable[[Sequence[SampledGroup]], Failure | None],
) -> Attempts:
    """Find the log groups for which an attempt fails. `attempt` returns why it failed, or None. Raises
    `FatalError` for a failure of which logs are not the cause: a worker waits then."""
    found, parts = Attempts(), [list(groups)] if groups else []
    while parts:
        if len(found.rejected) >= REJECTED_SHOWN:
            found.untried += [group for left in reversed(parts) for group in left]
            break
        part = parts.pop()
        failure = attempt(part)
        if failure is None:
            found.passed += part
        elif failure.cause is not Cause.REJECTED:
            raise FatalError(failure.reason, failure.message)
        elif len(part) > 1:
            half = len(part) // 2
            parts += [part[half:], part[:half]]
        else:
            found.rejected.append(_rejected(part[0], failure))
    return found


def _rejected(group: SampledGroup, failure: Failure) -> RejectedLogs:
    """A log group that fails by itself."""
    return RejectedLogs(
        shard=group.shard,
        cursor=encode_cursor(group.cursor),
        logs=count_logs(group.log_group),
        reason=failure.reason,
        message=failure.message,
    )


def batches_of(groups: Sequence[SampledGroup]) -> list[LogBatch]:
    """The log groups of each shard as one batch, in the order of the shards."""
    by_shard: dict[int, list[KeptGroup]] = {}
    for group in groups:
        by_shard.setdefault(group.shard, []).append(KeptGroup(group.cursor, group.log_group, None))
    return [batch_again(shard, kept, delivery=1) for shard, kept in sorted(by_shard.items())]


def logs_in(groups: Sequence[SampledGroup]) -> int:
    """The number of logs in these log groups."""
    return sum(count_logs(group.log_group) for group in groups)


def report_of(sample: LogSample, found: Attempts) -> DryRunReport:
    """The part of a report that says what became of the logs."""
    return DryRunReport(
        logs=logs_in(sample.groups),
        done=logs_in(found.passed),
        untried=logs_in(found.untried),
        rejected=found.rejected,
    )
