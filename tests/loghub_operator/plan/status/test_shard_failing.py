"""Condition ShardFailing, from what the workers report."""

from dataclasses import replace

import pytest

from loghub.contract.worker import FailingShard, SkippedLogGroups
from loghub_operator.model.observed import MAX_ENTRIES, ShardFailures, shard_failures
from loghub_operator.plan.status.conditions import shard_failing_condition
from tests.loghub_operator.support.golden import FOLDER, steps
from tests.loghub_operator.support.rounds import plan
from tests.loghub_operator.support.status_server import worker_status


def failing(shard: int = 3, state: str = "retrying", **changes: str) -> FailingShard:
    values = {"cursor": "MTA=", "reason": "PipelineFailed"} | changes
    return FailingShard(shard=shard, state=state, attempts=5, **values)


def skipped(shard: int = 4, *, dead_lettered: bool = False, last_cursor: str = "MTE=") -> SkippedLogGroups:
    return SkippedLogGroups(shard=shard, log_groups=2, last_cursor=last_cursor, dead_lettered=dead_lettered)


def test_without_reports_of_failures_no_shard_is_failing() -> None:
    found = shard_failing_condition(ShardFailures())
    assert (found.status, found.reason, found.message) == ("False", "NoShardFailing", "every shard is read")


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        (("retrying",), "RetryingLogGroup"),
        (("retrying", "settling"), "DeadLetterPending"),
        (("settling", "limited"), "FailureLimitReached"),
        (("limited", "stopped", "retrying"), "ShardStopped"),
        (("of a newer worker",), "RetryingLogGroup"),
    ],
)
def test_the_reason_is_that_of_the_shard_that_needs_most_attention(
    states: tuple[str, ...], reason: str
) -> None:
    shards = tuple(failing(number, state) for number, state in enumerate(states))
    found = shard_failing_condition(ShardFailures(failing=shards))
    assert (found.status, found.reason) == ("True", reason)


def test_the_message_names_shard_and_cursor_and_what_was_skipped() -> None:
    found = shard_failing_condition(ShardFailures(failing=(failing(),), skipped=(skipped(),)))
    assert found.message == (
        "waiting: shard 3 at cursor MTA= (PipelineFailed, 5 attempts); "
        "in the last hour: 2 log groups of shard 4 skipped, the last at cursor MTE="
    )


def test_the_message_has_the_class_of_the_error() -> None:
    found = shard_failing_condition(ShardFailures(failing=(failing(error="CAST_INVALID_INPUT"),)))
    assert found.message == "waiting: shard 3 at cursor MTA= (PipelineFailed, CAST_INVALID_INPUT, 5 attempts)"


def test_many_shards_make_no_longer_message() -> None:
    found = shard_failing_condition(ShardFailures(failing=tuple(failing(n) for n in range(99))))
    assert found.message.endswith("and 94 more shards")
    assert len(found.message) < 500


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ((skipped(dead_lettered=True),), "DataDeadLettered"),
        ((skipped(dead_lettered=True), skipped(5)), "DataSkipped"),
    ],
)
def test_skipped_data_is_reported_although_no_shard_waits(
    entries: tuple[SkippedLogGroups, ...], reason: str
) -> None:
    found = shard_failing_condition(ShardFailures(skipped=entries))
    assert (found.status, found.reason) == ("True", reason)


def test_without_the_report_of_a_ready_worker_it_is_unknown() -> None:
    found = shard_failing_condition(ShardFailures(unreported=("access-0",)))
    assert (found.status, found.reason) == ("Unknown", "NotReported")
    assert found.message == "no report from access-0"
    other = shard_failing_condition(ShardFailures(failing=(failing(),), unreported=("access-0",)))
    assert (other.status, other.reason) == ("True", "RetryingLogGroup")


@pytest.mark.parametrize(
    ("failures", "degraded"),
    [
        (ShardFailures(failing=(failing(state="stopped"),)), "ShardFailing"),
        (ShardFailures(skipped=(skipped(),)), "AsExpected"),
        (ShardFailures(unreported=("access-0",)), "AsExpected"),
    ],
)
def test_a_shard_that_waits_degrades_the_group_and_leaves_it_ready(
    failures: ShardFailures, degraded: str
) -> None:
    step = list(steps(FOLDER / "first-start.yaml"))[-1]
    status = plan(step.resource, replace(step.observed, failures=failures), step.now).status
    conditions = {condition.type: condition for condition in status.conditions}
    assert conditions["Degraded"].reason == degraded
    assert conditions["Ready"].status == "True"
    assert status.phase == ("Degraded" if degraded == "ShardFailing" else "Running")


def test_reports_of_several_workers_are_joined_by_shard() -> None:
    statuses = {
        "access-0": worker_status(failing=[failing(7)], skipped=[skipped(9)]),
        "access-1": worker_status(consumer="access-1", failing=[failing(2)]),
        "access-2": None,
        "access-3": None,
    }
    assert shard_failures(statuses, ready={"access-0", "access-1", "access-2"}) == ShardFailures(
        failing=(failing(2), failing(7)), skipped=(skipped(9),), unreported=("access-2",)
    )


def test_the_answer_of_another_worker_counts_as_no_answer() -> None:
    status = worker_status(consumer="other-0", failing=[failing()])
    assert shard_failures({"access-0": status}, ready={"access-0"}) == ShardFailures(unreported=("access-0",))


def test_what_does_not_look_like_a_report_is_left_out() -> None:
    """The worker runs the user's code, and its answer must not become any text of the status."""
    strange = [
        failing(reason="Look here: http://x"),
        failing(reason="x" * 65),
        failing(reason=""),
        failing(cursor="a b"),
        failing(cursor="A" * 65),
    ]
    status = worker_status(failing=strange, skipped=[skipped(last_cursor="")])
    assert shard_failures({"access-0": status}, ready=()) == ShardFailures()
    status = worker_status(failing=[failing(error="the value 'alice@example.com'")])
    assert shard_failures({"access-0": status}, ready=()) == ShardFailures(failing=(failing(),))
    status = worker_status(failing=[failing(n) for n in range(2 * MAX_ENTRIES)])
    assert len(shard_failures({"access-0": status}, ready=()).failing) == MAX_ENTRIES
