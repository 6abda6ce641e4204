"""The gates: reasons to keep the current number of workers although another one is needed.

Without them, the operator would act on measurements that a change in progress has disturbed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from loghub_operator.api.conditions import ActiveReason
from loghub_operator.model.observed import Available, LogServiceObserved, WorkerObserved
from loghub_operator.model.scaling_state import SampleWindow, ScaleUpTrial, ScalingState
from loghub_operator.plan.listing import listed
from loghub_operator.plan.scaling.load_formula import LoadInputs, short
from loghub_operator.plan.scaling.rates import WARM_S, consumed_per_s, series_by_shard

LONGEST_WARM_UP_S = 300.0  # after this, a worker that is not ready no longer prevents a scale-down
NO_HELP_S = 600.0  # doubles after each further step that did not help
LONGEST_NO_HELP_S = 6 * 3600.0
MUCH_MORE = 1.5
HELPED = 0.25  # at least this part of the gain that the added workers should bring


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Why the number is kept: a reason, and a message for users."""

    reason: ActiveReason
    message: str


def transfer(service: LogServiceObserved) -> Gate | None:
    """A shard is being handed over from one worker to another."""
    if not isinstance(service, Available) or not service.in_transfer:
        return None
    message = f"in transfer: {listed(shard.shard for shard in service.in_transfer)}"
    return Gate(reason=ActiveReason.REBALANCE_IN_PROGRESS, message=message)


def warming_up(
    workers: Sequence[WorkerObserved], state: ScalingState, *, current: int, now: float
) -> Gate | None:
    """A worker is not ready, or has not been ready long enough to show its rate."""
    existing = [one for one in workers if one.ordinal < current]
    ready = [one.name for one in existing if one.ready]
    if len(ready) < current:
        return Gate(reason=ActiveReason.WARMING_UP, message=f"{len(ready)} of {current} workers are ready")
    since = {one.name: one.at_unix_s for one in state.ready}
    young = [name for name in ready if now - since.get(name, now) < WARM_S]
    if not young:
        return None
    return Gate(reason=ActiveReason.WARMING_UP, message=f"{young[0]} has just become ready")


def warming_too_long(state: ScalingState, now: float) -> bool:
    """A worker does not become ready: waiting for it would keep too many workers forever."""
    return state.unready_unix_s is not None and now - state.unready_unix_s > LONGEST_WARM_UP_S


def with_trial(state: ScalingState, *, workers: int, inputs: LoadInputs, now: float) -> ScalingState:
    """Starts a trial for a scale-up that happened, and drops one that was reverted or has expired."""
    before, trial = state.workers, state.trial
    if before is not None and workers > before > 0:
        trial = ScaleUpTrial(
            at_unix_s=now,
            before=before,
            after=workers,
            consumed_before_per_s=_consumed(state, since_unix_s=-math.inf) or 0.0,
            assignable=inputs.assignable or 0,
            arrival_per_s=inputs.arrival_per_s or 0.0,
        )
    elif before is not None and workers < before:
        trial, state = None, replace(state, unhelpful=0)
    if trial is not None and _is_past(trial, inputs, now - _patience_s(state)):
        trial = None
    return replace(state, workers=workers, trial=trial)


def _patience_s(state: ScalingState) -> float:
    return min(LONGEST_NO_HELP_S, NO_HELP_S * 2.0 ** min(max(0, state.unhelpful - 1), 10))


def _is_past(trial: ScaleUpTrial, inputs: LoadInputs, long_ago: float) -> bool:
    """Nothing prevents another attempt: enough time has passed, a shard was added, or much more arrives."""
    if trial.failed_unix_s is None:
        return False
    more = (inputs.arrival_per_s or 0.0) > MUCH_MORE * trial.arrival_per_s
    return trial.failed_unix_s < long_ago or (inputs.assignable or 0) > trial.assignable or more


def judge_trial(state: ScalingState, *, now: float, pace: SampleWindow) -> tuple[ScalingState, Gate | None]:
    """Whether the last scale-up raised what is consumed. Call it before the next one, when all are warm."""
    trial = state.trial
    if trial is None:
        return state, None
    if trial.failed_unix_s is None:
        warm_since = max((one.at_unix_s for one in state.ready), default=now) + WARM_S
        since = max(warm_since, trial.at_unix_s)
        consumed = _consumed(state, since_unix_s=since)
        if consumed is None or now - since < max(30.0, 3.0 * pace.cycle_s):
            message = f"what {trial.after} workers bring after {trial.before} is being measured"
            return state, Gate(reason=ActiveReason.WARMING_UP, message=message)
        if consumed >= _expected(trial):
            return replace(state, trial=None, unhelpful=0), None
        trial = replace(trial, failed_unix_s=now)
        state = replace(state, trial=trial, unhelpful=state.unhelpful + 1)
    message = (
        f"{trial.after} workers consume no more than {trial.before} did "
        f"({short(trial.consumed_before_per_s)} log groups/s): no further step for now"
    )
    return state, Gate(reason=ActiveReason.INEFFECTIVE_SCALING, message=message)


def _expected(trial: ScaleUpTrial) -> float:
    gain = trial.consumed_before_per_s * (trial.after - trial.before) / trial.before
    return trial.consumed_before_per_s + HELPED * gain


def _consumed(state: ScalingState, *, since_unix_s: float) -> float | None:
    """Over all shards; None while it is unknown for every one of them."""
    samples = [one for one in state.samples if one.at_unix_s >= since_unix_s]
    rates = [
        rate for series in series_by_shard(samples).values() if (rate := consumed_per_s(series)) is not None
    ]
    return math.fsum(rates) if rates else None
