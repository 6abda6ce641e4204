"""Measures the load of a group, and computes how many workers it needs.

One observation is added to what is remembered, and the rates follow. This happens in every mode: the metrics
and mode Recommend need the numbers too. `loghub_operator.plan.scaling.autoscaler` decides with them.

The formula is wanted = ceil((arrival + lag / catch-up time) / rate of one worker); the status shows it with
its numbers. A shard has one consumer and the log service balances by count, so the worker with the most
shards is decisive: 8 shards are no faster with 5, 6 or 7 workers than with 4. The ``target`` is the fewest
workers of which none has more shards than it can consume. Two more numbers keep a load near a limit from
changing anything: ``low``, with which workers would be ten percent over their rate, and ``high``, with which
each would have ten percent to spare. A number from ``low`` to ``high`` is kept.

A `ScalingGate` is a reason to keep the current number although another one is needed. Without the gates, the
operator would act on measurements that a change in progress has disturbed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from loghub.backoff import backoff_s
from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import MalformedInput
from loghub_operator.api.conditions import ActiveReason
from loghub_operator.api.fields import MAX_REPLICAS
from loghub_operator.api.scaling import Scaling
from loghub_operator.api.status import OwnershipStatus, ScalingStatus
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.memory import (
    NOTHING,
    Sample,
    SampleWindow,
    ScaleUpTrial,
    ScalingState,
    ShardMark,
    Stream,
    WorkerRate,
    track_since,
    with_sample,
)
from loghub_operator.model.observed import (
    Available,
    LogServiceObserved,
    ObservedState,
    ShardObserved,
    WorkerObserved,
)
from loghub_operator.plan.listing import comma_list
from loghub_operator.plan.scaling.gate import ScalingGate
from loghub_operator.plan.scaling.rates import (
    WARM_S,
    ShardSeries,
    WorkerPace,
    arrival_per_s,
    consumed_per_s,
    series_by_shard,
    shared_pace,
    smoothed,
    worker_paces,
)
from loghub_operator.plan.scaling.subscription import by_shards, cannot_help, most_useful, sharers, whole_mark

# The dead band of a tenth on each side. Without it, the seconds of lag that a drain leaves would bring the
# worker back.
OVER = 1.1
SPARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadInputs:
    """What a decision is based on, in log groups and seconds; None: unknown. In a subscription, logs take the
    place of log groups, and ``assignable`` is None unless a shard has one worker.
    """

    arrival_per_s: float | None
    lag_groups: int | None
    worker_per_s: float | None
    catch_up_s: int
    assignable: int | None
    ready: int
    retry_groups: int | None = 0  # which wait in the retry logstore, and need one worker, not more

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to do, now or when its time comes. What is unknown may be something."""
        return self.lag_groups == 0 and self.arrival_per_s == 0.0 and self.retry_groups == 0

    @property
    def demand_per_s(self) -> float | None:
        """What must be consumed per second to work off the lag in time."""
        if self.arrival_per_s is None or self.lag_groups is None:
            return None
        return self.arrival_per_s + self.lag_groups / self.catch_up_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRange:
    """Workers that the load needs; ``wanted`` by the formula, ``low <= target <= high`` in whole shards."""

    wanted: int
    low: int
    target: int
    high: int

    @classmethod
    def exactly(cls, workers: int) -> "ReplicaRange":
        return cls(wanted=workers, low=workers, target=workers, high=workers)


def replica_range_of(inputs: LoadInputs) -> ReplicaRange | None:
    """None: unknown. Without any load the answer is zero, even while the rate is unknown."""
    demand = inputs.demand_per_s
    if demand is None:
        return None
    if demand == 0.0:
        return ReplicaRange.exactly(0)
    if inputs.worker_per_s is None or inputs.worker_per_s <= 0.0:
        return None
    load = demand / inputs.worker_per_s
    return ReplicaRange(
        wanted=_workers(load),
        low=spread(load / OVER, inputs.assignable),
        target=spread(load, inputs.assignable),
        high=spread(load / SPARE, inputs.assignable),
    )


def spread(load: float, shards: int | None) -> int:
    """The fewest workers of which none holds more shards than it can consume, if all shards are alike."""
    if not shards or load > shards or load <= 0.0:
        return _workers(load)
    each = math.floor(round(shards / load, 3))
    return math.ceil(shards / each)


