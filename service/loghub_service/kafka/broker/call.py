"""A request in progress, and what all requests share: names of topics, the bounds on decoding, and the memory
of answers.

How much memory decoding a record batch takes. A compressed batch of some KiB may become 10 MiB, and reading
records one by one is slow: large batches are decoded in threads, as many at once as the service checks log
groups.

The name of a topic is a logstore, and perhaps a suffix that says what its records look like: ``access`` is a
logstore with its own form; ``access.json`` and ``access.raw`` are the same logs in another form. SLS has the
first of these suffixes. The name of a logstore has no dot.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from msgspec import Struct

from loghub.clock import Clock
from loghub_service.connections.port import BrokerAddress
from loghub_service.connections.service_ports import Access
from loghub_service.connections.stalled import Budget, StalledClients
from loghub_service.connections.turns import DecodingTurns, Need
from loghub_service.kafka.broker.answer import Answer, BrokerCounts, BrokerLimits, no_op
from loghub_service.kafka.broker.fetch_session import FetchSessions, SessionEntries
from loghub_service.kafka.broker.forms import BatchSource, NewBatch, decode_batch
from loghub_service.kafka.broker.store import BrokerLogin, LogService, StoreError, Topic
from loghub_service.kafka.groups import KafkaGroups
from loghub_service.kafka.producers import Producers
from loghub_service.kafka.records.record_forms import RecordForm, addressed
from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.kafka.wire.batch_compression import decompressed_bytes
from loghub_service.kafka.wire.codec import Buffer
from loghub_service.kafka.wire.errors import ErrorCode
from loghub_service.kafka.wire.frames import RequestHeader, response_buffers
from loghub_service.kafka.wire.record_batch import HEADER_BYTES, MAX_FIELDS, read_header

# Decoding this many records, and this many bytes of them, takes some milliseconds of the event loop.
_ON_LOOP_RECORDS, _ON_LOOP_BYTES = 500, 64 << 10
_FIELD_BYTES = 700  # a header or member while its record is read, one record after the other
_LOG_BYTES = 64  # an upper bound on the bytes of a log besides the fields of its record: time, lengths, names


def need_of(records: Buffer | None, *, group_bytes: int) -> Need:
    """The need by the header. A header that is wrong, or promises more than is accepted, is refused at
    once."""
    if records is None or len(records) < HEADER_BYTES:
        return Need(memory=0, thread=False)
    header = read_header(records)
    raw = decompressed_bytes(len(records), header.compression, max_bytes=group_bytes)
    logs = min(2 * raw + _LOG_BYTES * max(header.record_count, 0), group_bytes)
    small = raw <= _ON_LOOP_BYTES and header.record_count <= _ON_LOOP_RECORDS
    fields = _FIELD_BYTES * min(raw // 2, MAX_FIELDS)  # a header has two bytes at least
    return Need(memory=raw + 2 * logs + fields, thread=not small)  # the log group is copied once


def budget_bytes(group_bytes: int) -> int:
    """The size of the budget: two batches that need the most, and two log groups that wait for the disk."""
    return 2 * (3 * group_bytes + _FIELD_BYTES * MAX_FIELDS) + 2 * group_bytes


class Decoding(DecodingTurns):
    """The batches of all connections."""

    async def decode(self, source: BatchSource, records: Buffer | None, limits: BrokerLimits) -> NewBatch:
        """Raises BadBatch. Call `release` with the size of the group once it is stored, or is not stored
        after all."""
        need = need_of(records, group_bytes=limits.group_bytes)
        work = partial(decode_batch, source, records, limits=limits)
        return await self.run(need, work, lambda batch: len(batch.group))


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTopic:
    """A topic by the name that the client uses for it, and the form of its records under that name."""

    name: str
    topic: Topic
    form: RecordForm
    suffix: RecordForm | None = None

    def addressed(self, partition: int) -> int:
        """What stands for a partition under this name."""
        return addressed(self.suffix, partition)


def find_topic(login: BrokerLogin, name: str) -> NamedTopic:
    """Raises StoreError UNKNOWN_TOPIC_OR_PARTITION."""
    logstore, dot, suffix = name.partition(".")
    topic = login.topic(logstore)
    if topic is None:
        raise _unknown(f"project {login.project} has no logstore {logstore[:100]!r}")
    if not dot:
        return NamedTopic(name=name, topic=topic, form=topic.settings.form)
    try:
        form = RecordForm(suffix)
    except ValueError:
        forms = ", ".join(form.value for form in RecordForm)
        raise _unknown(f"topic {name[:100]!r} has none of the suffixes {forms}") from None
    return NamedTopic(name=name, topic=topic, form=form, suffix=form)


def _unknown(message: str) -> StoreError:
    return StoreError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


# Free bytes of an answer; the bound on connections limits how many answers there are.
_FREE_ANSWER_BYTES = 16 << 10
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
    turn: asyncio.Lock  # held by a request that names many things, on the event loop

    @asynccontextmanager
    async def in_turn(self, *, large: bool) -> AsyncIterator[None]:
        """Let one large request run after the other, with a pause for other requests: a heartbeat waits for a
        piece of one large request, and not for a piece of each."""
        if not large:
            yield
            return
        async with self.turn:
            yield
            await asyncio.sleep(0)

    def answer(
        self, header: RequestHeader, response: Struct | None, sent: Callable[[], None] = no_op
    ) -> Answer:
        """The answer to a request; a ``response`` of None means that the client expects none. ``sent`` gives
        back the memory that is counted for the answer; without it, the size of a large answer is counted
        here."""
        if response is None:
            return Answer((), sent)
        try:
            parts = response_buffers(header, response)
        except BaseException:
            sent()
            raise
        size = sum(map(len, parts))
        self.counts.sent_bytes += size
        return Answer(parts, self._counted(size) if sent is no_op else sent)

    def _counted(self, size: int) -> Callable[[], None]:
        """Count a large answer, and return the function that gives its memory back."""
        if size <= _FREE_ANSWER_BYTES:
            return no_op
        self.answer_budget.used += size

        def sent() -> None:
            self.answer_budget.used -= size

        return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCall:
    """One request after the login. ``waiting`` marks a time in which the service does nothing for it."""

    broker: Broker
    login: BrokerLogin
    header: RequestHeader
    address: BrokerAddress
    client_host: str
    waiting: Callable[[], AbstractContextManager[None]]
    fetch_sessions: FetchSessions

    @property
    def version(self) -> int:
        return self.header.api_version

    def answer(self, response: Struct | None, sent: Callable[[], None] = no_op) -> Answer:
        """The answer to this request (`Broker.answer`)."""
        return self.broker.answer(self.header, response, sent)

    def count_error(self, error: int) -> ErrorCode:
        """Count the error of an answer, or of a part of it, and return it."""
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
