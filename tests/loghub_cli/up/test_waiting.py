"""`--wait-for` means what its exit status says, and a signal ends every step."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from loghub_cli.up.snapshot import GroupSnapshot
from loghub_cli.up.stopping import Interrupted, stopped_by_signals
from loghub_cli.up.waiting import CAUGHT_UP, READY, WaitFor
from loghub_operator.api import Phase, Status
from loghub_operator.api.conditions import ConditionType, SuspendedReason, rfc3339
from loghub_operator.api.status import Condition, Lag

BEGIN = 1_800_000_000.5


def snapshot(*, ready: bool, stalled_s: float | None = None, lag: int | None = None) -> GroupSnapshot:
    def condition(kind: str, status: str, at: float) -> Condition:
        return Condition(
            type=kind, status=status, reason="Because", message=kind, last_transition_time=rfc3339(at)
        )  # type: ignore[arg-type]

    conditions = [condition("Ready", "True" if ready else "False", BEGIN)]
    if stalled_s is not None:
        conditions.append(condition("Stalled", "True", stalled_s))
    behind = None if lag is None else Lag(logs=lag)
    status = Status(
        phase=Phase.RUNNING if ready else Phase.DEGRADED, conditions=tuple(conditions), lag=behind
    )
    return GroupSnapshot(at_unix_s=BEGIN, status=status, workers=())


@pytest.mark.parametrize(
    ("state", "seen", "reached", "hopeless"),
    [
        (READY, snapshot(ready=True), True, False),
        (READY, snapshot(ready=False), False, False),
        (READY, snapshot(ready=False, stalled_s=BEGIN + 1), False, True),
        (READY, snapshot(ready=False, stalled_s=BEGIN - 3600), False, False),
        (CAUGHT_UP, snapshot(ready=True, lag=3), False, False),
        (CAUGHT_UP, snapshot(ready=True), False, False),
        (CAUGHT_UP, snapshot(ready=True, lag=0), True, False),
        (None, snapshot(ready=True, lag=0), False, False),
        (None, snapshot(ready=False, stalled_s=BEGIN + 1), False, False),
    ],
)
def test_a_state_is_reached_or_hopeless(
    state: str | None, seen: GroupSnapshot, reached: bool, hopeless: bool
) -> None:
    wait = WaitFor(state, BEGIN)
    assert (wait.is_reached(seen), wait.is_hopeless(seen)) == (reached, hopeless)


@pytest.mark.parametrize("state", [READY, CAUGHT_UP, None])
@pytest.mark.parametrize("why", list(SuspendedReason))
def test_a_group_that_its_spec_suspends_does_not_catch_up(state: str | None, why: SuspendedReason) -> None:
    """Nobody would end the wait for it. Any other suspension ends by itself, or is no ready group."""
    ready = snapshot(ready=True, lag=3)
    suspended = ready.status.conditions[0].model_copy(
        update={"type": ConditionType.SUSPENDED, "reason": why, "message": "because"}
    )
    status = ready.status.model_copy(
        update={"phase": Phase.SUSPENDED, "conditions": (*ready.status.conditions, suspended)}
    )
    wait, seen = WaitFor(state, BEGIN), replace(ready, status=status)
    by_spec = state == CAUGHT_UP and why is SuspendedReason.SUSPENDED
    assert (wait.is_reached(seen), wait.is_hopeless(seen)) == (state == READY, by_spec)
    assert ("Suspended True Suspended: because" in wait.not_reached(seen)) == by_spec


def test_what_is_not_reached_is_said_in_the_words_of_the_conditions() -> None:
    stuck = snapshot(ready=False, stalled_s=BEGIN)
    assert WaitFor(READY, BEGIN).not_reached(stuck) == (
        "not ready: Ready False Because: Ready; Stalled True Because: Stalled"
    )
    assert (
        WaitFor(CAUGHT_UP, BEGIN).not_reached(snapshot(ready=True, lag=3)) == "not caught-up: 3 logs behind"
    )
    of_sls = Status(phase=Phase.RUNNING, lag=Lag(seconds=7))
    late = GroupSnapshot(at_unix_s=BEGIN, status=of_sls, workers=())
    assert WaitFor(CAUGHT_UP, BEGIN).not_reached(late) == "not caught-up: 7 s behind"
    assert WaitFor(READY, BEGIN).not_reached(None) == "not ready: nothing was observed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_step_which_undoes_what_it_did(number: signal.Signals) -> None:
    done: list[str] = []

    async def step() -> None:
        done.append("the key is on the disk")
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append("it is removed")

    async def story() -> None:
        with stopped_by_signals() as stopping:
            stopping.on_force(lambda: done.append("killed"))
            with pytest.raises(Interrupted):
                await stopping.unless_requested(step())
            os.kill(os.getpid(), number)
            await stopping.forced.wait()

    asyncio.run(story())
    assert done == ["the key is on the disk", "it is removed", "killed"]


def test_a_step_that_fails_says_why_and_one_that_ends_gives_its_result() -> None:
    async def fails() -> None:
        raise OSError("no space")

    async def story() -> int:
        with stopped_by_signals() as stopping:
            with pytest.raises(OSError, match="no space"):
                await stopping.unless_requested(fails())
            return await stopping.unless_requested(asyncio.sleep(0, 7))

    assert asyncio.run(story()) == 7