def _workers(load: float) -> int:
    """Whole workers, at least one for any load; an excess below a thousandth of a worker does not count."""
    return min(MAX_REPLICAS, max(1, math.ceil(round(load, 3)))) if load > 0.0 else 0


def formula(inputs: LoadInputs, replica_range: ReplicaRange | None) -> str | None:
    """The formula with its numbers, for users; None if a number is missing."""
    arrival, lag, rate = inputs.arrival_per_s, inputs.lag_groups, inputs.worker_per_s
    if replica_range is None or arrival is None or lag is None or not rate:
        return None
    numbers = f"({short(arrival)}/s + {lag} / {inputs.catch_up_s} s) / {short(rate)}/s"
    spreads = (
        f"; {inputs.assignable} shards spread over {replica_range.target}"
        if replica_range.target != replica_range.wanted
        else ""
    )
    return f"ceil({numbers}) = {replica_range.wanted}{spreads}"


def short(number: float) -> str:
    """Three significant digits, for messages."""
    return f"{rounded(number):g}"


def rounded(number: float) -> float:
    """To three significant digits: smaller fluctuations are not worth reporting."""
    return float(f"{number:.3g}")


MAX_WARM_UP_S = 300.0  # after this, a worker that is not ready no longer prevents a scale-down
NO_HELP_S = 600.0  # doubles after each further step that did not help
# One more worker is tried a few times a day, in case what limits the others has been corrected.
MAX_NO_HELP_S = 6 * 3600.0
MUCH_MORE = 1.5  # times the arrival of the failed step: then another step may help
# A step counts as helpful from this part of the gain that the added workers should bring: shards are not
# alike, so the whole gain would be too much to ask.
HELPED = 0.25


def transfer(service: LogServiceObserved) -> ScalingGate | None:
    """A shard is being handed over from one worker to another."""
    if not isinstance(service, Available) or not service.in_transfer:
        return None
    message = f"in transfer: {comma_list(shard.shard for shard in service.in_transfer)}"
    return ScalingGate(reason=ActiveReason.REBALANCE_IN_PROGRESS, message=message)


def warming_up(
    workers: Sequence[WorkerObserved], state: ScalingState, *, current: int, now: float
) -> ScalingGate | None:
    """A worker is not ready, or has not been ready long enough to show its rate."""
    existing = [one for one in workers if one.ordinal < current]
    ready = [one.name for one in existing if one.ready]
    if len(ready) < current:
        return ScalingGate(
            reason=ActiveReason.WARMING_UP, message=f"{len(ready)} of {current} workers are ready"
        )
    since = {one.name: one.at_unix_s for one in state.ready}
    young = [name for name in ready if now - since.get(name, now) < WARM_S]
    if not young:
        return None
    return ScalingGate(reason=ActiveReason.WARMING_UP, message=f"{young[0]} has just become ready")


def warming_too_long(state: ScalingState, now: float) -> bool:
    """A worker does not become ready: waiting for it would keep too many workers forever."""
    return state.unready_unix_s is not None and now - state.unready_unix_s > MAX_WARM_UP_S


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
    return backoff_s(state.unhelpful, first_s=NO_HELP_S, max_s=MAX_NO_HELP_S)


def _is_past(trial: ScaleUpTrial, inputs: LoadInputs, long_ago: float) -> bool:
    """Nothing prevents another attempt: enough time has passed, a shard was added, or much more arrives."""
    if trial.failed_unix_s is None:
        return False
    more = (inputs.arrival_per_s or 0.0) > MUCH_MORE * trial.arrival_per_s
    return trial.failed_unix_s < long_ago or (inputs.assignable or 0) > trial.assignable or more


def judge_trial(
    state: ScalingState, *, now: float, pace: SampleWindow, unit: str = "log groups"
) -> tuple[ScalingState, ScalingGate | None]:
    """Whether the last scale-up raised what is consumed, in ``unit``. Call it before the next one, when all
    are warm.
    """
    trial = state.trial
    if trial is None:
        return state, None
    if trial.failed_unix_s is None:
        warm_since = max((one.at_unix_s for one in state.ready), default=now) + WARM_S
        since = max(warm_since, trial.at_unix_s)
        consumed = _consumed(state, since_unix_s=since)
        if consumed is None or now - since < max(30.0, 3.0 * pace.cycle_s):
            message = f"what {trial.after} workers bring after {trial.before} is being measured"
            return state, ScalingGate(reason=ActiveReason.WARMING_UP, message=message)
        if consumed >= _expected(trial):
            return replace(state, trial=None, unhelpful=0), None
        trial = replace(trial, failed_unix_s=now)
        state = replace(state, trial=trial, unhelpful=state.unhelpful + 1)
    message = (
        f"{trial.after} workers consume no more than {trial.before} did "
        f"({short(trial.consumed_before_per_s)} {unit}/s): no further step for now"
    )
    return state, ScalingGate(reason=ActiveReason.INEFFECTIVE_SCALING, message=message)


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


