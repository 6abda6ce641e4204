"""What a request that is not carried out leads to: an error as its answer, or the end of the connection."""

from loghub_service.pulsar.wire.errors import ServerError


class RefusedCommand(Exception):  # noqa: N818 - says what happened
    """The request is answered with this error; the message is for people."""

    def __init__(self, code: ServerError, message: str) -> None:
        super().__init__(message)
        self.code = code


class PulsarDisconnect(Exception):  # noqa: N818 - says what follows
    """The client breaks the protocol, or may not go on: the connection ends.

    ``last`` is a frame that is sent before, and the message is for the log.
    """

    def __init__(self, message: str, last: bytes = b"") -> None:
        super().__init__(message)
        self.last = last
