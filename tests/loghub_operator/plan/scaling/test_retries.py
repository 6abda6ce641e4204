"""Whether workers run for nothing but what waits in the retry logstore: it must be handed over when due."""

from dataclasses import replace
from typing import Any

import pytest

from loghub.wire import cursor as wire_cursor
from loghub_operator.autoscaling.metric_catalog import BY_KEDA_NAME, current_value, is_active
from loghub_operator.metrics.store import UnknownValueError
from loghub_operator.model.actions import ApplyWorkers, DrainWorker
from loghub_operator.model.memory import NO_MEMORY
from loghub_operator.model.observed import Available, ObservedState, OtherLogstore
from tests.loghub_operator.plan.scaling.test_starting_number import observed
from tests.loghub_operator.support.examples import Document, resource
from tests.loghub_operator.support.golden import EPOCH
from tests.loghub_operator.support.rounds import plan

IDLE_S = 60.0
STEP_S = 10
RETRIES: Document = {
    "pipeline": {
        "sql": None,
        "sink": None,
        "processor": {"factory": "a:b", "retryLogstore": {"name": "again"}},
        "onFailure": {"policy": "Skip"},
    },
}
TO_ZERO: Document = {**RETRIES, "scaling": {"mode": "Auto", "scaleToZero": {"idleSeconds": int(IDLE_S)}}}
UNKNOWN = OtherLogstore(error="retry logstore again: LogStoreNotExist, HTTP 404: no")


def idle(retries: OtherLogstore, *, pods: int, at: float = EPOCH) -> ObservedState:
    """Nothing arrives in the logstore, and all of it is consumed."""
    found = observed(pods=pods, replicas=pods, lag=0)
    assert isinstance(found.service, Available)
    end = wire_cursor.encode(7)
    shards = tuple(replace(one, checkpoint=end, end_cursor=end, lag_s=0.0) for one in found.service.shards)
    return replace(found, at_unix_s=at, service=replace(found.service, shards=shards, retries=retries))


def left_at(waiting: dict[float, OtherLogstore]) -> float | None:
    """When the last worker is asked to leave; ``waiting`` has from when on what waits."""
    group, memory, what = resource(TO_ZERO), NO_MEMORY, OtherLogstore(log_groups=0)
    for second in range(0, 1000, STEP_S):
        what = waiting.get(second, what)
        seen = idle(what, pods=1, at=EPOCH + second)
        planned = plan(group, replace(seen, memory=memory), EPOCH + second)
        if any(isinstance(action, DrainWorker) for action in planned.actions):
            return float(second)
        memory = planned.memory
        group = group.model_copy(update={"status": planned.status})
    return None


@pytest.mark.parametrize(
    ("waiting", "leaves"),
    [
        ({0: OtherLogstore(log_groups=0)}, True),
        ({0: OtherLogstore(log_groups=5)}, False),
        ({0: UNKNOWN}, False),
        ({0: OtherLogstore(log_groups=5), 500: OtherLogstore(log_groups=0)}, True),
        ({0: UNKNOWN, 500: OtherLogstore(log_groups=0)}, True),
    ],
)
def test_the_last_worker_leaves_once_nothing_waits_to_be_retried(
    waiting: dict[float, OtherLogstore], leaves: bool
) -> None:
    at = left_at(waiting)
    assert (at is not None) == leaves
    if at is not None:
        assert at >= max(waiting) - STEP_S + IDLE_S, "from when something was seen last"


@pytest.mark.parametrize(
    ("retries", "begins"),
    [(OtherLogstore(log_groups=0), []), (OtherLogstore(log_groups=3), [1]), (UNKNOWN, [1])],
)
def test_a_group_at_zero_starts_for_what_waits_to_be_retried(
    retries: OtherLogstore, begins: list[int]
) -> None:
    """As after an operator of an earlier release, or where another group shares the retry logstore."""
    planned = plan(resource(TO_ZERO), idle(retries, pods=0), EPOCH)
    assert [one.replicas for one in planned.actions if isinstance(one, ApplyWorkers)] == begins


@pytest.mark.parametrize(
    ("retries", "active", "wanted"),
    [
        (OtherLogstore(log_groups=0), False, 0.0),
        (OtherLogstore(log_groups=3), True, 1.0),
        (UNKNOWN, None, None),
    ],
)
def test_another_autoscaler_keeps_a_worker_for_what_waits(
    retries: OtherLogstore, active: bool | None, wanted: float | None
) -> None:
    """Its zero is KEDA's, or that of an HPA; what is unknown is an error, with which both keep the number."""
    group, memory = resource({**RETRIES, "scaling": {"mode": "External"}}), NO_MEMORY
    for second in range(0, 1000, STEP_S):
        seen = idle(retries, pods=1, at=EPOCH + second)
        planned = plan(group, replace(seen, memory=memory), EPOCH + second)
        memory = planned.memory
    readings: Any = planned.metrics

    def known(value: Any) -> Any:
        try:
            return value()
        except UnknownValueError:
            return None

    assert known(lambda: is_active(readings)) is active
    assert known(lambda: current_value(BY_KEDA_NAME["desiredWorkers"], readings)) == wanted


def test_the_status_says_what_waits_and_why_it_is_unknown() -> None:
    rejected = OtherLogstore(log_groups=2)
    found = idle(OtherLogstore(log_groups=5), pods=1)
    assert isinstance(found.service, Available)
    known = plan(
        resource(RETRIES), replace(found, service=replace(found.service, dead_letter=rejected)), EPOCH
    )
    assert (known.status.retry_log_groups, known.status.dead_letter_log_groups) == (5, 2)
    unknown = plan(resource(RETRIES), idle(UNKNOWN, pods=1), EPOCH).status
    assert (unknown.retry_log_groups, unknown.dead_letter_log_groups) == (None, None)
    (lag,) = [one for one in unknown.conditions if one.type == "LagAvailable"]
    assert (lag.status, lag.reason, lag.message) == ("False", "OtherLogstoreUnknown", UNKNOWN.error)