NOT_ASSIGNABLE = ("wait", "over")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRates:
    """Log groups per second; None: unknown."""

    arrival_per_s: float | None
    consumed_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What is known now; nothing about the load if the log service did not answer. ``lag_groups`` covers all
    shards; ``inputs`` has what the decision uses.
    """

    state: ScalingState
    inputs: LoadInputs
    shards: dict[int, ShardRates]
    consumed_per_s: float | None
    lag_groups: int | None
    pace: SampleWindow


def assignable(service: Available) -> int:
    """Shards that a worker can hold: neither waiting for parents nor consumed to the end."""
    return sum(shard.state not in NOT_ASSIGNABLE for shard in service.shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledGroup:
    """The group as its scaling sees it, at one moment.

    ``stream`` is what it reads, and ``remembered`` what the previous reconcile knew of it or of the stream
    that was read before. ``scaling`` and ``requested`` (``spec.replicas``) are what the user asks for,
    ``reported`` is the last decision in the status, perhaps by an earlier process of the operator, and
    ``first_shards`` the number of writable shards that the object found first, None if it is unknown. Of the
    workers, ``replicas`` were requested at the last reconcile; ``was_applied``: the backend knows their
    number, which may be 0. ``useless`` is why more workers would have nothing to do, and ``most_useful`` how
    many at most have something, None if that is not known.
    """

    stream: Stream
    pace: SampleWindow
    scaling: Scaling
    requested: int
    reported: ScalingStatus | None
    first_shards: int | None
    service: LogServiceObserved
    workers: tuple[WorkerObserved, ...]
    replicas: int
    was_applied: bool
    remembered: ScalingState
    at_unix_s: float
    subscribes: bool = False
    useless: ScalingGate | None = None
    most_useful: int | None = None

    @property
    def available(self) -> Available | None:
        """What the log service answered; None if it did not."""
        return self.service if isinstance(self.service, Available) else None

    @property
    def has_moved(self) -> bool:
        """What is remembered is about another stream, so it says nothing about this one."""
        return self.remembered.of not in (None, self.stream)


def scaled_group(
    resource: LogHubConsumerGroup, observed: ObservedState, stored: OwnershipStatus | None
) -> ScaledGroup:
    """Pure; the time is the time of the observation. ``stored`` is what is stored of the object's access."""
    spec = resource.spec
    stream = Stream(
        uid=resource.metadata.uid,
        endpoint=observed.placement.endpoint,
        project=spec.project,
        logstore=spec.logstore,
        group=resource.group,
    )
    # A worker that keeps up saves one checkpoint in each cycle.
    pace = SampleWindow(cycle_s=spec.pipeline.longest_wait_s + spec.checkpoint.interval_seconds)
    return ScaledGroup(
        stream=stream,
        pace=pace,
        scaling=spec.scaling,
        requested=spec.replicas,
        reported=resource.status.scaling,
        first_shards=None if stored is None else stored.writable_shards,
        service=observed.service,
        workers=observed.workers,
        replicas=observed.replicas,
        was_applied=observed.worker_set is not None,
        remembered=observed.memory.scaling,
        at_unix_s=observed.at_unix_s,
        subscribes=spec.subscription is not None,
        useless=cannot_help(observed.service, observed.failures),
        most_useful=most_useful(observed.service),
    )


