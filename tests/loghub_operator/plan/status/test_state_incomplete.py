"""Condition StateIncomplete, from what the workers report."""

from dataclasses import replace

import pytest

from loghub.contract.worker import IncompleteState
from loghub_operator.model.observed import MAX_ENTRIES, StateReports, state_reports
from loghub_operator.plan.status.conditions import state_incomplete_condition
from tests.loghub_operator.support.golden import FOLDER, steps
from tests.loghub_operator.support.rounds import plan
from tests.loghub_operator.support.status_server import worker_status


def lacking(shard: int = 3, why: str = "Elsewhere", cursor: str = "MTA=") -> IncompleteState:
    return IncompleteState(shard=shard, cursor=cursor, why=why)


def test_a_pipeline_without_state_lacks_none() -> None:
    found = state_incomplete_condition(StateReports(unreported=("access-0",)), stateful=False)
    assert (found.status, found.reason) == ("False", "NoState")


def test_a_state_with_every_log_is_complete() -> None:
    found = state_incomplete_condition(StateReports(), stateful=True)
    assert (found.status, found.reason) == ("False", "StateComplete")


@pytest.mark.parametrize(
    ("causes", "reason"),
    [
        (("Elsewhere",), "ShardMoved"),
        (("Elsewhere", "Reset"), "CheckpointsReset"),
        (("Reset", "Changed"), "PipelineChanged"),
        (("Changed", "Unusable", "Elsewhere"), "StateUnusable"),
        (("of a newer worker",), "ShardMoved"),
    ],
)
def test_the_reason_is_the_one_that_concerns_most(causes: tuple[str, ...], reason: str) -> None:
    reports = StateReports(incomplete=tuple(lacking(n, why) for n, why in enumerate(causes)))
    found = state_incomplete_condition(reports, stateful=True)
    assert (found.status, found.reason) == ("True", reason)


def test_the_message_names_shards_and_cursors_and_stays_short() -> None:
    one = state_incomplete_condition(StateReports(incomplete=(lacking(),)), stateful=True)
    assert one.message == "the state has the logs of shard 3 from cursor MTA= only"
    many = StateReports(incomplete=tuple(lacking(n) for n in range(99)), unreported=("access-0",))
    found = state_incomplete_condition(many, stateful=True)
    assert "and 94 more shards" in found.message
    assert found.message.endswith("no report from access-0")
    assert len(found.message) < 500


def test_without_the_report_of_a_ready_worker_it_is_unknown() -> None:
    found = state_incomplete_condition(StateReports(unreported=("access-0",)), stateful=True)
    assert (found.status, found.reason) == ("Unknown", "StateNotReported")


def test_reports_are_joined_by_shard_and_what_is_none_is_left_out() -> None:
    statuses = {
        "access-0": worker_status(incomplete=[lacking(7), lacking(8, cursor="<script>")]),
        "access-1": worker_status(
            consumer="access-1", incomplete=[lacking(n) for n in range(2 * MAX_ENTRIES)]
        ),
        "access-2": None,
    }
    found = state_reports(statuses, ready=statuses.keys())
    assert len(found.incomplete) == MAX_ENTRIES
    assert [one.shard for one in found.incomplete] == sorted(one.shard for one in found.incomplete)
    assert all(one.cursor == "MTA=" for one in found.incomplete)
    assert found.unreported == ("access-2",)


def test_a_state_that_lacks_logs_is_reported_and_degrades_nothing() -> None:
    step = list(steps(FOLDER / "first-start.yaml"))[-1]
    spec = step.resource.spec
    pipeline = spec.pipeline.model_copy(update={"stateful": True})
    resource = step.resource.model_copy(update={"spec": spec.model_copy(update={"pipeline": pipeline})})
    observed = replace(step.observed, states=StateReports(incomplete=(lacking(),)))
    conditions = {one.type: one for one in plan(resource, observed, step.now).status.conditions}
    assert (conditions["StateIncomplete"].status, conditions["StateIncomplete"].reason) == (
        "True",
        "ShardMoved",
    )
    assert conditions["Degraded"].reason == "AsExpected"
