"""Example metrics and stores for tests."""

from dataclasses import dataclass
from typing import Any

from loghub_operator.api.status import Condition
from loghub_operator.metrics.store import MetricsStore
from loghub_operator.model.group_metrics import GroupMetrics, ShardMetrics, SubscriptionMetrics


@dataclass(slots=True)
class HandClock:
    """Advances only when a test sets it."""

    now: float = 100.0

    def monotonic_s(self) -> float:
        return self.now

    def unix_s(self) -> float:
        return 1_800_000_000.0 + self.now


def readings(name: str = "access", *, namespace: str = "shop", **numbers: Any) -> GroupMetrics:
    reported: dict[str, Any] = {
        "mode": "External",
        "lag_groups": 1200,
        "lag_logs": 60_000,
        "lag_seconds": 42.25,
        "dead_letter_groups": 4,
        "arrival_per_s": 12.5,
        "consumed_per_s": 10.0,
        "worker_per_s": 5.0,
        "wanted": 3,
        "recommended": 2,
        "applied": 2,
        "ready": 1,
        "assignable": 2,
        "shards": (
            ShardMetrics(shard=0, state="already_alloc", holder="access-0", lag_seconds=42.25, hot=True),
            ShardMetrics(shard=1, state="transfer", holder="access-0"),
        ),
        "at_unix_s": 1_800_000_000.0,
    }
    return GroupMetrics(namespace=namespace, name=name, **(reported | numbers))


def subscription_readings(name: str = "access", **numbers: Any) -> GroupMetrics:
    seen: dict[str, Any] = {
        "backlog_logs": 700,
        "unacked_logs": 50,
        "redelivered_logs": 3,
        "consumers": 6,
        "arrival_per_s": 90.0,
        "acknowledged_per_s": 80.0,
        "worker_per_s": 20.0,
    }
    in_groups = dict.fromkeys(("lag_groups", "arrival_per_s", "consumed_per_s", "worker_per_s", "assignable"))
    return readings(name, **in_groups, subscription=SubscriptionMetrics(**(seen | numbers)))


def condition(kind: str, status: Any) -> Condition:
    return Condition(type=kind, status=status, reason="Why", last_transition_time="2026-01-01T00:00:00Z")


def store(*snapshot: GroupMetrics, clock: HandClock | None = None) -> MetricsStore:
    result = MetricsStore(clock or HandClock(), fresh_s=60.0)
    for one in snapshot:
        result.update(one, ())
    return result
