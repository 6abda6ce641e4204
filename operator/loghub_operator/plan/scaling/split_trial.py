"""Judges whether the last split raised what is consumed; if not, no shard is split for hours.

A split helps a shard that is too busy for one worker. It does not help where each worker consumes less than
it did, say because the sink is slow: then every shard seems too busy, each split makes two more of them, and
they cost money. Judged are the children of the split together against their parent before it, once they are
warm. A restart of the operator forgets the trial, so at most one split more follows it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from loghub_operator.api.conditions import rfc3339
from loghub_operator.model.observed import ShardObserved
from loghub_operator.model.scaling_state import ScalingState, SplitTrial
from loghub_operator.plan.scaling.inputs import ShardRates
from loghub_operator.plan.scaling.load_formula import short

WARM_S = 120.0  # workers are added for the children, start and become warm
HELPED = 1.25  # of what the parent consumed; with another worker the children may consume twice as much
NO_HELP_S = 2 * 3600.0  # doubles after each further split that did not help
LONGEST_NO_HELP_S = 24 * 3600.0


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
    known = {one.shard: one for one in shards}
    children = [one for one in known.values() if trial.shard in one.parents]
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
    return min(LONGEST_NO_HELP_S, NO_HELP_S * 2.0 ** min(max(0, state.unhelpful_splits - 1), 10))


def _no_help(trial: SplitTrial, again_unix_s: float) -> str:
    return (
        f"the children of shard {trial.shard} consume no more than it did "
        f"({short(trial.before_per_s)} log groups/s), so no shard is split before {rfc3339(again_unix_s)}; "
        "check the sink and the resources of the workers"
    )


def _sum(numbers: Iterable[float | None]) -> float | None:
    known = list(numbers)
    return None if None in known else math.fsum(one or 0.0 for one in known)
