"""Finds the shard that is too busy for one worker, and neighbors that are idle; splits and merges them.

A shard has one consumer, so more workers cannot help a hot shard. If the spec allows it, the hot shard is
split, and cold neighbors are merged. Shards are merged only for a group that has its logstore to itself,
because the operator does not know how many workers another group has.

The list of shards itself prevents a second split. A shard that was split is read-only, and the log service
reports when it created the newest child; the cooldown counts from that time. The decision thus accounts for a
crash between the split and the status, another operator, a user, and another group on the same logstore.

A split or merge that the log service rejects is reported, and retried with a backoff: at a limit of shards,
or without the permission, an attempt at each reconcile would change nothing. A rejection is forgotten when
any client has created a shard since, when shards may no longer be changed, and with everything else that is
remembered.

A split that did not raise what is consumed prevents the next one for hours. A split helps a shard that is too
busy for one worker. It does not help where each worker consumes less than it did, say because the sink is
slow: then every shard seems too busy, each split makes two more of them, and they cost money. Judged are the
children of the split together against their parent before it, once they are warm. A restart of the operator
forgets the trial, so at most one split more follows it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from loghub.backoff import backoff_s
from loghub_operator.api.conditions import ConditionStatus, ConditionType, ConditionUpdate, HotReason, rfc3339
from loghub_operator.api.scaling import Scaling
from loghub_operator.model.actions import EmitEvent, MergeShards, ReshardRefused, SplitShard
from loghub_operator.model.memory import ReshardRejection, ScalingState, SplitTrial, track_since
from loghub_operator.model.observed import Available, LogServiceObserved, ShardObserved
from loghub_operator.plan.scaling.load import NOT_ASSIGNABLE, OVER, Measurements, ShardRates, short

FIRST_PAUSE_S = 60.0  # doubles after each further rejection
# A quota of shards is raised by people, and a permission granted: an attempt an hour finds both.
MAX_PAUSE_S = 3600.0


def with_rejection(state: ScalingState, error: ReshardRefused, now: float) -> ScalingState:
    """Remembers a rejection; ``now`` in unix seconds."""
    kind: Literal["split", "merge"] = "split" if isinstance(error.action, SplitShard) else "merge"
    before = rejection_of(state, kind)
    new = ReshardRejection(
        of=kind, message=str(error), at_unix_s=now, times=1 + (before.times if before else 0)
    )
    return replace(state, rejections=(*(one for one in state.rejections if one != before), new))


def rejection_of(state: ScalingState, kind: Literal["split", "merge"]) -> ReshardRejection | None:
    """The last rejection of this kind."""
    return next((one for one in state.rejections if one.of == kind), None)


def still_valid(state: ScalingState, shards: Iterable[ShardObserved]) -> ScalingState:
    """Without the rejections since which a shard was created: the change may be accepted now."""
    youngest = max((one.created_unix_s or 0.0 for one in shards), default=0.0)
    return replace(state, rejections=tuple(one for one in state.rejections if one.at_unix_s >= youngest))


def again_unix_s(rejection: ReshardRejection) -> float:
    """From then on the change may be tried again."""
    pause_s = backoff_s(rejection.times, first_s=FIRST_PAUSE_S, max_s=MAX_PAUSE_S)
    return rejection.at_unix_s + pause_s


def rejection_message(rejection: ReshardRejection) -> str:
    """The message for users; it stays the same until the next attempt."""
    again = rfc3339(again_unix_s(rejection))
    return f"the log service refuses to {rejection.of} ({rejection.message}); tried again after {again}"


WARM_S = 120.0  # workers are added for the children, start and become warm
HELPED = 1.25  # of what the parent consumed; with another worker the children may consume twice as much
NO_HELP_S = 2 * 3600.0  # doubles after each further split that did not help
# Each split costs money until the logs of its parent expire, so another one is tried once a day at most.
MAX_NO_HELP_S = 24 * 3600.0


def begin_trial(state: ScalingState, shard: int, rates: Mapping[int, ShardRates], now: float) -> ScalingState:
    """Remembers what the shard consumes before it is split."""
    consumed = rates[shard].consumed_per_s if shard in rates else None
    return replace(state, split=SplitTrial(shard=shard, at_unix_s=now, before_per_s=consumed or 0.0))


def judge_split(
    state: ScalingState,
    shards: Iterable[ShardObserved],
    rates: Mapping[int, ShardRates],
    busy: Iterable[int],
    now: float,
) -> tuple[ScalingState, str]:
    """The state afterwards, and why no shard may be split now, as a message for users; "" if one may."""
    trial = state.split
    if trial is None:
        return state, ""
    if trial.failed_unix_s is not None:
        again = trial.failed_unix_s + _patience_s(state)
        return (replace(state, split=None), "") if now >= again else (state, _no_help(trial, again))
    by_number = {one.shard: one for one in shards}
    children = [one for one in by_number.values() if trial.shard in one.parents]
    if not children:  # the split was rejected, or the children were split or merged by another client
        return replace(state, split=None), ""
    if not {one.shard for one in children} & set(busy) and now - trial.at_unix_s >= WARM_S:
        return replace(state, split=None, unhelpful_splits=0, split_helped=True), ""
    consumed = _sum(rates[one.shard].consumed_per_s if one.shard in rates else None for one in children)
    waiting = any(one.state == "wait" for one in children)
    if consumed is None or waiting or now - trial.at_unix_s < WARM_S:
        return state, f"what the split of shard {trial.shard} brings is being measured"
    if consumed >= HELPED * trial.before_per_s:
        return replace(state, split=None, unhelpful_splits=0, split_helped=True), ""
    trial = replace(trial, failed_unix_s=now)
    unhelpful = state.unhelpful_splits + 1
    state = replace(state, split=trial, unhelpful_splits=unhelpful, split_helped=False)
    return state, _no_help(trial, now + _patience_s(state))


def _patience_s(state: ScalingState) -> float:
    return backoff_s(state.unhelpful_splits, first_s=NO_HELP_S, max_s=MAX_NO_HELP_S)


def _no_help(trial: SplitTrial, again_unix_s: float) -> str:
    return (
        f"the children of shard {trial.shard} consume no more than it did "
        f"({short(trial.before_per_s)} log groups/s), so no shard is split before {rfc3339(again_unix_s)}; "
        "check the sink and the resources of the workers"
    )


def _sum(numbers: Iterable[float | None]) -> float | None:
    rates = list(numbers)
    return None if None in rates else math.fsum(one or 0.0 for one in rates)


# A split cannot be taken back before the logs of the parent expire: a burst of seconds is no reason for one.
HOT_FOR_S = 30.0
SPLIT_HELPS = 0.9  # of one worker's rate must arrive, since a split does not move a backlog
FEW_SHARDS = 3  # of fewer shards the median says nothing
# Half of the writes per second that SLS takes in a shard (docs/sls-protocol.md). Each is a log group or more,
# so the pair that is merged stays below the quota, as does the new shard when its traffic doubles.
MAX_WRITES_PER_S = 250.0
COLD = 0.3  # of one worker's rate is the most that two neighbors together may need


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardBounds:
    """How many writable shards there may be: at least the ``minimum``, so that every worker has one and
    producers can write; None: unknown, so none is merged. ``maximum`` None: unknown, so none is split.
    """

    minimum: int | None
    maximum: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HotShardResult:
    """Which shards are hot, what to do about it, and how to report it.

    Invariant: there is an ``event`` if and only if there is a ``change``.
    """

    state: ScalingState
    condition: ConditionUpdate
    hot: tuple[int, ...] = ()
    change: SplitShard | MergeShards | None = None
    event: EmitEvent | None = None


def find_hot_shards(
    scaling: Scaling,
    service: LogServiceObserved,
    measured: Measurements,
    *,
    settled: bool,
    bounds: ShardBounds,
    now: float,
) -> HotShardResult:
    """``settled``: no shard is being handed over, no worker fails and nothing is unknown, so shards may
    change.
    """
    state, rates, rate = measured.state, measured.shards, measured.inputs.worker_per_s
    if not isinstance(service, Available) or not rate:
        message = "it is not known how much one worker consumes"
        state = replace(state, hot=(), cold=())
        return HotShardResult(
            state=state, condition=_condition("Unknown", HotReason.PROCESSING_RATE_UNKNOWN, message)
        )
    # 1. Which shards are too busy or idle, and for how long.
    demands = {one.shard: _demand(one, rates, measured.inputs.catch_up_s) for one in service.shards}
    busy = _busy(service.shards, demands, rates, OVER * rate)
    too_much = min(COLD * rate, MAX_WRITES_PER_S)
    cold = [pair for pair in _neighbours(service.shards) if _cold(pair, demands, too_much)]
    state = replace(
        state,
        hot=track_since(state.hot, (str(one.shard) for one in busy), now),
        cold=track_since(state.cold, (_named(pair) for pair in cold), now),
    )
    since = {one.name: one.at_unix_s for one in (*state.hot, *state.cold)}
    hot = [one for one in busy if now - since[str(one.shard)] >= HOT_FOR_S]
    result = HotShardResult(
        state=state, condition=_hot_condition(hot, rates, rate), hot=tuple(one.shard for one in hot)
    )
    # 2. The change that is due, if the spec allows one; a split goes before a merge.
    switches = scaling.shards
    if not (switches.auto_split or switches.auto_merge) or scaling.mode == "Recommend":
        return replace(result, state=replace(state, rejections=()))
    result = replace(result, state=still_valid(state, service.shards))
    cool_s = scaling.shards.cooldown_seconds
    long_cold = [pair for pair in cold if now - since[_named(pair)] >= cool_s]
    due = _merge(result, long_cold, service, bounds.minimum) if switches.auto_merge else result
    if switches.auto_split and _writable(service) < (bounds.maximum or 0):
        due = _split(result, hot, service, rates, rate) or due
    # 3. What speaks against it: the log service rejected it, the last split did not help, or another change
    # is in progress, whose measurements say nothing.
    due = _unless_rejected(result, due, now)
    due = _unless_without_effect(due, service, rates, [one.shard for one in busy], now)
    if not settled or not _cooled(service.shards, cool_s, now):
        return replace(due, change=None, event=None)
    if isinstance(due.change, SplitShard):
        return replace(due, state=begin_trial(due.state, due.change.shard, rates, now))
    return due


def no_hot_shard(state: ScalingState, message: str) -> HotShardResult:
    """Where no worker holds a shard, none is too busy for one."""
    return HotShardResult(state=state, condition=_condition("False", HotReason.NO_HOT_SHARD, message))


def _demand(shard: ShardObserved, rates: Mapping[int, ShardRates], catch_up_s: int) -> float | None:
    arrival = rates[shard.shard].arrival_per_s if shard.shard in rates else None
    if arrival is None or shard.lag_groups is None:
        return None
    return arrival + shard.lag_groups / catch_up_s


def _alone(shards: Iterable[ShardObserved]) -> list[ShardObserved]:
    """Writable shards whose consumer holds no other shard."""
    assignable = [one for one in shards if one.state not in NOT_ASSIGNABLE]
    held = Counter(one.holder for one in assignable if one.holder)
    settled = [one for one in assignable if not one.read_only and one.state != "transfer"]
    return [one for one in settled if held[one.holder] == 1]


def _busy(
    shards: Iterable[ShardObserved],
    demands: Mapping[int, float | None],
    rates: Mapping[int, ShardRates],
    too_much: float,
) -> list[ShardObserved]:
    """More arrives than one worker can consume; or, for a shard that has a worker to itself, arrival and lag
    together are more than that.
    """
    alone = {one.shard for one in _alone(shards)}
    arrivals = {shard: one.arrival_per_s or 0.0 for shard, one in rates.items()}
    return [
        shard
        for shard in shards
        if not shard.read_only
        and (
            arrivals.get(shard.shard, 0.0) > too_much
            or (shard.shard in alone and (demands[shard.shard] or 0.0) > too_much)
        )
    ]


def _neighbours(shards: Iterable[ShardObserved]) -> list[tuple[ShardObserved, ShardObserved]]:
    """Pairs of writable shards with adjoining key ranges."""
    writable = sorted(
        (one for one in shards if not one.read_only and one.end_key), key=lambda one: one.begin_key
    )
    return [(left, right) for left, right in pairwise(writable) if left.end_key == right.begin_key]


def _named(pair: tuple[ShardObserved, ShardObserved]) -> str:
    return f"{pair[0].shard}+{pair[1].shard}"


def _cold(
    pair: tuple[ShardObserved, ShardObserved], demands: Mapping[int, float | None], maximum: float
) -> bool:
    left, right = (demands[one.shard] for one in pair)
    return left is not None and right is not None and left + right <= maximum


def _cooled(shards: Iterable[ShardObserved], cooldown_s: int, now: float) -> bool:
    """All children were created long enough ago; an unknown time of creation counts as recent."""
    born = [one.created_unix_s for one in shards if one.parents]
    return all(one is not None and now - one >= cooldown_s for one in born)


def _split(
    result: HotShardResult,
    hot: list[ShardObserved],
    service: Available,
    rates: Mapping[int, ShardRates],
    rate: float,
) -> HotShardResult | None:
    """The busiest of the shards that a split helps: their logs arrive now, and are not merely a backlog."""
    helped = [one for one in hot if (rates[one.shard].arrival_per_s or 0.0) >= SPLIT_HELPS * rate]
    if not helped:
        return None
    busiest = max(helped, key=lambda one: rates[one.shard].arrival_per_s or 0.0)
    arrival = short(rates[busiest.shard].arrival_per_s or 0.0)
    message = (
        f"shard {busiest.shard} is split: {arrival} log groups/s come in, one worker consumes"
        f" {short(rate)}/s; then there are {_writable(service) + 1} writable shards, and it stays as a"
        " read-only one until its logs expire: the log service may charge for each of them"
    )
    event = EmitEvent(type="Normal", reason="ShardSplit", message=message)
    return replace(result, change=SplitShard(busiest.shard), event=event)


def _merge(
    result: HotShardResult,
    cold: list[tuple[ShardObserved, ShardObserved]],
    service: Available,
    minimum: int | None,
) -> HotShardResult:
    """Only while every worker keeps a shard, and no other group reads the logstore."""
    if not cold or result.hot or minimum is None or _writable(service) <= minimum:
        return result
    left, right = cold[0]
    if service.other_groups:
        message = (
            f"{result.condition.message}; shards {left.shard} and {right.shard} are not merged: another"
            " consumer group reads the logstore"
        )
        return replace(result, condition=replace(result.condition, message=message))
    message = (
        f"shards {left.shard} and {right.shard} are merged: together they need less than a third of a worker"
    )
    event = EmitEvent(type="Normal", reason="ShardsMerged", message=message)
    return replace(result, change=MergeShards(left.shard), event=event)


def _unless_rejected(result: HotShardResult, due: HotShardResult, now: float) -> HotShardResult:
    """A rejected change is reported for as long as it is due, and retried after the backoff."""
    if due.change is None:
        return due
    split = isinstance(due.change, SplitShard)
    rejection = rejection_of(due.state, "split" if split else "merge")
    if rejection is None:
        return due
    reason = HotReason.SPLIT_REJECTED if split else HotReason.MERGE_REJECTED
    message = f"{rejection_message(rejection)}; {result.condition.message}"
    condition = replace(result.condition, reason=reason, message=message)
    return replace(result if now < again_unix_s(rejection) else due, condition=condition)


def _unless_without_effect(
    due: HotShardResult,
    service: Available,
    rates: Mapping[int, ShardRates],
    busy: list[int],
    now: float,
) -> HotShardResult:
    """No split while one is being judged or did not help, while more workers did not help, or where the
    median shard is too busy too: then it is the workers or the sink that are slow, not the shard, unless the
    last split helped.
    """
    state, message = judge_split(due.state, service.shards, rates, busy, now)
    due = replace(due, state=state)
    if not isinstance(due.change, SplitShard):
        return due
    trial = state.trial
    if not message and trial is not None and trial.failed_unix_s is not None:
        message = "more workers did not raise what is consumed, so no shard is split for now"
    writable = _writable(service)
    if not message and not state.split_helped and writable >= FEW_SHARDS and len(busy) * 2 > writable:
        message = (
            f"{len(busy)} of {writable} shards are too busy, so the workers or the sink are slow rather than"
            " one shard; give the workers more resources, or split shards by hand"
        )
    if not message:
        return due
    condition = replace(
        due.condition, reason=HotReason.INEFFECTIVE_SPLIT, message=f"{message}; {due.condition.message}"
    )
    return replace(due, condition=condition, change=None, event=None)


def _writable(service: Available) -> int:
    return sum(not one.read_only for one in service.shards)


def _hot_condition(hot: list[ShardObserved], rates: Mapping[int, ShardRates], rate: float) -> ConditionUpdate:
    if not hot:
        return _condition("False", HotReason.NO_HOT_SHARD, "no shard is too busy for one worker")
    named = "; ".join(
        f"shard {shard.shard}: {short(rates[shard.shard].arrival_per_s or 0.0)} log groups/s come in, "
        f"{shard.lag_groups} are left"
        for shard in hot[:5]
    )
    message = (
        f"{named}; one worker consumes {short(rate)}/s and a shard has one holder, so only a split helps"
    )
    return _condition("True", HotReason.SHARD_OVERLOADED, message)


def _condition(status: ConditionStatus, reason: HotReason, message: str) -> ConditionUpdate:
    return ConditionUpdate(type=ConditionType.HOT_SHARD, status=status, reason=reason, message=message)
