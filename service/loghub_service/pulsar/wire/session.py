"""The commands of a connection itself: CONNECT and what answers it, the check of a login, PING, and the
answers that several requests have.

https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/#connection-establishment
"""

from typing import Annotated, Final

from msgspec import Struct

from loghub_service.pulsar.wire.codec import Bool, Bytes, Int32, String, UInt64
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.pulsar.wire.values import Schema

# The request id of an ERROR that answers no request, such as the refusal of a login.
NO_REQUEST: Final = (1 << 64) - 1
# Java's clients 4.1 ask for 21 and accept 20, which the others ask for.
PROTOCOL_VERSION: Final = 20


class FeatureFlags(Struct, frozen=True, kw_only=True):
    """What a peer can do. Java's clients look for new partitions only if the fifth is set."""

    supports_auth_refresh: Annotated[Bool, 1] = False
    supports_broker_entry_metadata: Annotated[Bool, 2] = False
    supports_partial_producer: Annotated[Bool, 3] = False
    supports_topic_watchers: Annotated[Bool, 4] = False
    supports_get_partitioned_metadata_without_auto_creation: Annotated[Bool, 5] = False


class CommandConnect(Struct, frozen=True, kw_only=True):
    """The first command of a client."""

    client_version: Annotated[String, 1]
    auth_data: Annotated[Bytes | None, 3] = None
    protocol_version: Annotated[Int32, 4] = 0
    auth_method_name: Annotated[String | None, 5] = None
    proxy_to_broker_url: Annotated[String | None, 6] = None
    feature_flags: Annotated[FeatureFlags | None, 10] = None

    def __repr__(self) -> str:
        """Without the secret of the login."""
        return f"CommandConnect({self.client_version!r}, {self.protocol_version}, {self.auth_method_name!r})"


class CommandConnected(Struct, frozen=True, kw_only=True):
    """``max_message_size`` is in bytes: clients cut larger messages into chunks of it, or refuse them."""

    server_version: Annotated[String, 1]
    protocol_version: Annotated[Int32, 2] = PROTOCOL_VERSION
    max_message_size: Annotated[Int32, 3]
    feature_flags: Annotated[FeatureFlags, 4]


class AuthData(Struct, frozen=True, kw_only=True):
    """The data of a method of authentication."""

    auth_method_name: Annotated[String | None, 1] = None
    auth_data: Annotated[Bytes | None, 2] = None

    def __repr__(self) -> str:
        """Without the secret of the login."""
        return f"AuthData({self.auth_method_name!r})"


class CommandAuthChallenge(Struct, frozen=True, kw_only=True):
    """Asks a client to log in again."""

    server_version: Annotated[String, 1]
    challenge: Annotated[AuthData, 2]
    protocol_version: Annotated[Int32, 3] = PROTOCOL_VERSION


class CommandAuthResponse(Struct, frozen=True, kw_only=True):
    """Answers a CommandAuthChallenge."""

    client_version: Annotated[String | None, 1] = None
    response: Annotated[AuthData | None, 2] = None
    protocol_version: Annotated[Int32, 3] = 0


class CommandSuccess(Struct, frozen=True, kw_only=True):
    """Answers SUBSCRIBE, UNSUBSCRIBE, SEEK, CLOSE_CONSUMER and CLOSE_PRODUCER."""

    request_id: Annotated[UInt64, 1]
    schema: Annotated[Schema | None, 2] = None


class CommandError(Struct, frozen=True, kw_only=True):
    """Why a request is refused."""

    request_id: Annotated[UInt64, 1]
    error: Annotated[ServerError, 2]
    message: Annotated[String, 3]


class CommandPing(Struct, frozen=True, kw_only=True):
    """Each peer asks whether the other still answers."""


class CommandPong(Struct, frozen=True, kw_only=True):
    """The answer to a CommandPing."""


class CommandTcClientConnectRequest(Struct, frozen=True, kw_only=True):
    """The first command of a client that wants transactions, which are not offered."""

    request_id: Annotated[UInt64, 1]
    tc_id: Annotated[UInt64, 2]


class CommandTcClientConnectResponse(Struct, frozen=True, kw_only=True):
    """Answers a CommandTcClientConnectRequest."""

    request_id: Annotated[UInt64, 1]
    error: Annotated[ServerError | None, 2] = None
    message: Annotated[String | None, 3] = None
