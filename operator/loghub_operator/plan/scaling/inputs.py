"""Adds one observation of a group to what is remembered, and computes the numbers that follow.

This happens in every mode: the metrics and mode Recommend need the numbers too.
`loghub_operator.plan.scaling.autoscaler` decides with them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import MalformedInput
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import Available, ObservedState, ShardObserved
from loghub_operator.model.scaling_state import (
    NOTHING,
    Sample,
    SampleWindow,
    ScalingState,
    ShardMark,
    Stream,
    WorkerRate,
    track_since,
    with_sample,
)
from loghub_operator.plan.scaling.gates import with_trial
from loghub_operator.plan.scaling.load_formula import LoadInputs
from loghub_operator.plan.scaling.rates import (
    ShardSeries,
    arrival_per_s,
    consumed_per_s,
    series_by_shard,
    smoothed,
    worker_paces,
)

NOT_ASSIGNABLE = ("wait", "over")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRates:
    """Log groups per second; None: unknown."""

    arrival_per_s: float | None
    consumed_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What is known now. ``available`` False: the log service was not, so nothing about the load is known.
    ``moved``: the status from before this observation belongs to another stream. ``lag_groups`` covers all
    shards; ``inputs`` has what the decision uses.
    """

    state: ScalingState
    inputs: LoadInputs
    shards: dict[int, ShardRates]
    consumed_per_s: float | None
    lag_groups: int | None
    pace: SampleWindow
    available: bool
    moved: bool


def assignable(service: Available) -> int:
    """Shards that a worker can hold: neither waiting for parents nor consumed to the end."""
    return sum(shard.state not in NOT_ASSIGNABLE for shard in service.shards)


def pace_of(resource: LogHubConsumerGroup) -> SampleWindow:
    """A worker that keeps up saves one checkpoint in each cycle."""
    spec = resource.spec
    return SampleWindow(cycle_s=spec.pipeline.longest_wait_s + spec.checkpoint.interval_seconds)


def collect(resource: LogHubConsumerGroup, observed: ObservedState) -> Measurements:
    """Remembers this observation and computes the rates."""
    pace, now = pace_of(resource), observed.at_unix_s
    state = _of_this_time(_of_this_stream(resource, observed), now)
    if not state.samples and state.rate is None:
        state = replace(state, rate=_measured_before(resource, observed, state))
    service = observed.service if isinstance(observed.service, Available) else None
    if service is not None:
        sample = Sample(at_unix_s=now, marks=tuple(mark_of(one) for one in service.shards))
        state = replace(state, samples=with_sample(state.samples, sample, pace))
    state = _with_workers(state, observed)
    state = replace(state, rate=_rate(observed, state, pace))
    shards = (
        {shard: _rates(series) for shard, series in series_by_shard(state.samples).items()} if service else {}
    )
    inputs = _inputs(resource, observed, state, shards)
    if not inputs.is_idle or state.busy_unix_s is None:
        state = replace(state, busy_unix_s=now)
    if service is not None:
        state = with_trial(state, workers=observed.replicas, inputs=inputs, now=now)
    consumed = [rates.consumed_per_s for rates in shards.values()]
    return Measurements(
        state=state,
        inputs=inputs,
        shards=shards,
        consumed_per_s=_sum(consumed) if service else None,
        lag_groups=_total(service.shards) if service else None,
        pace=pace,
        available=service is not None,
        moved=_moved(observed, state),
    )


def mark_of(shard: ShardObserved) -> ShardMark:
    """The shard in cursors; a shard in transfer counts for the rate of no worker."""
    return ShardMark(
        shard=shard.shard,
        written=_cursor(shard.end_cursor),
        consumed=_cursor(shard.checkpoint),
        consumed_at_unix_s=shard.checkpoint_unix_s,
        lag=0 if shard.state == "over" else shard.lag_groups,
        holder=shard.holder if shard.state != "transfer" else "",
        read_only=shard.read_only,
    )


