"""What may go wrong on the wire, as one tree of exceptions.

What for: the service answers with them, the clients raise them. What it must not know: who
retries what. Read next: `error_codes` (the registry: meaning and status of each code), then
`loghub.client.port`.

The tree::

    LogHubException
    ├── LogHubError              an answer of the service that is not a success
    ├── EndpointUnreachable      no answer; `definite` says whether the request was surely not done
    ├── ExtensionMissing         asked for an extension of the embedded service; this is not one
    └── MalformedInput           bytes or text that break the wire's rules; `code` is the answer to it
        ├── MalformedLogGroup      not a LogGroup or LogGroupList (docs/sls-protocol.md 3)
        ├── MalformedCompression   cannot be decompressed, or not to the announced size (1.6)
        ├── TooLarge               longer than a stated bound
        ├── MalformedCursor        not base64 of a decimal 64-bit integer (2.1)
        ├── MalformedName          project, logstore, group or consumer name (2.4)
        ├── MalformedSignature     an Authorization header that is not v1's (1.3)
        └── UnknownHost            no project can be read from the Host (1.1)
"""

from http import HTTPStatus
from typing import ClassVar

from loghub.wire.error_codes import REGISTRY, Code, ErrorEntry

__all__ = [
    "REGISTRY",
    "Code",
    "EndpointUnreachable",
    "ErrorEntry",
    "ExtensionMissing",
    "LogHubError",
    "LogHubException",
    "MalformedCompression",
    "MalformedCursor",
    "MalformedInput",
    "MalformedLogGroup",
    "MalformedName",
    "MalformedSignature",
    "TooLarge",
    "UnknownHost",
]


class LogHubException(Exception):  # noqa: N818 - LogHubError is one of its branches
    """The root of everything that this package raises on purpose."""


class LogHubError(LogHubException):
    """An answer of the service that is not 200 (docs/sls-protocol.md 1.7).

    ``code`` is as the service spelt it, and may be one that the registry does not have.
    """

    def __init__(self, code: str, status: int, message: str, request_id: str = "") -> None:
        told = f", request {request_id}" if request_id else ""
        super().__init__(f"{code} (HTTP {status}{told}): {message}")
        self.code = str(code)
        self.status = status
        self.message = message
        self.request_id = request_id

    @classmethod
    def of(cls, code: Code, message: str = "", request_id: str = "") -> "LogHubError":
        """The error with its registered status; the meaning stands in for an empty message."""
        entry = REGISTRY[code]
        return cls(code, entry.status, message or entry.meaning, request_id)

    @property
    def definite(self) -> bool:
        """The request was surely not done. A code that is not registered is judged by its status."""
        entry = REGISTRY.get(self.code)
        if entry is not None and entry.status == self.status:
            return entry.definite
        return HTTPStatus.BAD_REQUEST <= self.status < HTTPStatus.INTERNAL_SERVER_ERROR


class EndpointUnreachable(LogHubException):
    """No answer came. ``definite``: the request never reached the service, so it was not done."""

    def __init__(self, endpoint: str, reason: str, *, definite: bool) -> None:
        doubt = "" if definite else "; whether the request was done is not known"
        super().__init__(f"{endpoint} did not answer: {reason}{doubt}")
        self.endpoint = endpoint
        self.reason = reason
        self.definite = definite


class ExtensionMissing(LogHubException):
    """An extension of the embedded service was asked for; the endpoint, or the adapter, has none."""


class MalformedInput(LogHubException, ValueError):  # noqa: N818 - says what, like its leaves
    """Bytes or text that break the wire's rules. A service answers them with ``code``."""

    code: ClassVar[Code] = Code.PARAMETER_INVALID


class MalformedLogGroup(MalformedInput):
    """Not a LogGroup or LogGroupList: truncated, wrong wire types, nonsensical lengths."""

    code = Code.POST_BODY_INVALID


class MalformedCompression(MalformedInput):
    """Compressed bytes that do not decompress, or not to the size that was announced."""

    code = Code.POST_BODY_UNCOMPRESS_ERROR


class TooLarge(MalformedInput):
    """Longer than a stated bound; nothing of it was kept."""

    code = Code.POST_BODY_TOO_LARGE


class MalformedCursor(MalformedInput):
    """Not base64 of a decimal 64-bit integer."""

    code = Code.INVALID_CURSOR


class MalformedName(MalformedInput):
    """A name that breaks the rule for its kind; the message says the rule."""


class MalformedSignature(MalformedInput):
    """An Authorization header that is not of signature version 1."""

    code = Code.UNAUTHORIZED


class UnknownHost(MalformedInput):
    """A Host from which no project can be read."""

    code = Code.MISSING_HOST
