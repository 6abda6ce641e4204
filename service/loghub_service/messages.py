"""The values between ASGI and the API actions: the head of a request, the whole request, a response, and the
budgets of memory that requests take from.

`loghub_service.http.app` receives a request and sends the response; an action accepts a `Request` and returns
a `ServiceResponse`. Actions therefore run without an HTTP server, for example in tests.

A request takes bytes from a budget before it stores them and gives all of them back when it ends, so that
clients cannot exhaust the service's memory together. Each kind of request has a budget of its own
(`loghub_service.http.app`), and a flood of one kind does not stop the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec

from loghub.wire.errors import Code, LogHubError
from loghub_service.access_keys import AccessKey
from loghub_service.errors import failure


class MemoryBudget:
    """At most ``limit`` bytes in use, not counting the first ``free_bytes`` of each request.

    The free bytes are never refused: the bound on connections limits how many requests there are.
    """

    def __init__(self, name: str, *, limit: int, free_bytes: int = 0) -> None:
        self.name = name
        self.limit = limit
        self.used = 0
        self._free_bytes = free_bytes

    def reservation(self) -> "Reservation":
        """The bytes of one request; a context manager that gives them back."""
        return Reservation(self, self._free_bytes)


class Reservation:
    """The bytes that one request has taken from a budget."""

    def __init__(self, budget: MemoryBudget, free_bytes: int) -> None:
        self._budget = budget
        self._free_bytes = free_bytes
        self._taken = 0

    def take(self, size: int) -> None:
        """Take bytes before they are stored. Raises LogHubError ServerBusy if the budget is used up."""
        free = min(size, self._free_bytes)
        counted = size - free
        if self._budget.used + counted > self._budget.limit:
            raise failure(Code.SERVER_BUSY, f"the memory budget {self._budget.name!r} is used up")
        self._free_bytes -= free
        self._taken += counted
        self._budget.used += counted

    def release(self) -> None:
        """Give everything back before the request ends, because it is counted elsewhere from now on."""
        self._budget.used -= self._taken
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


Header = tuple[str, str]
RawHeader = tuple[bytes, bytes]


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
    whether the client has closed the connection, so that no client reads the response; ``gone`` returns once
    it has. While a request only waits for a change, it is ``parked``: its connection may then be closed for
    another.
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
    """Status, body, and the headers besides the headers of every response. ``is_repeatable``: the client gets
    it again by the same request, whatever its method."""

    status: int = 200
    headers: tuple[Header, ...] = ()
    body: bytes = b""
    content_type: str = "application/json"
    is_repeatable: bool = False


EMPTY = ServiceResponse()


def json_response(value: object) -> ServiceResponse:
    return ServiceResponse(body=msgspec.json.encode(value))


def error_response(error: LogHubError) -> ServiceResponse:
    """The body is JSON with exactly these two fields (docs/sls-protocol.md 1.7)."""
    body = msgspec.json.encode({"errorCode": error.code, "errorMessage": error.message})
    return ServiceResponse(status=error.status, body=body)


def response_headers(response: ServiceResponse, *more: RawHeader) -> list[RawHeader]:
    """The headers of a response, with further ones. Names are lower case, and Content-Length is always
    present, even if it is 0 (docs/sls-protocol.md 1.7)."""
    headers = [
        *more,
        (b"content-length", str(len(response.body)).encode()),
        *((name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers),
    ]
    if response.body or response.headers:
        headers.append((b"content-type", response.content_type.encode()))
    return headers
