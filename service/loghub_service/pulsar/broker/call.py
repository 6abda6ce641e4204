"""What all connections of a broker share, and the bounds on what Pulsar clients may occupy."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

from msgspec import Struct

from loghub.clock import Clock
from loghub_service.connections.frames import MIB, FrameLimits
from loghub_service.connections.stalled import Budget, StalledClients
from loghub_service.connections.turns import DecodingTurns
from loghub_service.pulsar.broker.store import PulsarLogService
from loghub_service.pulsar.records.entries import EntryToSend
from loghub_service.pulsar.sequences import Sequences
from loghub_service.pulsar.wire.commands import COMMANDS
from loghub_service.pulsar.wire.frames import FRAME_MARGIN_BYTES, MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarBrokerLimits(FrameLimits):
    """The defaults are for the embedded service; tests choose smaller ones. Sizes are in bytes."""

    message_bytes: int = MAX_MESSAGE_BYTES  # of one message or chunk, as CONNECTED says it
    frame_bytes: int = MAX_MESSAGE_BYTES + FRAME_MARGIN_BYTES
    queued_requests: int = 64  # of a connection: acknowledgements are small, and come in series
    in_progress: int = 1000  # requests of a connection that are begun and not answered; Pulsar's default
    idle_s: float = (
        30  # without a request, until the client is asked whether it is there, and again to its end
    )
    handles: int = 10_000  # consumers, producers and watchers of a connection
    ids: int = 10_000  # in one ACK or REDELIVER
    # Runs of messages that wait on a connection; beyond it no command is begun. A run takes about 150 bytes,
    # and a consumer of Shared has at most half as many out.
    queued_runs: int = 100_000
    # For the answer to PING of a client that others wait for; Pulsar's connectionLivenessCheckTimeoutMillis.
    liveness_s: float = 5.0
    permits: int = 1_000_000  # of a consumer
    cache_bytes: int = 64 * MIB  # of entries that were read and may still be delivered
    answer_bytes: int = 64 << 10  # that are written before a client has to read
    group_bytes: int = 10 * MIB  # of the log group that a message, a batch or a chunk becomes
    send_error_delay_s: float = 1.0  # clients send the message again as soon as they have the error


class PulsarCounts:
    """Totals since the start; used on the event loop only. Names that clients choose are no part of it."""

    def __init__(self) -> None:
        # By command. Each is there from the start: a rate would not see the first value of a series.
        self.requests: Counter[str] = Counter({command_name(command): 0 for command in COMMANDS})
        self.errors: Counter[str] = Counter()  # by error code
        self.failed_requests = 0  # by an error of ours
        self.refused_logins = 0
        self.received_bytes = 0  # of requests
        self.sent_bytes = 0  # of answers and messages
        self.produced_logs = 0
        self.delivered_logs = 0
        self.too_large_logs = 0  # that no frame can carry, and that were left out


def command_name(command: type[Struct]) -> str:
    return command.__name__.removeprefix("Command")


_data_of = attrgetter("data")


class EntryCache:
    """Entries that were read, by the log group they are in: at most ``limit`` bytes, the oldest ones go."""

    _ENTRY_BYTES = 200  # of an entry besides its data

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._groups: OrderedDict[Hashable, tuple[tuple[EntryToSend, ...], int]] = OrderedDict()

    def put(self, key: Hashable, entries: tuple[EntryToSend, ...]) -> None:
        self.forget(key)
        # Without a step of Python for each entry, which is a log in most types.
        size = sum(map(len, filter(None, map(_data_of, entries)))) + self._ENTRY_BYTES * len(entries)
        self._groups[key] = entries, size
        self.used += size
        while self.used > self.limit:
            self.forget(next(iter(self._groups)))

    def get(self, key: Hashable) -> tuple[EntryToSend, ...] | None:
        found = self._groups.get(key)
        if found is None:
            return None
        self._groups.move_to_end(key)
        return found[0]

    def forget(self, key: Hashable) -> None:
        found = self._groups.pop(key, None)
        if found is not None:
            self.used -= found[1]


class LoggedRefusals:
    """Which refusals are worth a line of the log: clients try again forever, several times in a second."""

    _EVERY_S = 60.0
    _MAX = 1000

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_s: OrderedDict[Hashable, float] = OrderedDict()

    def is_news(self, who: Hashable) -> bool:
        """Whether no refusal of this client was logged within the last minute."""
        now_s = self._clock.monotonic_s()
        last_s = self._logged_s.get(who)
        if last_s is not None and now_s - last_s < self._EVERY_S:
            return False
        self._logged_s[who] = now_s
        self._logged_s.move_to_end(who)
        if len(self._logged_s) > self._MAX:
            self._logged_s.popitem(last=False)
        return True


class NamesWatcher(Protocol):
    """A client that is informed when topics of its project come and go."""

    project: str

    def topics(self) -> object:
        """Another value whenever topics of the project, or their partitions, come and go."""

    def look(self) -> None:
        """Compare the topics with what the client knows, and tell it what has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarBroker:
    """What the connections of one endpoint share. ``dispatches`` has the subscriptions that have consumers,
    by topic and name."""

    service: PulsarLogService
    limits: PulsarBrokerLimits
    clock: Clock
    answer_budget: Budget
    stalled: StalledClients
    counts: PulsarCounts
    cache: EntryCache
    refused: LoggedRefusals
    sequences: Sequences
    decoding: DecodingTurns
    numbers: Iterator[int]  # of consumers
    auto_create: bool
    is_tls: bool
    watchers: dict[NamesWatcher, None] = field(default_factory=dict)
    large_commands: asyncio.Lock = field(default_factory=asyncio.Lock)  # that are decoded
