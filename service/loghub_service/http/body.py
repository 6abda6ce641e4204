"""Receives the body of an authenticated request, within limits on size, memory and time.

Bytes are counted when they arrive, because a client may declare any length. The head of the request names the
hash of the body and is signed, so a body with another hash is refused at its end, or as soon as it is too
long.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from loghub.wire import signing, signing_v4
from loghub.wire.errors import Code, LogHubError
from loghub_service.api import parse
from loghub_service.errors import ServiceFault, failure
from loghub_service.messages import Reservation

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class ClientGone(ServiceFault):
    """The client closed the connection before it had sent the whole request, so no response is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """How large a body may be, and how long it may take."""

    max_bytes: int
    timeout_s: float


async def read_body(
    receive: Receive,
    headers: Mapping[str, str],
    *,
    limits: BodyLimits,
    memory: Reservation,
    has_arrived: bool = False,
) -> bytes:
    """The whole body, whose bytes are taken from ``memory`` as they arrive. If all of it ``has_arrived``,
    nothing is awaited, because a timer would take a tenth of the time of a request.

    Raises LogHubError for a body that is too large or too slow or not the signed one, or for an invalid
    Content-Length; ClientGone if the client disconnects.
    """
    declared = _declared_length(headers)
    signed = _signed_hash(headers)
    if declared > limits.max_bytes:
        raise _too_large(limits)
    if declared and not signed.value:
        raise _unsigned(signed)
    if has_arrived or (not declared and "transfer-encoding" not in headers):  # nothing to wait for
        return await _collect(receive, signed, limits=limits, memory=memory)
    try:
        async with asyncio.timeout(limits.timeout_s):
            return await _collect(receive, signed, limits=limits, memory=memory)
    except TimeoutError as error:
        raise failure(Code.SERVER_BUSY, "the body did not arrive in time") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedHash:
    """The hash of the body in the signed head; empty in version 1 if there is no body."""

    header: str
    value: str
    is_v4: bool

    def start(self) -> "hashlib._Hash":
        return hashlib.sha256() if self.is_v4 else hashlib.md5(usedforsecurity=False)


def _signed_hash(headers: Mapping[str, str]) -> SignedHash:
    is_v4 = signing.version(headers.get("authorization", "")) == 4
    header = signing_v4.HASH_HEADER if is_v4 else "Content-MD5"
    return SignedHash(header=header, value=headers.get(header.lower(), "").lower(), is_v4=is_v4)


async def _collect(receive: Receive, signed: SignedHash, *, limits: BodyLimits, memory: Reservation) -> bytes:
    parts: list[bytes] = []
    size = 0
    digest = signed.start()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        if part := message.get("body", b""):
            if not signed.value:
                raise _unsigned(signed)
            size += len(part)
            if size > limits.max_bytes:
                raise _too_large(limits)
            memory.take(len(part))
            digest.update(part)
            parts.append(part)
    actual_digest = digest.hexdigest() if parts or signed.is_v4 else ""
    if actual_digest != signed.value:
        raise failure(Code.SIGNATURE_NOT_MATCH, f"{signed.header} does not match the body")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unsigned(signed: SignedHash) -> LogHubError:
    return failure(Code.SIGNATURE_NOT_MATCH, f"{signed.header} is missing, so the body is not signed")


def _too_large(limits: BodyLimits) -> LogHubError:
    return failure(Code.POST_BODY_TOO_LARGE, f"the body of this request may have {limits.max_bytes} bytes")


def _declared_length(headers: Mapping[str, str]) -> int:
    size = parse.decimal(headers.get("content-length", "0"))
    if size is None:
        raise failure(Code.MISSING_CONTENT_LENGTH, "Content-Length is not a number")
    return size
