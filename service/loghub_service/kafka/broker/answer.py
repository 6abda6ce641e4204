"""The result of a request, which is an answer or the end of the connection; the counts of a broker for
metrics, without names that clients choose; and the bounds on what clients may occupy."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence, Sized
from dataclasses import dataclass

from loghub_service.connections.frames import MIB, FrameLimits
from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.kafka.wire.codec import Buffer


class BrokerCounts:
    """Totals since the start; used on the event loop only."""

    def __init__(self) -> None:
        # By API. Each is there from the start: a rate would not see the first value of a series.
        self.requests: Counter[str] = Counter({api.name: 0 for api in ApiKey})
        self.errors: Counter[tuple[str, str]] = Counter()  # by API and error code
        self.failed_requests = 0  # by an error of ours
        self.refused_logins = 0
        self.received_bytes = 0  # of requests
        self.sent_bytes = 0  # of answers
        self.produced_logs = 0
        self.fetched_logs = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits(FrameLimits):
    """The defaults are for the embedded service; tests choose smaller ones."""

    group_bytes: int = 10 * MIB  # a produced batch after decompression, and the log group that it becomes
    fetch_bytes: int = 16 * MIB  # one answer, whatever the client allows; its first batch may exceed this
    fetch_wait_s: float = 60  # a long poll, whatever the client requests
    session_partitions: int = 100_000  # partitions that all fetch sessions remember; 40 MB
    topics: int = 1000  # in one request
    partitions: int = 10_000  # in one request


def no_op() -> None:
    """Nothing is held for the answer, so nothing is given back."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The parts of a frame, its length included; none if the request has no answer. ``sent`` is called once
    the client has read the answer, or has disconnected: it gives back the memory of the answer."""

    parts: Sequence[Buffer] = ()
    sent: Callable[[], None] = no_op


NO_ANSWER = Answer()
# Completes a request that has begun. It is called at most once: not if the connection ends before.
Complete = Callable[[], Awaitable[Answer]]


class Disconnect(Exception):  # noqa: N818 - says what follows
    """The client breaks the protocol, so that no answer can be right: the connection ends.

    ``answer`` is sent before, and the message is for the log.
    """

    def __init__(self, message: str, answer: Answer = NO_ANSWER) -> None:
        super().__init__(message)
        self.answer = answer


# After this many things that a request names, each of which takes some 100 us of the event loop, other
# requests run.
PAUSE_EVERY = 50


def check_bounded(limits: BrokerLimits, *, topics: int, partitions: int) -> None:
    """Raises Disconnect for a request with more topics or partitions than are worth an answer's work."""
    if topics > limits.topics:
        raise Disconnect(f"a request with {topics} topics; at most {limits.topics} are accepted")
    if partitions > limits.partitions:
        raise Disconnect(f"a request with {partitions} partitions; at most {limits.partitions} are accepted")


def check_names(limits: BrokerLimits, names: Sized) -> None:
    """Raises Disconnect for a request with too many names of topics, groups or settings."""
    check_bounded(limits, topics=len(names), partitions=0)


def once(names: Iterable[str]) -> list[str]:
    """The names in their order, each once: no client repeats a name, and an answer may be large for each."""
    return list(dict.fromkeys(names))
