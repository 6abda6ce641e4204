"""Condition GroupWasLost, from what the workers report."""

from dataclasses import replace

from loghub.contract.worker import ShardProgress
from loghub_operator.model.observed import MAX_ENTRIES, StateReports, state_reports
from loghub_operator.plan.status.conditions import group_was_lost_condition
from tests.loghub_operator.support.golden import FOLDER, steps
from tests.loghub_operator.support.rounds import plan
from tests.loghub_operator.support.status_server import worker_status


def progress(shard: int, sink_cursor: str | None = "MTA=") -> ShardProgress:
    return ShardProgress(
        shard=shard,
        cursor=None,
        checkpoint=None,
        logs=0,
        lag_s=None,
        draining=False,
        sink_cursor=sink_cursor,
    )


def test_the_message_names_shards_and_cursors_and_what_to_do() -> None:
    found = group_was_lost_condition(StateReports(continued=((3, "MTA="),), unreported=("access-0",)))
    assert (found.status, found.reason) == ("True", "ContinuedFromSink")
    assert "shard 3 at MTA= continued after them" in found.message
    assert found.message.endswith("set spec.resetCheckpoints; no report from access-0")
    many = group_was_lost_condition(StateReports(continued=tuple((n, "MTA=") for n in range(99))))
    assert "and 94 more shards" in many.message
    assert len(many.message) < 500


def test_without_such_a_shard_it_is_false_or_unknown() -> None:
    assert group_was_lost_condition(StateReports()).status == "False"
    unreported = group_was_lost_condition(StateReports(unreported=("access-0",)))
    assert (unreported.status, unreported.reason) == ("Unknown", "LossNotReported")


def test_only_what_looks_like_a_report_counts_and_it_degrades_nothing() -> None:
    shards = [progress(7), progress(8, None), progress(9, "<script>")]
    many = [progress(n) for n in range(2 * MAX_ENTRIES)]
    statuses = {"access-0": worker_status(shards=shards)}
    assert state_reports(statuses, ready=statuses.keys()).continued == ((7, "MTA="),)
    of_many = state_reports({"access-0": worker_status(shards=many)}, ready=())
    assert len(of_many.continued) == MAX_ENTRIES
    step = list(steps(FOLDER / "first-start.yaml"))[-1]
    observed = replace(step.observed, states=state_reports(statuses, ready=()))
    conditions = {one.type: one for one in plan(step.resource, observed, step.now).status.conditions}
    assert conditions["GroupWasLost"].status == "True"
    assert conditions["Degraded"].reason == "AsExpected"
