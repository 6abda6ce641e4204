"""The two values between ASGI and the API actions: a request that was received, and a response to send.

An action accepts a `Request` and returns a `ServiceResponse`; `loghub.service.http.app` receives the first
and sends the second. Actions therefore run without an HTTP server, for example in tests."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from loghub.wire.errors import LogHubError

Header = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, completely received. Header names are lower case; ``path`` is not decoded."""

    id: str
    method: str
    path: str
    parts: tuple[str, ...]  # the segments of the path, decoded
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    project: str | None  # from Host; None if Host is a base name


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResponse:
    """Status, body, and the headers beyond those that every response has."""

    status: int = 200
    headers: tuple[Header, ...] = ()
    body: bytes = b""
    content_type: str = "application/json"


EMPTY = ServiceResponse()


def json_response(value: object) -> ServiceResponse:
    return ServiceResponse(body=msgspec.json.encode(value))


def error_response(error: LogHubError) -> ServiceResponse:
    """The body is JSON with exactly these two fields (docs/sls-protocol.md 1.7)."""
    body = msgspec.json.encode({"errorCode": error.code, "errorMessage": error.message})
    return ServiceResponse(status=error.status, body=body)
