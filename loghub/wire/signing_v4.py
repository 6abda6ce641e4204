"""Signature version 4: the text to sign, its signature, and the verification (docs/sls-protocol.md 1.4).

As in version 1 (`loghub.wire.signing`), client and service use the same pure functions. The hash of the body
is one of the signed headers. Which headers are signed is not sent: it follows from their names.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from loghub.wire.errors import MalformedSignature

SCHEME = "SLS4-HMAC-SHA256"
HASH_HEADER, TIME_HEADER = "x-log-content-sha256", "x-log-date"
_SCOPE_END = ("sls", "aliyun_v4_request")
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_DATE_DIGITS = 8  # the date in 20260131T080000Z


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureV4Claim:
    """The content of an Authorization header. ``date`` is the date of the signing key, such as
    ``20261123``."""

    access_key_id: str
    date: str
    region: str
    signature: str


def content_sha256(body: bytes) -> str:
    """Lower-case hex, also without a body."""
    return hashlib.sha256(body).hexdigest()


def time_text(unix_s: float) -> str:
    """The value of `TIME_HEADER`."""
    return datetime.fromtimestamp(unix_s, UTC).strftime(_TIME_FORMAT)


def date_of(time: str) -> str:
    """The date of the signing key for a value of `TIME_HEADER`."""
    return time[:_DATE_DIGITS]


def unix_time(text: str) -> float:
    """The time of `TIME_HEADER` in unix seconds. Raises ValueError."""
    return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC).timestamp()


def string_to_sign(
    *, method: str, path: str, query: Iterable[tuple[str, str]], headers: Mapping[str, str], region: str
) -> str:
    """The text that the signature covers.

    ``path`` is as written in the request, ``query`` is decoded and in any order, and header names are in any
    case. The headers contain `HASH_HEADER` and `TIME_HEADER`.
    """
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    signed = sorted(name for name in lower if _is_signed(name))
    request = "\n".join(
        (
            method,
            path,
            "&".join(f"{name}={quote(value, safe='~')}" if value else name for name, value in sorted(query)),
            "".join(f"{name}:{lower[name]}\n" for name in signed),
            ";".join(signed),
            lower.get(HASH_HEADER, ""),
        )
    )
    time = lower.get(TIME_HEADER, "")
    scope = "/".join((date_of(time), region, *_SCOPE_END))
    return "\n".join((SCHEME, time, scope, hashlib.sha256(request.encode()).hexdigest()))


def _is_signed(name: str) -> bool:
    if name in ("host", "content-type"):
        return True
    return name.startswith(("x-log-", "x-acs-")) and not name.startswith("x-log-meta-")


def sign(text: str, *, secret: str, date: str, region: str) -> str:
    """Lower-case hex. The key of the signature is derived from the secret, the date and the region."""
    key = f"aliyun_v4{secret}".encode()
    for part in (date, region, *_SCOPE_END):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def authorization(text: str, *, access_key_id: str, secret: str, date: str, region: str) -> str:
    """The value of the Authorization header for a `string_to_sign`."""
    scope = "/".join((date, region, *_SCOPE_END))
    signature = sign(text, secret=secret, date=date, region=region)
    return f"{SCHEME} Credential={access_key_id}/{scope},Signature={signature}"


def parse(authorization_value: str) -> SignatureV4Claim:
    """The claim of a version 4 Authorization header. Raises MalformedSignature."""
    scheme, _, rest = authorization_value.partition(" ")
    credential, comma, signature = rest.partition(",")
    parts = credential.removeprefix("Credential=").split("/")
    has_form = (
        scheme == SCHEME
        and credential.startswith("Credential=")
        and bool(comma)
        and signature.strip().startswith("Signature=")
        and tuple(parts[3:]) == _SCOPE_END
        and all(parts)
    )
    if not has_form:
        raise MalformedSignature(
            f"Authorization is not of the form '{SCHEME} Credential=<access key id>/<date>/<region>/"
            f"{'/'.join(_SCOPE_END)},Signature=<signature>'"
        )
    key_id, date, region, *_ = parts
    return SignatureV4Claim(
        access_key_id=key_id, date=date, region=region, signature=signature.strip().removeprefix("Signature=")
    )


def verify(claim: SignatureV4Claim, text: str, *, secret: str) -> bool:
    """Whether the claim's signature matches the text; a constant-time comparison."""
    expected = sign(text, secret=secret, date=claim.date, region=claim.region)
    return hmac.compare_digest(expected.encode(), claim.signature.encode())
