"""The state of one connection: first a login by SASL/PLAIN, then requests of that login, each passed to the
function that answers its API.

Before the login only ApiVersions, SaslHandshake and SaslAuthenticate are answered; any other request ends the
connection, as in Kafka. The user is the project, and the password ``accessKeyId#accessKeySecret``, as for
SLS. A login ends with its access key: each request checks that the key is still the same.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from msgspec import Struct

from loghub_service.connections.frames import Admitted
from loghub_service.connections.port import Ends
from loghub_service.connections.stalled import RequestMemory
from loghub_service.kafka.broker import produce
from loghub_service.kafka.broker.answer import Answer, Complete, Disconnect
from loghub_service.kafka.broker.call import Broker, KafkaCall
from loghub_service.kafka.broker.fetch_session import FetchSessions
from loghub_service.kafka.broker.handlers import HANDLERS
from loghub_service.kafka.broker.store import BrokerLogin
from loghub_service.kafka.wire.apis import ApiKey, api_versions_response
from loghub_service.kafka.wire.errors import ErrorCode, MalformedFrame
from loghub_service.kafka.wire.frames import RequestHeader, decode_request
from loghub_service.kafka.wire.logs import ProduceRequest
from loghub_service.kafka.wire.topics import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    decode_plain,
)

_log = structlog.get_logger("loghub_service.kafka")
MECHANISM = "PLAIN"
# Answers that may have a thousand members with their metadata, ten thousand offsets, or all partitions.
_LARGE_ANSWERS = {ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH, ApiKey.METADATA, ApiKey.LIST_GROUPS}
# Requests that name many things, whose work is done in one piece: they count as large as a thousand.
_IN_PIECES = {ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE, ApiKey.METADATA}
_LARGE_FRAME_BYTES = 4 << 10
_LARGE_PRODUCE_BYTES = 256 << 10  # most of a Produce request is batches, which cost nothing here
_NO_ROOM_WAIT_S = 0.05
_PRODUCE_PREFIX = int(ApiKey.PRODUCE).to_bytes(2, "big")


def _session_id() -> int:
    """The id of a fetch session. It need not be secret, because only its connection may use it."""
    return secrets.randbelow(0x7FFF_FFFE) + 1


class ClientSession:
    """The session of one connection. ``admit`` is called with the key's id at the login, and says whether the
    key may have another connection; ``memory`` has the bytes of the connection's requests."""

    def __init__(
        self,
        broker: Broker,
        admitted: Admitted,
        *,
        ends: Ends,
        admit: Callable[[str], bool],
        memory: RequestMemory,
    ) -> None:
        self._broker = broker
        self._admitted = admitted
        self._ends = ends
        self._admit = admit
        self._memory = memory
        self._login: BrokerLogin | None = None
        self._mechanism_chosen = False
        self._fetch_sessions = FetchSessions(broker.session_entries, broker.service.watch, _session_id)
        self._bare_tokens = False  # after a SaslHandshake of version 0

    @property
    def is_logged_in(self) -> bool:
        return self._login is not None

    def overlaps(self, frame: bytes) -> bool:
        return self._login is not None and self._is_produce(frame)

    @staticmethod
    def _is_produce(frame: bytes) -> bool:
        return frame.startswith(_PRODUCE_PREFIX)

    def _large_frame_bytes(self, frame: bytes) -> int:
        return _LARGE_PRODUCE_BYTES if self._is_produce(frame) else _LARGE_FRAME_BYTES

    def close(self) -> None:
        self._fetch_sessions.close()

    async def begin(self, frame: bytes) -> Complete:
        self._broker.counts.received_bytes += len(frame)
        if self._bare_tokens and self._login is None:
            return lambda: self._log_in_bare(frame)
        try:
            async with self._broker.in_turn(large=len(frame) >= self._large_frame_bytes(frame)):
                header, body = decode_request(frame)
        except MalformedFrame as error:
            raise Disconnect(str(error)) from error
        api = ApiKey(header.api_key)
        self._broker.counts.requests[api.name] += 1
        if api is ApiKey.API_VERSIONS:
            return lambda: self._done(header, api_versions_response(header.api_version))
        if isinstance(body, SaslHandshakeRequest):
            return lambda: self._shake_hands(header, body)
        if isinstance(body, SaslAuthenticateRequest):
            return lambda: self._authenticate(header, body)
        call = self._call(header)
        if isinstance(body, ProduceRequest):
            complete = await produce.order(call, body)
            return lambda: self._finish(header, complete)
        handler = HANDLERS[api]
        large = api in _IN_PIECES and len(frame) >= _LARGE_FRAME_BYTES
        return lambda: self._finish(header, lambda: handler(call, body), large=large)

    def _call(self, header: RequestHeader) -> KafkaCall:
        if self._login is None:
            raise Disconnect(f"{ApiKey(header.api_key).name} before the login")
        if not self._login.is_valid():
            raise Disconnect(f"access key {self._login.key_id!r} is no longer valid")
        return KafkaCall(
            broker=self._broker,
            login=self._login,
            header=header,
            address=self._ends.broker,
            client_host=self._ends.client_host,
            waiting=self._waiting,
            fetch_sessions=self._fetch_sessions,
        )

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Mark a time in which the service does nothing for the connection, so that it may be closed for
        another."""
        self._admitted.waiting = True
        try:
            with self._memory.waiting():
                yield
        finally:
            self._admitted.waiting = False

    async def _finish(self, header: RequestHeader, complete: Complete, *, large: bool = False) -> Answer:
        if header.api_key in _LARGE_ANSWERS:
            await self._room_for_answers()
        answer: Answer | None = None
        try:
            async with self._broker.in_turn(large=large):
                answer = await complete()
        except BaseException:
            if answer is not None:  # the client has left while others had their turn
                answer.sent()
            raise
        return answer

    async def _room_for_answers(self) -> None:
        """Wait until clients have read enough of other answers: this answer is built in one piece, whatever
        its size."""
        budget = self._broker.answer_budget
        while budget.used >= budget.limit:
            self._broker.stalled.end_oldest()
            with self._waiting():
                await asyncio.sleep(_NO_ROOM_WAIT_S)

    async def _done(self, header: RequestHeader, response: Struct) -> Answer:
        return self._broker.answer(header, response)

    # Login

    async def _shake_hands(self, header: RequestHeader, body: SaslHandshakeRequest) -> Answer:
        if self._login is not None:
            raise Disconnect("SaslHandshake after the login")
        offered = body.mechanism == MECHANISM
        error = ErrorCode.NONE if offered else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism_chosen = offered
        self._bare_tokens = offered and header.api_version == 0
        answer = self._broker.answer(header, SaslHandshakeResponse(error_code=error, mechanisms=(MECHANISM,)))
        if not offered:
            raise Disconnect(f"SASL mechanism {body.mechanism[:32]!r} is not offered", answer)
        return answer

    async def _authenticate(self, header: RequestHeader, body: SaslAuthenticateRequest) -> Answer:
        if self._login is not None or not self._mechanism_chosen:
            refusal = SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="send SaslHandshake once, and first"
            )
            raise Disconnect("SaslAuthenticate out of place", self._broker.answer(header, refusal))
        problem = self._log_in(body.auth_bytes)
        if problem:
            await asyncio.sleep(self._broker.limits.refusal_delay_s)
            refusal = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=problem
            )
            raise Disconnect("login refused", self._broker.answer(header, refusal))
        return self._broker.answer(header, SaslAuthenticateResponse())

    async def _log_in_bare(self, token: bytes) -> Answer:
        """Log in a client from before Kafka 1.0, whose tokens have no header."""
        if self._log_in(token):
            await asyncio.sleep(self._broker.limits.refusal_delay_s)
            raise Disconnect("login refused")
        return Answer((bytes(4),))

    def _log_in(self, token: bytes) -> str:
        """Log in, or return the reason for the refusal. Raises Disconnect if the client may try again."""
        try:
            credentials = decode_plain(token)
        except MalformedFrame as error:
            return str(error)
        login = self._broker.service.login(credentials.user, credentials.password)
        if login is None or credentials.authorization_id not in ("", credentials.user):
            self._note_refusal(credentials.user)
            return (
                "the login is refused: the user must be the project, and the password "
                "accessKeyId#accessKeySecret of a key with a right in it"
            )
        if not self._admit(login.key_id):  # no answer: to clients a refused login is an error of their user
            raise Disconnect(f"access key {login.key_id!r} has too many requests in progress")
        self._login = login
        return ""

    def _note_refusal(self, user: str) -> None:
        self._broker.counts.refused_logins += 1
        _log.warning("Kafka login refused", peer=self._admitted.peer, user=user[:128])
