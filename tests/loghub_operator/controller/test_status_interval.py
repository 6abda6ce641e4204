"""How often a status is written that says nothing new but numbers and texts."""

import asyncio
import json
from typing import Any

from loghub.clock import SystemClock
from loghub_operator.api import Status
from loghub_operator.controller.app import Operator, OperatorConnections
from loghub_operator.controller.exporters import Exporters
from loghub_operator.controller.reconciler import Intervals, Reconciler, _GroupState
from loghub_operator.leader.lease import LeaseTimings
from loghub_operator.model.actions import CreateGroup
from loghub_operator.plan.status.builder import with_failure
from loghub_operator.settings import Settings
from tests.loghub_operator.controller.test_reconciler import Stage
from tests.loghub_operator.support.golden import all_steps


def test_the_administrator_chooses_how_often_numbers_alone_are_written() -> None:
    """The step writes once; what it would write a moment later differs in a message."""
    step = next(
        step for step in all_steps() if any(one["action"] == CreateGroup.__name__ for one in step.actions)
    )
    planned = Status.model_validate_json(json.dumps(step.status))
    stored = with_failure(planned, "refused", 0.0, before=planned, deadline_s=600)
    again = with_failure(planned, "refused again", 0.0, before=planned, deadline_s=600)

    async def writes(every_s: float) -> int:
        stage = Stage(step)
        parts: Any = stage
        reconciler = Reconciler(
            kube=parts,
            observer=parts,
            applier=parts,
            clock=parts,
            intervals=Intervals(resync_s=1.0, numbers_every_s=every_s),
        )
        state = _GroupState(written_monotonic_s=parts.monotonic_s())
        resource = step.resource.model_copy(update={"status": stored})
        assert await reconciler._report(resource, again, state) == bool(stage.written)
        return len(stage.written)

    assert [asyncio.run(writes(every_s)) for every_s in (0.0, 60.0)] == [1, 0]


def test_the_operator_gives_its_reconciler_both_intervals_of_its_environment() -> None:
    environment = {"LOGHUB_RESYNC_SECONDS": "11", "LOGHUB_STATUS_INTERVAL_SECONDS": "7.5"}
    settings, clock = Settings.from_environment(environment), SystemClock()
    unused: Any = None  # nothing is called before the operator runs
    operator = Operator(
        settings,
        connections=OperatorConnections(kube=unused, login=unused, connect=unused),
        clock=clock,
        timings=LeaseTimings(),
        exporters=Exporters(settings, clock),
    )
    assert operator._reconciler._intervals == Intervals(resync_s=11.0, numbers_every_s=7.5)
