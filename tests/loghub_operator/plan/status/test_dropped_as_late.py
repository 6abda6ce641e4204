"""Condition LogsDroppedAsLate, from what the workers report."""

from dataclasses import replace

import pytest

from loghub.contract.worker import KeptState
from loghub_operator.model.observed import StateReports, state_reports
from loghub_operator.plan.status.conditions import dropped_as_late_condition
from tests.loghub_operator.support.golden import FOLDER, steps
from tests.loghub_operator.support.rounds import plan
from tests.loghub_operator.support.status_server import worker_status


def kept(
    late_rows: int = 7, *, age_s: float | None = 60.0, watermark_s: float | None = 1e9, is_ahead: bool = False
) -> KeptState:
    return KeptState(
        rows=5, bytes=6, watermark_s=watermark_s, late_rows=late_rows, late_age_s=age_s, is_ahead=is_ahead
    )


@pytest.mark.parametrize(
    ("state", "is_late"),
    [
        (kept(), True),
        (kept(age_s=3599.0), True),
        (kept(age_s=3600.0), False),
        (kept(0, age_s=None), False),
        (kept(-1), False),
        (None, False),
    ],
)
def test_it_is_true_for_an_hour_after_the_last_row(state: KeptState | None, is_late: bool) -> None:
    reports = state_reports({"access-0": worker_status(state=state)}, ready=["access-0"])
    found = dropped_as_late_condition(reports, stateful=True)
    assert (found.status, found.reason) == (
        ("True", "DroppedAsLate") if is_late else ("False", "NothingLate")
    )


@pytest.mark.parametrize(
    ("watermark_s", "text"),
    [(1e9, "2001-09-09T01:46:40Z"), (None, "unknown"), (1e15, "1000000000000000 unix seconds")],
)
def test_the_message_names_worker_rows_and_watermark(watermark_s: float | None, text: str) -> None:
    reports = StateReports(late=(("access-0", kept(watermark_s=watermark_s)),))
    found = dropped_as_late_condition(reports, stateful=True)
    assert found.message == f"access-0 dropped 7 rows as late (watermark {text})"


def test_a_watermark_after_the_receipt_has_a_reason_of_its_own_and_the_message_stays_short() -> None:
    late = (*((f"access-{n}", kept()) for n in range(99)), ("access-99", kept(is_ahead=True)))
    found = dropped_as_late_condition(StateReports(late=late, unreported=("access-100",)), stateful=True)
    assert (found.status, found.reason) == ("True", "WatermarkAhead")
    assert "and 95 more workers" in found.message
    assert found.message.endswith("no report from access-100")
    assert len(found.message) < 700


def test_without_the_report_of_a_ready_worker_it_is_unknown_and_without_state_nothing_is_late() -> None:
    statuses = {"access-0": None, "access-1": worker_status(consumer="access-1")}
    unreported = state_reports(statuses, ready=("access-0", "access-1"))
    assert unreported == StateReports(unreported=("access-0",))
    found = dropped_as_late_condition(unreported, stateful=True)
    assert (found.status, found.reason) == ("Unknown", "LateNotReported")
    found = dropped_as_late_condition(unreported, stateful=False)
    assert (found.status, found.reason) == ("False", "NothingLate")


def test_it_is_in_the_status_and_degrades_nothing() -> None:
    step = list(steps(FOLDER / "first-start.yaml"))[-1]
    spec = step.resource.spec
    pipeline = spec.pipeline.model_copy(update={"stateful": True})
    resource = step.resource.model_copy(update={"spec": spec.model_copy(update={"pipeline": pipeline})})
    observed = replace(step.observed, states=StateReports(late=(("access-0", kept()),)))
    conditions = {one.type: one for one in plan(resource, observed, step.now).status.conditions}
    assert conditions["LogsDroppedAsLate"].reason == "DroppedAsLate"
    assert conditions["Degraded"].reason == "AsExpected"
