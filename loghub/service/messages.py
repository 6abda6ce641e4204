"""The values between ASGI and the API actions: the head of a request, the whole request, and a response.

`loghub.service.http.app` receives a request and sends the response; an action accepts a `Request` and returns
a `ServiceResponse`. Actions therefore run without an HTTP server, for example in tests."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import msgspec

from loghub.service.access import AccessKey
from loghub.service.memory import Reservation
from loghub.wire.errors import LogHubError

Header = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a request. Header names are lower case; ``path`` is not decoded."""

    method: str
    path: str
    parts: tuple[str, ...]  # the segments of the path, decoded
    query: Mapping[str, str]
    headers: Mapping[str, str]
    project: str | None  # from Host; None if Host is a base name


async def _never() -> None:
    await asyncio.Event().wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, authenticated and completely received.

    ``memory`` holds the bytes of the body; an action that stores more takes them from it. ``is_gone`` says
    whether the client has closed the connection, so that nobody reads the response; ``gone`` returns once it
    has. While a request only waits for news, it is ``parked``: its connection may then be closed for another.
    """

    head: Head
    key: AccessKey
    body: bytes
    memory: Reservation
    is_gone: Callable[[], bool] = lambda: False
    gone: Callable[[], Awaitable[None]] = _never
    parked: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def query(self) -> Mapping[str, str]:
        return self.head.query

    @property
    def headers(self) -> Mapping[str, str]:
        return self.head.headers

    @property
    def project(self) -> str | None:
        return self.head.project


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
