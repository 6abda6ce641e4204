"""What one connection has agreed on: first CONNECT with a login, then the commands of that login.

The login is ``token`` with the text ``<project>#<accessKeyId>#<accessKeySecret>``, or ``basic`` with the
project as the user and ``accessKeyId#accessKeySecret`` as the password. It ends with its access key: each
command checks whether the key is still the same. Some clients show a refused login as a time-out and try
again forever, so a refusal is delayed, and logged once a minute.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from msgspec import Struct

import loghub
from loghub_service.connections.frames import Admitted
from loghub_service.connections.port import Ends
from loghub_service.connections.service_ports import Access
from loghub_service.dispatch.driver import Dispatches
from loghub_service.dispatch.ports import Unreadable
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.broker.answers import refusal_of
from loghub_service.pulsar.broker.call import PulsarBroker, command_name
from loghub_service.pulsar.broker.connection import Complete
from loghub_service.pulsar.broker.consumer import PulsarConsumer
from loghub_service.pulsar.broker.delivery import Outgoing
from loghub_service.pulsar.broker.ids import AckedEntries, acked_entries
from loghub_service.pulsar.broker.names import (
    FoundTopic,
    check_namespace,
    find_local,
    logstore_to_create,
    parse_topic,
)
from loghub_service.pulsar.broker.producer import PulsarProducer, TopicProducers
from loghub_service.pulsar.broker.refusals import PulsarDisconnect, RefusedCommand
from loghub_service.pulsar.broker.store import PulsarLogin, PulsarTopic
from loghub_service.pulsar.wire.errors import MalformedCommand, ServerError
from loghub_service.pulsar.wire.frames import LENGTH_BYTES, CommandFrame, decode_frame, encode_frame
from loghub_service.pulsar.wire.producers import CommandSendError
from loghub_service.pulsar.wire.session import (
    NO_REQUEST,
    PROTOCOL_VERSION,
    CommandAuthResponse,
    CommandConnect,
    CommandConnected,
    CommandError,
    CommandPing,
    CommandPong,
    FeatureFlags,
)

_log = structlog.get_logger("loghub_service.pulsar")
# What the service can do. Java's clients look for new partitions only with the last one.
_FEATURES = FeatureFlags(
    supports_auth_refresh=True,
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
)
# Pulsar's client for Go (0.19.0) forgets a producer for which it gets NotAllowedError: it never connects the
# producer again, and each later message of it times out.
_GO = "Pulsar-Go-"
_LARGE_COMMAND_BYTES = 8 << 10  # with a thousand ids, for which it takes 5 ms
_HOW_TO_LOG_IN = (
    "the login is refused: use a token PROJECT#ACCESSKEYID#ACCESSKEYSECRET, or basic authentication with the "
    "project as user and ACCESSKEYID#ACCESSKEYSECRET as password, of a key with a right in the project"
)


class SessionWriter(Protocol):
    """The connection of a session."""

    def send(self, command: Struct) -> None: ...
    def deliver(self, outgoing: Outgoing) -> None: ...
    async def is_alive(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressedTopic:
    """A topic by the name that the client uses for it."""

    name: str
    topic: PulsarTopic
    partition: int | None
    suffix: RecordForm | None

    def shard(self) -> int:
        """The partition that is meant. Raises RefusedCommand."""
        if self.partition is not None:
            if self.partition >= self.topic.partitions:
                raise RefusedCommand(
                    ServerError.TOPIC_NOT_FOUND, f"{self.name[:200]!r} has no such partition"
                )
            return self.partition
        if self.topic.partitions != 1:
            raise RefusedCommand(
                ServerError.NOT_ALLOWED_ERROR,
                f"{self.name[:200]!r} has {self.topic.partitions} partitions: name one of them, as in "
                f"{self.name[:200]}-partition-0",
            )
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPeer:
    """The client of a connection. ``admit`` is called with the key's id at the login, and says whether the
    key may have another connection."""

    admitted: Admitted
    ends: Ends
    admit: Callable[[str], bool]


# Each takes the class of its command.
Handler = Callable[["PulsarSession", Any], Awaitable[Complete | None]]


class Handle(Protocol):
    """What a connection has open besides its consumers and producers; `close` is called once."""

    def close(self) -> None: ...


class PulsarSession:
    """The session of one connection."""

    def __init__(
        self,
        broker: PulsarBroker,
        peer: SessionPeer,
        writer: SessionWriter,
        *,
        handlers: Mapping[type[Struct], Handler],
        dispatches: Dispatches,
        topic_producers: TopicProducers,
    ) -> None:
        self.broker = broker
        self.address = peer.ends.broker
        self.client_host = peer.ends.client_host
        self.dispatches = dispatches
        self.topic_producers = topic_producers
        self._writer = writer
        self.consumers: dict[int, PulsarConsumer] = {}
        self.producers: dict[int, PulsarProducer] = {}
        self.watchers: dict[int, Handle] = {}
        self._peer = peer
        self._handlers = handlers
        self._login: PulsarLogin | None = None
        self._is_go = False

    def send(self, command: Struct) -> None:
        self._writer.send(command)

    def deliver(self, outgoing: Outgoing) -> None:
        self._writer.deliver(outgoing)

    async def is_alive(self) -> bool:
        """Whether the client answers PING; the connection has ended if it does not."""
        return await self._writer.is_alive()

    # What a connection needs

    @property
    def is_logged_in(self) -> bool:
        return self._login is not None

    async def begin(self, frame: bytes) -> Complete | None:
        self.broker.counts.received_bytes += len(frame)
        try:
            decoded = await self._decoded(frame)
        except MalformedCommand as error:
            raise PulsarDisconnect(str(error)) from error
        command = decoded.command
        self.broker.counts.requests[command_name(type(command))] += 1
        if self._login is None:
            await self._connect(command)
            return None
        self.check_login()
        if isinstance(command, CommandPing):
            self.send(CommandPong())
            return None
        if isinstance(command, CommandPong):
            return None
        if isinstance(command, CommandAuthResponse):
            self._authenticate_again(command)
            return None
        handler = self._handlers.get(type(command))
        if handler is None:
            raise PulsarDisconnect(f"{type(command).__name__} is no command of a client after its login")
        try:
            is_bare = isinstance(decoded, CommandFrame) and decoded.entry is None
            complete = await handler(self, command if is_bare else decoded)
        except RefusedCommand as error:
            self.refuse(command, error)
            return None
        except Unreadable as error:
            self._refuse_unreadable(command, error)
            return None
        return None if complete is None else self._completed(command, complete)

    async def _decoded(self, frame: bytes) -> CommandFrame | AckedEntries:
        """Decode a command. A large command takes long, so large commands are decoded one at a time."""
        acked = acked_entries(frame)
        if acked is not None:
            return acked
        if int.from_bytes(frame[:LENGTH_BYTES], "big") <= _LARGE_COMMAND_BYTES:
            return decode_frame(frame)
        async with self.broker.large_commands:
            decoded = decode_frame(frame)
            await asyncio.sleep(0)
        return decoded

    async def _completed(self, command: Struct, complete: Complete) -> None:
        try:
            await complete
        except RefusedCommand as error:
            self.refuse(command, error)
        except Unreadable as error:
            self._refuse_unreadable(command, error)

    def _refuse_unreadable(self, command: Struct, error: Unreadable) -> None:
        _log.error("log data cannot be read", error=str(error), command=command_name(type(command)))
        self.refuse(command, RefusedCommand(ServerError.PERSISTENCE_ERROR, str(error)))

    def refuse(self, command: Struct, error: RefusedCommand) -> None:
        """Answer a command with an error, if it has an answer."""
        self.broker.counts.errors[error.code.name] += 1
        answer = refusal_of(command, error)
        forgets = self._is_go and isinstance(answer, CommandSendError)
        if answer is not None and not (forgets and error.code is ServerError.NOT_ALLOWED_ERROR):
            self.send(answer)

    def close(self) -> None:
        for consumer in tuple(self.consumers.values()):
            consumer.close()
        for handle in (*self.producers.values(), *self.watchers.values()):
            handle.close()

    # Login

    @property
    def login(self) -> PulsarLogin:
        assert self._login is not None
        return self._login

    def check_login(self) -> None:
        if self._login is not None and not self._login.is_valid():
            raise PulsarDisconnect(
                f"access key {self._login.key_id!r} is no longer valid",
                _login_error("the access key of the login was changed, removed, or has expired"),
            )

    async def _connect(self, command: Struct) -> None:
        if not isinstance(command, CommandConnect):
            raise PulsarDisconnect(f"{type(command).__name__} before CONNECT")
        refusal = self._log_in(command.auth_method_name or "", command.auth_data or b"")
        if refusal:
            await asyncio.sleep(self.broker.limits.refusal_delay_s)
            raise PulsarDisconnect("login refused", refusal)
        self._is_go = command.client_version.startswith(_GO)
        self.send(
            CommandConnected(
                server_version=f"LogHub {loghub.__version__}",
                protocol_version=min(command.protocol_version, PROTOCOL_VERSION),
                max_message_size=self.broker.limits.message_bytes,
                feature_flags=_FEATURES,
            )
        )

    def _log_in(self, method: str, data: bytes) -> bytes:
        """Log in, or return the error that says why not."""
        user, password = _credentials(method, data)
        login = self.broker.service.login(user, password) if user else None
        if login is None:
            self._note_refusal(method, user)
            return _login_error(_HOW_TO_LOG_IN)
        if not self._peer.admit(login.key_id):  # clients try again after this code
            return _connection_error(
                ServerError.SERVICE_NOT_READY,
                f"access key {login.key_id!r} has too many requests in progress",
            )
        self._login = login
        return b""

    def _authenticate_again(self, command: CommandAuthResponse) -> None:
        """The answer to a challenge must be a login with the same key in the same project."""
        response = command.response
        method, data = ("", b"") if response is None else (response.auth_method_name, response.auth_data)
        login = self.broker.service.login(*_credentials(method or "", data or b""))
        if login is None or (login.project, login.key_id) != (self.login.project, self.login.key_id):
            raise PulsarDisconnect("AUTH_RESPONSE with another login", _login_error(_HOW_TO_LOG_IN))
        self._login = login

    def _note_refusal(self, method: str, user: str) -> None:
        self.broker.counts.refused_logins += 1
        if self.broker.refused.is_news((self._peer.admitted.peer, user[:128])):
            _log.warning(
                "Pulsar login refused", peer=self._peer.admitted.peer, method=method[:32], project=user[:128]
            )

    # What handlers need

    def check_may(self, access: Access) -> None:
        """Raises RefusedCommand AUTHORIZATION_ERROR."""
        if not self.login.may(access):
            raise RefusedCommand(
                ServerError.AUTHORIZATION_ERROR,
                f"access key {self.login.key_id!r} does not have the right {access.value!r}",
            )

    def check_room(self) -> None:
        """Raises RefusedCommand if the connection has the most consumers, producers and watchers."""
        if len(self.consumers) + len(self.producers) + len(self.watchers) >= self.broker.limits.handles:
            raise RefusedCommand(
                ServerError.TOO_MANY_REQUESTS,
                f"a connection has at most {self.broker.limits.handles} consumers, producers and watchers",
            )

    def consumer(self, consumer_id: int) -> PulsarConsumer:
        """Raises RefusedCommand CONSUMER_NOT_FOUND."""
        found = self.consumers.get(consumer_id)
        if found is None:
            raise RefusedCommand(
                ServerError.CONSUMER_NOT_FOUND, f"the connection has no consumer {consumer_id}"
            )
        return found

    def topic(self, name: str, *, whole_first: bool = False) -> AddressedTopic:
        """``whole_first`` as for `names.find_local`. Raises RefusedCommand."""
        parsed = parse_topic(name)
        check_namespace(parsed.namespace, self.login.project)
        found = find_local(
            parsed.local,
            self.login.topic,
            partitions=lambda topic: topic.partitions,
            whole_first=whole_first,
        )
        if found is None:
            raise RefusedCommand(
                ServerError.TOPIC_NOT_FOUND,
                f"project {self.login.project} has no logstore for topic {name[:200]!r}; create one with "
                f"`loghub logstore create NAME --project {self.login.project}`, or let the service do it by "
                "--pulsar-auto-create and a key that has the right admin",
            )
        return _named(name, found)

    async def topic_or_new(self, name: str, *, whole_first: bool = False) -> AddressedTopic:
        """The same; a logstore that is missing is created if the service and the key allow it."""
        try:
            return self.topic(name, whole_first=whole_first)
        except RefusedCommand as error:
            if error.code is not ServerError.TOPIC_NOT_FOUND or not self.broker.auto_create:
                raise
            if not self.login.may(Access.ADMIN):
                raise
        await self.login.create_topic(logstore_to_create(parse_topic(name).local))
        return self.topic(name, whole_first=whole_first)


def _named(name: str, found: FoundTopic[PulsarTopic]) -> AddressedTopic:
    topic = found.topic if found.form is None else found.topic.in_form(found.form)
    return AddressedTopic(name=name, topic=topic, partition=found.partition, suffix=found.form)


def _credentials(method: str, data: bytes) -> tuple[str, str]:
    """The project and the password; "" if there are none."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "", ""
    separator = {"token": "#", "basic": ":"}.get(method)
    if separator is None:
        return "", ""
    user, _, password = text.partition(separator)
    return user, password


def _login_error(message: str) -> bytes:
    return _connection_error(ServerError.AUTHENTICATION_ERROR, message)


def _connection_error(code: ServerError, message: str) -> bytes:
    return encode_frame(CommandError(request_id=NO_REQUEST, error=code, message=message))
