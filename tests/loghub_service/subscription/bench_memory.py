"""What the core of subscriptions keeps in memory, in bytes for each thing that it keeps.

``python -m tests.loghub_service.subscription.bench_memory`` prints a row for each: a log that is out (of a
million in Shared, Key_Shared and Exclusive, in log groups of a thousand), a range of acknowledged logs (of
10,000), and a consumer (of 1,000). The bytes are those that Python has allocated for them, as `tracemalloc`
counts them; objects that were there before and are shared do not count.
"""

import gc
import tracemalloc
from collections.abc import Callable

from loghub.domain.log_position import ordinal_of, position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.subscription.events import (
    Ack,
    Event,
    Flow,
    GroupsLoaded,
    Join,
    LoadedEntry,
    ShardStart,
)
from loghub_service.subscription.state import Subscription, SubscriptionLimits, SubscriptionSettings
from loghub_service.subscription.step import create, step

UNACKED, GROUP_LOGS = 1_000_000, 1_000
RANGES, CONSUMERS = 10_000, 1_000
# Beyond the defaults, which are 200,000 logs without acknowledgment in a shard, and 50,000 at a consumer.
LIMITS = SubscriptionLimits(max_unacked=UNACKED, max_unacked_of_consumer=UNACKED, max_loaded=10 * GROUP_LOGS)
SHARDS = {0: ShardStart(end=position_of(UNACKED // GROUP_LOGS))}
SLOTS = tuple(range(GROUP_LOGS))


def apply(subscription: Subscription, event: Event) -> None:
    """With the loads that follow."""
    for load in step(subscription, event, now=0.0, limits=LIMITS).loads:
        first = ordinal_of(load.first)
        stop = min(first + LIMITS.max_loaded // GROUP_LOGS, UNACKED // GROUP_LOGS)
        slots = SLOTS if load.with_slots else None
        entries = [LoadedEntry(position_of(o), GROUP_LOGS, slots=slots) for o in range(first, stop)]
        answer = GroupsLoaded(shard=0, load=load.number, entries=entries, next=position_of(stop))
        apply(subscription, answer)


def subscription_of(kind: SubscriptionType) -> Subscription:
    return create(SubscriptionSettings(type=kind), SHARDS)


def join(subscription: Subscription, consumers: int) -> None:
    kind = subscription.settings.type
    for number in range(consumers):
        apply(subscription, Join(consumer=number, name=f"consumer-{number}", type=kind, shards=None))


def with_all_out(subscription: Subscription) -> int:
    """Every log goes to one consumer, which acknowledges none."""
    join(subscription, 1)
    while subscription.shards[0].read < SHARDS[0].end:
        apply(subscription, Flow(consumer=0, permits=UNACKED))
    return subscription.shards[0].queue.unacked


def with_ranges(subscription: Subscription) -> int:
    """Every second log is acknowledged."""
    for number in range(RANGES):
        first = position_of(number // 100, 2 * (number % 100) + 1)
        apply(subscription, Ack(shard=0, runs=[(first, first + 1)]))
    return len(subscription.shards[0].acked.starts)


def with_consumers(subscription: Subscription) -> int:
    join(subscription, CONSUMERS)
    return len(subscription.consumers)


def bytes_of(kind: SubscriptionType, fill: Callable[[Subscription], int]) -> tuple[int, int]:
    """Of everything that filling adds, and how many things that are."""
    subscription = subscription_of(kind)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    things = fill(subscription)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before, things


ROWS: tuple[tuple[str, SubscriptionType, Callable[[Subscription], int]], ...] = (
    ("log that is out", SubscriptionType.SHARED, with_all_out),
    ("log that is out", SubscriptionType.KEY_SHARED, with_all_out),
    ("log that is out", SubscriptionType.EXCLUSIVE, with_all_out),
    ("range of acknowledged logs", SubscriptionType.SHARED, with_ranges),
    ("consumer", SubscriptionType.SHARED, with_consumers),
    ("consumer", SubscriptionType.KEY_SHARED, with_consumers),
    ("consumer", SubscriptionType.FAILOVER, with_consumers),
)


def main() -> None:
    for what, kind, fill in ROWS:
        size, things = bytes_of(kind, fill)
        print(f"{kind:12} {things:9,} x {what:28} {size / things:8.1f} bytes each, {size / 1e6:7.1f} MB")


if __name__ == "__main__":
    main()
