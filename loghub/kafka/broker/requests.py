"""Bounds on requests that name many things, each of which costs work."""

from collections.abc import Iterable, Sized

from loghub.kafka.broker.answer import Disconnect
from loghub.kafka.broker.limits import BrokerLimits

# Things that a request names, each worth some 100 us of the event loop, until others have their turn.
PAUSE_EVERY = 50


def check_bounded(limits: BrokerLimits, *, topics: int, partitions: int) -> None:
    """Raises Disconnect for a request of which no answer is worth its work."""
    if topics > limits.topics:
        raise Disconnect(f"a request with {topics} topics; at most {limits.topics} are accepted")
    if partitions > limits.partitions:
        raise Disconnect(f"a request with {partitions} partitions; at most {limits.partitions} are accepted")


def check_names(limits: BrokerLimits, names: Sized) -> None:
    """The same for names of topics, groups or settings."""
    check_bounded(limits, topics=len(names), partitions=0)


def once(names: Iterable[str]) -> list[str]:
    """The names in their order, each once: no client asks twice, and an answer may be large for each."""
    return list(dict.fromkeys(names))
