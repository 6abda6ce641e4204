"""SaslHandshake and SaslAuthenticate: the login of a connection, and what PLAIN carries.

https://kafka.apache.org/protocol.html#sasl_handshake, KIP-152. After a handshake of version 0 the bytes of
the mechanism follow in frames without a header; after version 1 they are in SaslAuthenticate.
"""

from typing import Annotated

from msgspec import Struct

from loghub.kafka.wire.errors import MalformedFrame
from loghub.kafka.wire.fields import Bytes, Int16, Int64, NullableString, String, since


class SaslHandshakeRequest(Struct, frozen=True, kw_only=True):
    """The mechanism that the client would like to use."""

    mechanism: String


class SaslHandshakeResponse(Struct, frozen=True, kw_only=True):
    """The mechanisms that the broker has."""

    error_code: Int16 = 0
    mechanisms: tuple[String, ...]


class SaslAuthenticateRequest(Struct, frozen=True, kw_only=True):
    """One message of the mechanism."""

    auth_bytes: Bytes


class SaslAuthenticateResponse(Struct, frozen=True, kw_only=True):
    """A session lifetime of 0 asks for no further login."""

    error_code: Int16 = 0
    error_message: NullableString = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1)] = 0


class PlainCredentials(Struct, frozen=True, kw_only=True):
    """The one message of the mechanism PLAIN (RFC 4616)."""

    authorization_id: str
    user: str
    password: str

    def __repr__(self) -> str:
        """Without the password, which would end up in a log."""
        return f"PlainCredentials(user={self.user!r})"


def decode_plain(auth_bytes: bytes) -> PlainCredentials:
    """The credentials in a message of PLAIN: two zero bytes between three texts. Raises MalformedFrame."""
    parts = auth_bytes.split(b"\0")
    if len(parts) != 3:
        raise MalformedFrame("a message of PLAIN has not exactly two zero bytes")
    try:
        authorization_id, user, password = (part.decode() for part in parts)
    except UnicodeDecodeError as error:
        # Not the cause's text, which shows the bytes.
        raise MalformedFrame(f"a message of PLAIN is not UTF-8 at byte {error.start} of a part") from None
    return PlainCredentials(authorization_id=authorization_id, user=user, password=password)
