"""Signature version 1: the text to sign, its signature, and the verification (docs/sls-protocol.md 1.3).

The client signs and the service verifies with the same text, so this module has pure functions from
headers and query to text. Version 4 is `loghub.wire.signing_v4`; `version` distinguishes the two by the
Authorization header.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from loghub.wire.errors import MalformedSignature

METHOD = "hmac-sha1"
_SCHEME = "LOG "
_SCHEME_V4 = "SLS4-HMAC-SHA256 "
_SIGNED_PREFIXES = ("x-log-", "x-acs-")
# Python adds x-log-date after signing, and does not sign x-log-meta-*.
_UNSIGNED = "x-log-date"
_UNSIGNED_PREFIX = "x-log-meta-"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureClaim:
    """The content of an Authorization header: the access key id and the signature."""

    access_key_id: str
    signature: str


def content_md5(body: bytes) -> str:
    """Upper-case hex, as version 1 requires; "" without a body."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper() if body else ""


def string_to_sign(
    *, method: str, path: str, query: Iterable[tuple[str, str]], headers: Mapping[str, str]
) -> str:
    """The text that the signature covers.

    ``path`` is as written in the request, ``query`` is decoded and in any order, and header names are
    in any case.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    return "\n".join(
        (
            method,
            lower.get("content-md5", ""),
            lower.get("content-type", ""),
            lower.get("date", ""),
            *[f"{name}:{lower[name]}" for name in sorted(lower) if _is_signed(name)],
            _resource(path, query),
        )
    )


def _is_signed(name: str) -> bool:
    return name.startswith(_SIGNED_PREFIXES) and name != _UNSIGNED and not name.startswith(_UNSIGNED_PREFIX)


def _resource(path: str, query: Iterable[tuple[str, str]]) -> str:
    pairs = "&".join(f"{name}={value}" for name, value in sorted(query))
    return f"{path}?{pairs}" if pairs else path


def sign(text: str, *, secret: str) -> str:
    """HMAC-SHA1 of the text, base64."""
    digest = hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()
    return base64.b64encode(digest).decode("ascii")


def authorization(text: str, *, access_key_id: str, secret: str) -> str:
    """The value of the Authorization header for a `string_to_sign`."""
    return f"{_SCHEME}{access_key_id}:{sign(text, secret=secret)}"


def version(authorization_value: str) -> Literal[1, 4] | None:
    """The signature version of an Authorization header; None for any other scheme."""
    if authorization_value.startswith(_SCHEME):
        return 1
    return 4 if authorization_value.startswith(_SCHEME_V4) else None


def parse(authorization_value: str) -> SignatureClaim:
    """The claim of a version 1 Authorization header. Raises MalformedSignature."""
    rest = authorization_value.removeprefix(_SCHEME)
    key_id, colon, signature = rest.partition(":")
    if rest == authorization_value or not colon or not key_id or not signature:
        raise MalformedSignature("Authorization is not of the form 'LOG <access key id>:<signature>'")
    return SignatureClaim(access_key_id=key_id, signature=signature)


def verify(claim: SignatureClaim, text: str, *, secret: str) -> bool:
    """Whether the claim's signature matches the text; a constant-time comparison."""
    return hmac.compare_digest(sign(text, secret=secret).encode(), claim.signature.encode())
