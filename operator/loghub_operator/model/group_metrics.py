"""The metrics of one group at one reconcile, from which Prometheus, KEDA and HPAs are served.

`loghub_operator.plan.planner.plan` makes one frozen value, and both loops pass it on. None means unknown,
never zero: an unknown lag must not scale a group down.
"""

from dataclasses import dataclass

from loghub_operator.api.scaling import ScalingMode
from loghub_operator.api.status import ShardStateText


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMetrics:
    """One shard. Rates and ``lag_groups`` count log groups, ``lag_logs`` counts the logs in them."""

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
class SubscriptionMetrics:
    """What a subscription has instead of lags and rates in log groups. ``consumers`` are connected, of all
    objects and clients. ``withheld``: logs wait that the log service gives to no consumer.
    """

    backlog_logs: int | None = None
    unacked_logs: int = 0
    redelivered_logs: int = 0
    consumers: int = 0
    withheld: bool = False
    arrival_per_s: float | None = None
    acknowledged_per_s: float | None = None
    worker_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetrics:
    """One consumer group, or one subscription, of which lags and rates in log groups are unknown.
    ``lag_seconds`` is the largest of the shards', the other lags and rates are sums.

    ``retry_groups``: log groups that wait in the retry logstore, 0 without one. ``dead_letter_groups``: those
    in the logstore of the dead letter, if it is one. ``worker_per_s``: log groups that one worker consumes
    per second, configured or measured. ``wanted``: by the formula. ``recommended``: within the bounds and
    stabilized. ``applied``: requested from the backend. ``ready``: workers that are ready. ``assignable``:
    shards that a worker can hold. ``paused``: no worker should run, so nothing is consumed, on purpose.
    """

    namespace: str
    name: str
    mode: ScalingMode
    lag_groups: int | None = None
    lag_logs: int | None = None
    lag_seconds: float | None = None
    retry_groups: int | None = 0
    dead_letter_groups: int | None = None
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
    subscription: SubscriptionMetrics | None = None
    at_unix_s: float
