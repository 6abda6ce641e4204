"""The message of a worker that is stuck is reported in every state of the group."""

import dataclasses

import pytest

from loghub_operator.api.conditions import ConditionType
from loghub_operator.model.observed import WorkerPhase
from tests.loghub_operator.support.golden import FOLDER, Step, steps
from tests.loghub_operator.support.rounds import plan

MESSAGE = "it should have terminated by 10:00; check node n1"


def _drain_requested(story: str) -> Step:
    """The step in which workers are asked to drain."""
    result = steps(FOLDER / f"{story}.yaml")
    return next(step for step in result if any(one["action"] == "DrainWorker" for one in step.actions))


@pytest.mark.parametrize("story", ["suspend-and-resume", "delete-with-group"])
def test_a_worker_stuck_in_terminating_is_reported_while_none_should_run(story: str) -> None:
    step = _drain_requested(story)
    (first, *_) = step.observed.workers
    hangs = dataclasses.replace(
        first, phase=WorkerPhase.STOPPING, ready=False, reason="StuckTerminating", message=MESSAGE
    )
    existing = step.observed.worker_set
    assert existing is not None
    stopped = dataclasses.replace(existing, replicas=0)
    observed = dataclasses.replace(step.observed, workers=(hangs,), worker_set=stopped)
    conditions = plan(step.resource, observed, step.now).status.conditions
    (workers,) = [one for one in conditions if one.type == ConditionType.WORKERS_AVAILABLE]
    assert workers.message.endswith(f"; {first.name}: {MESSAGE}")