def collect(group: ScaledGroup) -> Measurements:
    """Remembers this observation and computes the rates."""
    pace, now, service = group.pace, group.at_unix_s, group.available
    # 1. What is remembered of another stream, or of a time ahead of the clock, says nothing.
    state = group.remembered if group.remembered.of == group.stream else replace(NOTHING, of=group.stream)
    state = _of_this_time(state, now)
    if not state.samples and state.rate is None:
        state = replace(state, rate=_measured_before(group))
    # 2. The observation is added, and the rate of one worker follows from it.
    if service is not None:
        sample = Sample(at_unix_s=now, marks=_marks(service))
        state = replace(state, samples=with_sample(state.samples, sample, pace))
    state = _with_workers(state, group)  # first, since a rate is measured from when a worker is warm
    if service is not None:
        paces = _paces(service, state, pace)
        state = replace(state, rate=smoothed(state.rate, paces, at_unix_s=now))
    # 3. What the decision uses follows from both.
    shards = (
        {shard: _rates(series) for shard, series in series_by_shard(state.samples).items()} if service else {}
    )
    inputs = _inputs(group, state, shards)
    if not inputs.is_idle or state.busy_unix_s is None:
        state = replace(state, busy_unix_s=now)
    if service is not None:
        state = with_trial(state, workers=group.replicas, inputs=inputs, now=now)
    consumed = [rates.consumed_per_s for rates in shards.values()]
    return Measurements(
        state=state,
        inputs=inputs,
        shards=shards,
        consumed_per_s=_sum(consumed) if service else None,
        lag_groups=_left(service) if service else None,
        pace=pace,
    )


def _marks(service: Available) -> tuple[ShardMark, ...]:
    if service.subscription is not None:
        return (whole_mark(service.subscription),)
    return tuple(mark_of(shard) for shard in service.shards)


def _paces(service: Available, state: ScalingState, pace: SampleWindow) -> tuple[WorkerPace, ...]:
    ready_since = {worker.name: worker.at_unix_s for worker in state.ready}
    if service.subscription is None:
        return worker_paces(state.samples, ready_since, pace)
    warm_from = max(ready_since.values(), default=math.inf) + WARM_S
    one = shared_pace(state.samples, warm_from, sharers(service, tuple(ready_since)), pace)
    return () if one is None else (one,)


def _left(service: Available) -> int | None:
    return _total(service.shards) if service.subscription is None else service.subscription.backlog_logs


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


def _of_this_time(state: ScalingState, now: float) -> ScalingState:
    """If the clock was set back, every remembered time is wrong."""
    if state.samples and state.samples[-1].at_unix_s > now:
        return replace(NOTHING, of=state.of)
    return state


def _with_workers(state: ScalingState, group: ScaledGroup) -> ScalingState:
    now, replicas = group.at_unix_s, group.replicas
    ready = [worker.name for worker in group.workers if worker.ready]
    unready = sum(worker.ready for worker in group.workers if worker.ordinal < replicas) < replicas
    since = (state.unready_unix_s or now) if unready else None
    return replace(state, ready=track_since(state.ready, ready, now), unready_unix_s=since)


def _measured_before(group: ScaledGroup) -> WorkerRate | None:
    """The measurement of a previous operator process, from the status. A configured capacity is not a
    measurement.
    """
    reported = group.reported.inputs.worker_per_second if group.reported else None
    if not reported or group.scaling.capacity_per_s is not None or group.has_moved:
        return None
    return WorkerRate(per_s=reported, at_unix_s=0.0)  # the first measurement replaces it


def _rates(series: ShardSeries) -> ShardRates:
    return ShardRates(arrival_per_s=arrival_per_s(series), consumed_per_s=consumed_per_s(series))


def _inputs(group: ScaledGroup, state: ScalingState, shards: dict[int, ShardRates]) -> LoadInputs:
    scaling, service = group.scaling, group.available
    measured = None if state.rate is None else state.rate.per_s
    return LoadInputs(
        arrival_per_s=_sum([rates.arrival_per_s for rates in shards.values()]) if service else None,
        lag_groups=_to_do(service) if service else None,
        worker_per_s=measured if scaling.capacity_per_s is None else scaling.capacity_per_s,
        catch_up_s=scaling.catch_up_seconds,
        assignable=assignable(service) if service and by_shards(service) else None,
        ready=sum(worker.ready for worker in group.workers),
        retry_groups=service.retry_groups if service else None,
    )


def _to_do(service: Available) -> int | None:
    """A child that waits for its parents and was never started has no known lag, and no worker may start it:
    until its parents are consumed the number of workers follows the other shards.
    """
    if service.subscription is not None:
        return _left(service)
    begun = [one for one in service.shards if one.state != "wait" or one.lag_groups is not None]
    lag = _total(begun)
    return lag if len(begun) == len(service.shards) else lag or None  # 0 would be wrong


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