def _of_this_stream(resource: LogHubConsumerGroup, observed: ObservedState) -> ScalingState:
    """What is remembered of another stream says nothing about this one."""
    spec = resource.spec
    stream = Stream(
        uid=resource.metadata.uid,
        endpoint=observed.placement.endpoint,
        project=spec.project,
        logstore=spec.logstore,
        group=resource.group,
    )
    scaling = observed.memory.scaling
    return scaling if scaling.of == stream else replace(NOTHING, of=stream)


def _moved(observed: ObservedState, state: ScalingState) -> bool:
    return observed.memory.scaling.of not in (None, state.of)


def _of_this_time(state: ScalingState, now: float) -> ScalingState:
    """If the clock was set back, every remembered time is wrong."""
    if state.samples and state.samples[-1].at_unix_s > now:
        return replace(NOTHING, of=state.of)
    return state


def _with_workers(state: ScalingState, observed: ObservedState) -> ScalingState:
    now = observed.at_unix_s
    replicas = observed.replicas
    ready = [one.name for one in observed.workers if one.ready]
    unready = sum(one.ready for one in observed.workers if one.ordinal < replicas) < replicas
    since = (state.unready_unix_s or now) if unready else None
    return replace(state, ready=track_since(state.ready, ready, now), unready_unix_s=since)


def _measured_before(
    resource: LogHubConsumerGroup, observed: ObservedState, state: ScalingState
) -> WorkerRate | None:
    """The measurement of a previous operator process, from the status. A configured capacity is not a
    measurement.
    """
    reported = resource.status.scaling.inputs.worker_per_second if resource.status.scaling else None
    if not reported or resource.spec.scaling.capacity_per_s is not None or _moved(observed, state):
        return None
    return WorkerRate(per_s=reported, at_unix_s=0.0)  # the first measurement replaces it


def _rate(observed: ObservedState, state: ScalingState, pace: SampleWindow) -> WorkerRate | None:
    if not isinstance(observed.service, Available):
        return state.rate
    ready = {one.name: one.at_unix_s for one in state.ready}
    return smoothed(state.rate, worker_paces(state.samples, ready, pace), at_unix_s=observed.at_unix_s)


def _rates(series: ShardSeries) -> ShardRates:
    return ShardRates(arrival_per_s=arrival_per_s(series), consumed_per_s=consumed_per_s(series))


def _inputs(
    resource: LogHubConsumerGroup,
    observed: ObservedState,
    state: ScalingState,
    shards: dict[int, ShardRates],
) -> LoadInputs:
    scaling = resource.spec.scaling
    service = observed.service if isinstance(observed.service, Available) else None
    measured = None if state.rate is None else state.rate.per_s
    return LoadInputs(
        arrival_per_s=_sum([one.arrival_per_s for one in shards.values()]) if service else None,
        lag_groups=_to_do(service) if service else None,
        worker_per_s=measured if scaling.capacity_per_s is None else scaling.capacity_per_s,
        catch_up_s=scaling.catch_up_seconds,
        assignable=assignable(service) if service else None,
        ready=observed.ready_workers,
        retry_groups=service.retry_groups if service else None,
    )


def _to_do(service: Available) -> int | None:
    """A child that waits for its parents and was never started has no known lag, and no worker may start it:
    until its parents are consumed the number of workers follows the other shards.
    """
    begun = [one for one in service.shards if one.state != "wait" or one.lag_groups is not None]
    known = _total(begun)
    return known if len(begun) == len(service.shards) else known or None  # 0 would be wrong


def _total(shards: Sequence[ShardObserved]) -> int | None:
    numbers = [0 if one.state == "over" else one.lag_groups for one in shards]
    return None if None in numbers else sum(number or 0 for number in numbers)


def _sum(numbers: list[float | None]) -> float | None:
    return None if None in numbers else math.fsum(number or 0.0 for number in numbers)


def _cursor(text: str) -> int | None:
    if not text:
        return None
    try:
        return wire_cursor.decode(text)
    except MalformedInput:  # in a format of the service's own, so distances are unknown
        return None
