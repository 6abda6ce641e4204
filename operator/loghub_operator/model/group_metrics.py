"""The readings of one group in one round: what metrics, KEDA and HPAs are served from.

What for: one frozen value, made by `loghub_operator.plan.planner.plan`, handed on by the executor. What
it must not know: who reads it, over which protocol. Read next: `loghub_operator.plan.scaling`.

None is unknown, never zero: an unknown lag must not scale a group down.
"""

from dataclasses import dataclass

from loghub_operator.api.scaling import ScalingMode
from loghub_operator.api.status import ShardStateText


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMetrics:
    """One shard. Rates and ``lag_groups`` are log groups, ``lag_logs`` the logs in them."""

    shard: int
    state: ShardStateText
    holder: str = ""
    lag_groups: int | None = None
    lag_logs: int | None = None
    lag_seconds: float | None = None
    arrival_per_s: float | None = None
    consumed_per_s: float | None = None
    hot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetrics:
    """One consumer group. ``lag_seconds`` is the largest of the shards', the rest are sums.

    ``worker_per_s``: log groups that one worker consumes per second, told or measured.
    ``wanted``: by the formula. ``recommended``: within bounds and steadied. ``applied``: asked
    of the executor. ``ready``: workers that are ready. ``assignable``: shards that a worker can
    hold. ``paused``: suspended or repositioning, so nothing is consumed on purpose.
    """

    namespace: str
    name: str
    mode: ScalingMode
    lag_groups: int | None = None
    lag_logs: int | None = None
    lag_seconds: float | None = None
    arrival_per_s: float | None = None
    consumed_per_s: float | None = None
    worker_per_s: float | None = None
    wanted: int | None = None
    recommended: int | None = None
    applied: int = 0
    ready: int = 0
    assignable: int | None = None
    paused: bool = False
    shards: tuple[ShardMetrics, ...] = ()
    at_unix_s: float
