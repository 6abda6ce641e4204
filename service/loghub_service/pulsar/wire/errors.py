"""The error codes of the Pulsar protocol, and what can be wrong with its bytes, as exceptions.

The codes are in https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/ (``ServerError``). A
broker closes the connection after a MalformedCommand: the peers no longer agree about where a field begins. A
RefusedMessage concerns one SEND, and its code is the answer to it.
"""

from enum import IntEnum


class ServerError(IntEnum):
    """Why a request is refused, as it is on the wire.

    A producer of Python or Go that is refused by SEND_ERROR connects again and sends the same message again
    at once, for every code but CHECKSUM_ERROR (Python), NOT_ALLOWED_ERROR and TOPIC_TERMINATED_ERROR (Go).
    """

    UNKNOWN_ERROR = 0
    METADATA_ERROR = 1
    PERSISTENCE_ERROR = 2
    AUTHENTICATION_ERROR = 3
    AUTHORIZATION_ERROR = 4
    CONSUMER_BUSY = 5
    SERVICE_NOT_READY = 6
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR = 7
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION = 8
    CHECKSUM_ERROR = 9
    UNSUPPORTED_VERSION_ERROR = 10
    TOPIC_NOT_FOUND = 11
    SUBSCRIPTION_NOT_FOUND = 12
    CONSUMER_NOT_FOUND = 13
    TOO_MANY_REQUESTS = 14
    TOPIC_TERMINATED_ERROR = 15
    PRODUCER_BUSY = 16
    INVALID_TOPIC_NAME = 17
    INCOMPATIBLE_SCHEMA = 18
    CONSUMER_ASSIGN_ERROR = 19
    TRANSACTION_COORDINATOR_NOT_FOUND = 20
    INVALID_TXN_STATUS = 21
    NOT_ALLOWED_ERROR = 22
    TRANSACTION_CONFLICT = 23
    TRANSACTION_NOT_FOUND = 24
    PRODUCER_FENCED = 25


class MalformedCommand(ValueError):  # noqa: N818 - says what, like its branches
    """Bytes that are no command of the protocol."""


class UnsupportedCommand(MalformedCommand):
    """A command with a number that the endpoint does not know."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the command {number} is not offered")
        self.number = number


class UnencodableCommand(ValueError):  # noqa: N818 - says what, like the others
    """A value that the message cannot carry."""


class RefusedMessage(ValueError):  # noqa: N818 - says what, like the others
    """A SEND that is not stored. ``code`` is its SEND_ERROR, and the message is for people."""

    def __init__(self, code: ServerError, message: str) -> None:
        super().__init__(message)
        self.code = code
