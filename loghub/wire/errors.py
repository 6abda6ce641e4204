"""The errors of the wire, as one tree of exceptions.

The service answers with them and the clients raise them. `error_codes` is the registry with the meaning
and the HTTP status of each code; which request is retried is decided in `loghub.client.retry`.

The tree::

    LogHubException
    ├── LogHubError              an answer of the service that is not a success
    ├── EndpointUnreachable      no answer; `definite` means that the request was surely not done
    ├── ExtensionMissing         the endpoint lacks the requested extension of the embedded service
    └── MalformedInput           bytes or text that break the wire's rules; `code` is the answer
        ├── MalformedLogGroup      not a LogGroup or LogGroupList (docs/sls-protocol.md 3)
        ├── MalformedCompression   cannot be decompressed, or not to the announced size (1.6)
        ├── TooLarge               longer than a fixed bound
        ├── MalformedCursor        not base64 of a decimal 64-bit integer (2.1)
        ├── MalformedName          not a project, logstore, group or consumer name (2.5)
        ├── MalformedSignature     an Authorization header that is not of version 1 (1.3)
        └── UnknownHost            the Host names no project (1.1)
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
    """The root of every error that this package raises on purpose."""


class LogHubError(LogHubException):
    """An answer of the service that is not 200 (docs/sls-protocol.md 1.7).

    ``code`` is spelled as the service sent it, and may be missing from the registry.
    """

    def __init__(self, code: str, status: int, message: str, request_id: str = "") -> None:
        request_note = f", request {request_id}" if request_id else ""
        super().__init__(f"{code} (HTTP {status}{request_note}): {message}")
        self.code = str(code)
        self.status = status
        self.message = message
        self.request_id = request_id

    @classmethod
    def of(cls, code: Code, message: str = "", request_id: str = "") -> "LogHubError":
        """The error with its registered status; an empty message is replaced by the meaning of the code."""
        entry = REGISTRY[code]
        return cls(code, entry.status, message or entry.meaning, request_id)

    @property
    def definite(self) -> bool:
        """Whether the request was surely not done. The status decides for a code that is not registered."""
        entry = REGISTRY.get(self.code)
        if entry is not None and entry.status == self.status:
            return entry.definite
        return HTTPStatus.BAD_REQUEST <= self.status < HTTPStatus.INTERNAL_SERVER_ERROR


class EndpointUnreachable(LogHubException):
    """No answer arrived. ``definite``: the request never reached the service, so it was not done."""

    def __init__(self, endpoint: str, reason: str, *, definite: bool) -> None:
        outcome_note = "" if definite else "; it is not known whether the request was done"
        super().__init__(f"{endpoint} did not answer: {reason}{outcome_note}")
        self.endpoint = endpoint
        self.reason = reason
        self.definite = definite


class ExtensionMissing(LogHubException):
    """The endpoint, or the adapter, lacks the requested extension of the embedded service."""


class MalformedInput(LogHubException, ValueError):  # noqa: N818 - says what, like its leaves
    """Bytes or text that break the wire's rules. A service answers with ``code``."""

    code: ClassVar[Code] = Code.PARAMETER_INVALID


class MalformedLogGroup(MalformedInput):
    """Not a LogGroup or LogGroupList: truncated, wrong wire types or impossible lengths."""

    code = Code.POST_BODY_INVALID


class MalformedCompression(MalformedInput):
    """Compressed bytes that cannot be decompressed, or not to the announced size."""

    code = Code.POST_BODY_UNCOMPRESS_ERROR


class TooLarge(MalformedInput):
    """Longer than a fixed bound; nothing of it was stored."""

    code = Code.POST_BODY_TOO_LARGE


class MalformedCursor(MalformedInput):
    """Not base64 of a decimal 64-bit integer."""

    code = Code.INVALID_CURSOR


class MalformedName(MalformedInput):
    """A name that breaks the rule for its kind; the message contains the rule."""


class MalformedSignature(MalformedInput):
    """An Authorization header that is not of signature version 1."""

    code = Code.UNAUTHORIZED


class UnknownHost(MalformedInput):
    """A Host that names no project."""

    code = Code.MISSING_HOST
