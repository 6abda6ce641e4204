"""What can be wrong with bytes or values of the Kafka protocol, as exceptions.

A broker closes the connection after a MalformedFrame, as Kafka does: the peers no longer agree about where
a field begins. A BadBatch concerns one partition of a Produce request, and its code is the answer for it.
"""

from loghub.kafka.wire.error_codes import ErrorCode


class MalformedFrame(ValueError):  # noqa: N818 - says what, like its branches
    """Bytes that are not a message of the protocol, or not one in a version that is offered."""


class UnsupportedRequest(MalformedFrame):
    """A request with an API key or in a version that is not offered. Kafka closes the connection, too."""

    def __init__(self, api_key: int, api_version: int) -> None:
        super().__init__(f"version {api_version} of the API {api_key} is not offered")
        self.api_key = api_key
        self.api_version = api_version


class UnencodableValue(ValueError):  # noqa: N818 - says what, like the others
    """A value that the message cannot carry in this version, such as null where null is not allowed."""


class BadBatch(ValueError):  # noqa: N818 - says what, like the others
    """A record batch that is not stored. ``code`` is the error of its partition in the answer."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
