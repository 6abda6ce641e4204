"""Bounds on requests that name many things, each of which costs work."""

from collections.abc import Sized

from loghub.kafka.broker.answer import Disconnect
from loghub.kafka.broker.limits import BrokerLimits


def check_bounded(limits: BrokerLimits, *, topics: int, partitions: int) -> None:
    """Raises Disconnect for a request of which no answer is worth its work."""
    if topics > limits.topics:
        raise Disconnect(f"a request with {topics} topics; at most {limits.topics} are accepted")
    if partitions > limits.partitions:
        raise Disconnect(f"a request with {partitions} partitions; at most {limits.partitions} are accepted")


def check_names(limits: BrokerLimits, names: Sized) -> None:
    """The same for names of topics, groups or settings."""
    check_bounded(limits, topics=len(names), partitions=0)
