"""What a broker owes a connection, derived from the bytes that the client sends."""

from dataclasses import dataclass, field

from loghub_service.kafka.wire import topics
from loghub_service.kafka.wire.apis import APIS, ApiKey
from loghub_service.kafka.wire.errors import ErrorCode, MalformedFrame
from loghub_service.kafka.wire.frames import RequestHeader, decode_request
from loghub_service.kafka.wire.logs import ProduceRequest
from tests.loghub_service.kafka.broker.likely_requests import TOKEN


@dataclass(frozen=True, slots=True)
class Answer:
    """What must come back for a request: the answer to its header, or four zero bytes to a bare token. Only
    the login has a code that is known beforehand."""

    header: RequestHeader | None
    code: ErrorCode | None = None


@dataclass
class Conversation:
    """The answers that a connection owes, and whether it ends by itself after them."""

    logged_in: bool
    answers: list[Answer] = field(default_factory=list)
    ends: bool = False
    _mechanism_chosen: bool = False
    _bare: bool = False  # tokens without a header are next

    def follow(self, frame: bytes) -> None:
        """What the next frame leads to."""
        if self._bare and not self.logged_in:
            self.logged_in = frame == TOKEN
            self._add(None, ends=not self.logged_in)
            return
        try:
            header, body = decode_request(frame)
        except MalformedFrame:
            self.ends = True
            return
        if header.api_key == ApiKey.API_VERSIONS:
            offered = APIS[header.api_key].offers(header.api_version)
            self._add(header, ErrorCode.NONE if offered else ErrorCode.UNSUPPORTED_VERSION)
        elif isinstance(body, topics.SaslAuthenticateRequest):
            self._authenticate(header, body)
        elif isinstance(body, topics.SaslHandshakeRequest):
            self._shake_hands(header, body)
        elif not self.logged_in:
            self.ends = True
        elif not (isinstance(body, ProduceRequest) and body.acks == 0):
            self._add(header)

    def _shake_hands(self, header: RequestHeader, body: topics.SaslHandshakeRequest) -> None:
        if self.logged_in:
            self.ends = True
            return
        self._mechanism_chosen = body.mechanism == "PLAIN"
        self._bare = self._mechanism_chosen and header.api_version == 0
        code = ErrorCode.NONE if self._mechanism_chosen else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._add(header, code, ends=not self._mechanism_chosen)

    def _authenticate(self, header: RequestHeader, body: topics.SaslAuthenticateRequest) -> None:
        if self.logged_in or not self._mechanism_chosen:
            self._add(header, ErrorCode.ILLEGAL_SASL_STATE, ends=True)
            return
        self.logged_in = body.auth_bytes == TOKEN
        code = ErrorCode.NONE if self.logged_in else ErrorCode.SASL_AUTHENTICATION_FAILED
        self._add(header, code, ends=not self.logged_in)

    def _add(
        self, header: RequestHeader | None, code: ErrorCode | None = None, *, ends: bool = False
    ) -> None:
        if header is not None or not ends:  # a bare token that is wrong has no answer
            self.answers.append(Answer(header, code))
        self.ends = ends


def conversation(stream: bytes, *, logged_in: bool) -> tuple[Conversation, int]:
    """What a stream leads to, and how much of it is complete frames up to the end of the connection."""
    result, at = Conversation(logged_in), 0
    while not result.ends:
        size = int.from_bytes(stream[at : at + 4], "big", signed=True)
        if size < 1 or at + 4 + size > len(stream):
            break
        result.follow(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return result, at
