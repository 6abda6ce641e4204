"""Authentication and authorization of a request by its head (docs/sls-protocol.md 1.3, 1.5).

Signature version 1 signs the headers, and among them a hash of the body. A request is therefore checked
before its body is read, and the service reads and stores nothing for a client without a key. The signature
itself is computed in `loghub.wire.signing`; `loghub.service.http.body` compares the hash.
"""

import hmac
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime

from loghub.service.access import AccessKey, Right
from loghub.service.api_errors import failure
from loghub.service.messages import Head
from loghub.wire import signing
from loghub.wire.errors import Code

FindKey = Callable[[str], AccessKey | None]

SKEW_S = 15 * 60
_TOKEN_HEADER = "x-acs-security-token"  # noqa: S105 - a header's name, not a secret


def authenticate(head: Head, find_key: FindKey, *, now_s: float) -> AccessKey:
    """The key that signed exactly this head within the skew. Raises LogHubError or MalformedInput."""
    value = head.headers.get("authorization", "")
    if not value:
        raise failure(Code.UNAUTHORIZED, "the request is not signed")
    if signing.version(value) == 4:
        raise failure(Code.UNAUTHORIZED, "this service accepts only signature version 1, not 4")
    claim = signing.parse(value)
    key = find_key(claim.access_key_id)
    if key is None:
        raise failure(Code.UNAUTHORIZED, f"access key {claim.access_key_id[:128]!r} is unknown")
    _check_time(head.headers.get("date", ""), now_s)
    text = signing.string_to_sign(
        method=head.method, path=head.path, query=head.query.items(), headers=head.headers
    )
    if not signing.verify(claim, text, secret=key.secret):
        raise failure(Code.SIGNATURE_NOT_MATCH, "the signature does not match the request")
    _check_token(head.headers.get(_TOKEN_HEADER, ""), key)
    return key


def authorize(key: AccessKey, right: Right, project: str | None) -> None:
    """Raises LogHubError Unauthorized unless the key has this right, and has it in this project."""
    if right not in key.rights:
        raise failure(Code.UNAUTHORIZED, f"access key {key.key_id!r} does not have the right {right.value!r}")
    if project is not None and not key.sees(project):
        raise failure(Code.UNAUTHORIZED, f"access key {key.key_id!r} has no rights in project {project}")


def _check_token(token: str, key: AccessKey) -> None:
    if hmac.compare_digest(token.encode(), key.security_token.encode()):
        return
    if not key.security_token:
        raise failure(
            Code.UNAUTHORIZED,
            f"access key {key.key_id!r} has no security token, and this service issues none: send none",
        )
    raise failure(
        Code.UNAUTHORIZED, f"the security token is {'wrong' if token else 'missing'} for key {key.key_id!r}"
    )


def _check_time(text: str, now_s: float) -> None:
    if not text:
        raise failure(Code.MISSING_DATE, "Date is missing")
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError) as error:
        raise failure(Code.INVALID_DATE_FORMAT, f"Date {text[:64]!r} is not RFC 1123") from error
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    if abs(date.timestamp() - now_s) > SKEW_S:
        raise failure(
            Code.REQUEST_TIME_EXPIRED, "Date differs by more than 15 minutes from the service's clock"
        )
