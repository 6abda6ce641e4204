"""A request in progress, and what all requests share."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass

from loghub.clock import Clock
from loghub.kafka.broker.counts import BrokerCounts
from loghub.kafka.broker.decoding import Decoding
from loghub.kafka.broker.fetch_session import FetchSessions, SessionEntries
from loghub.kafka.broker.limits import BrokerLimits
from loghub.kafka.broker.stalled import StalledClients
from loghub.kafka.broker.store import Access, Budget, Login, LogService, StoreError
from loghub.kafka.broker.topics import NamedTopic, find_topic
from loghub.kafka.groups import KafkaGroups
from loghub.kafka.producers import Producers
from loghub.kafka.wire.apis import ApiKey
from loghub.kafka.wire.error_codes import ErrorCode
from loghub.kafka.wire.frames import RequestHeader

NODE_ID = 0  # of the only broker
_BY_NUMBER = {code.value: code for code in ErrorCode}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """What the connections of one endpoint share."""

    service: LogService
    groups: KafkaGroups
    limits: BrokerLimits
    clock: Clock
    answer_budget: Budget
    decoding: Decoding
    producers: Producers
    counts: BrokerCounts
    stalled: StalledClients
    session_entries: SessionEntries
    turn: asyncio.Lock  # of a request that names many things, on the event loop

    @asynccontextmanager
    async def in_turn(self, *, large: bool) -> AsyncIterator[None]:
        """One large request after the other, with a pause for everybody else: a heartbeat waits for a piece
        of one of them, and not for one of each."""
        if not large:
            yield
            return
        async with self.turn:
            yield
            await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Address:
    """Where clients find the broker."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request after the login. ``waiting`` marks a time in which the service does nothing for it."""

    broker: Broker
    login: Login
    header: RequestHeader
    address: Address
    client_host: str
    waiting: Callable[[], AbstractContextManager[None]]
    fetch_sessions: FetchSessions

    @property
    def version(self) -> int:
        return self.header.api_version

    def counted(self, error: int) -> ErrorCode:
        """The error of an answer, or of a part of it, once it is counted."""
        code = _BY_NUMBER.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code:
            self.broker.counts.errors[ApiKey(self.header.api_key).name, code.name] += 1
        return code

    def topic(self, name: str, access: Access | None = None) -> NamedTopic:
        """The topic of this name. Raises StoreError if there is none, or without the right ``access``."""
        if access is not None and not self.login.may(access):
            raise StoreError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"access key {self.login.key_id!r} does not have the right {access.value!r}",
            )
        return find_topic(self.login, name)
