"""A request as read and an answer to be sent: the two values between ASGI and the API actions.

What for: actions take a `Request` and return an `Answer`; neither knows ASGI. What it must
not know: projects, logs, signatures. Read next: `loghub.service.http.app` (reads and sends), `api` (acts).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from loghub.wire.errors import LogHubError

Header = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, wholly received. Header names are lower case; ``path`` is as it was sent."""

    id: str
    method: str
    path: str
    parts: tuple[str, ...]  # of the path, decoded
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    project: str | None  # from Host; None where Host is a base name


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status, headers beyond the usual ones, body."""

    status: int = 200
    headers: tuple[Header, ...] = ()
    body: bytes = b""
    content_type: str = "application/json"


EMPTY = Answer()


def json_answer(value: object) -> Answer:
    return Answer(body=msgspec.json.encode(value))


def error_answer(error: LogHubError) -> Answer:
    """docs/sls-protocol.md 1.7: JSON with exactly these two names."""
    body = msgspec.json.encode({"errorCode": error.code, "errorMessage": error.message})
    return Answer(status=error.status, body=body)
