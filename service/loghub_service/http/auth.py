"""Authentication and authorization of a request by its head (docs/sls-protocol.md 1.3, 1.5).

Both versions of the signature sign the headers, and among them a hash of the body. A request is therefore
checked before its body is read, and the service reads and stores nothing for a client without a key. The
signatures are computed in `loghub.wire.signing` and `loghub.wire.signing_v4`; `loghub_service.http.body`
compares the hash.
"""

import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

from loghub.wire import signing, signing_v4
from loghub.wire.errors import Code, LogHubError
from loghub_service.access_keys import AccessKey, Right
from loghub_service.errors import failure
from loghub_service.messages import Head

FindKey = Callable[[str], AccessKey | None]

# As SLS (docs/sls-protocol.md 5): a captured request can be replayed for no longer than this.
SKEW_S = 15 * 60
_MAX_TOKEN_CHARS = 4096
_DATES_KEPT = 256  # bounded; requests of one second have the same date
_TOKEN_HEADER = "x-acs-security-token"  # noqa: S105 - a header's name, not a secret


def authenticate(head: Head, find_key: FindKey, *, now_s: float) -> AccessKey:
    """The key that signed exactly this head within the skew. Raises LogHubError or MalformedInput."""
    value = head.headers.get("authorization", "")
    if not value:
        raise failure(Code.UNAUTHORIZED, "the request is not signed")
    is_v4 = signing.version(value) == 4
    key = _key_of_v4(head, value, find_key, now_s) if is_v4 else _key_of_v1(head, value, find_key, now_s)
    _check_token(head.headers.get(_TOKEN_HEADER, ""), key, now_s)
    return key


def _key_of_v1(head: Head, value: str, find_key: FindKey, now_s: float) -> AccessKey:
    claim = signing.parse(value)
    key = _known(claim.access_key_id, find_key)
    check_date(head.headers.get("date", ""), now_s)
    text = signing.string_to_sign(
        method=head.method, path=head.path, query=head.query.items(), headers=head.headers
    )
    if not signing.verify(claim, text, secret=key.secret):
        raise _not_signed_by(key)
    return key


def _key_of_v4(head: Head, value: str, find_key: FindKey, now_s: float) -> AccessKey:
    """Any region is accepted: this service has none."""
    claim = signing_v4.parse(value)
    key = _known(claim.access_key_id, find_key)
    time = head.headers.get(signing_v4.TIME_HEADER, "")
    try:
        _check_skew(signing_v4.unix_time(time), now_s)
    except ValueError as error:
        message = f"{signing_v4.TIME_HEADER} {time[:64]!r} is not of the form 20261123T090000Z"
        raise failure(Code.INVALID_DATE_FORMAT, message) from error
    text = signing_v4.string_to_sign(
        method=head.method,
        path=head.path,
        query=head.query.items(),
        headers=head.headers,
        region=claim.region,
    )
    if not time.startswith(claim.date) or not signing_v4.verify(claim, text, secret=key.secret):
        raise _not_signed_by(key)
    return key


def _known(key_id: str, find_key: FindKey) -> AccessKey:
    key = find_key(key_id)
    if key is None:
        raise failure(Code.UNAUTHORIZED, f"access key {key_id[:128]!r} is unknown")
    return key


def _not_signed_by(key: AccessKey) -> LogHubError:
    return failure(
        Code.SIGNATURE_NOT_MATCH, f"the signature does not match the request and key {key.key_id!r}"
    )


def authorize(key: AccessKey, right: Right, project: str | None) -> None:
    """Raises LogHubError Unauthorized unless the key has this right, and has it in this project."""
    if right not in key.rights:
        raise failure(Code.UNAUTHORIZED, f"access key {key.key_id!r} does not have the right {right.value!r}")
    if project is not None and not key.sees(project):
        raise failure(Code.UNAUTHORIZED, f"access key {key.key_id!r} has no rights in project {project}")


def _check_token(token: str, key: AccessKey, now_s: float) -> None:
    """Check the STS token. For an invalid and for an expired token SLS answers Unauthorized, too."""
    if not (token.isascii() and token.isprintable() and len(token) <= _MAX_TOKEN_CHARS):
        message = (
            f"the security token is malformed: it has up to {_MAX_TOKEN_CHARS} printable ASCII characters"
        )
        raise failure(Code.UNAUTHORIZED, message)
    if hmac.compare_digest(token.encode(), key.security_token.encode()):
        if key.expires_unix_s is not None and now_s >= key.expires_unix_s:
            expired = datetime.fromtimestamp(key.expires_unix_s, UTC).isoformat()
            what = "the security token has" if token else "the access key has"
            message = f"{what} expired: key {key.key_id!r} was valid until {expired}"
            raise failure(Code.UNAUTHORIZED, message)
        return
    if not key.security_token:
        raise failure(
            Code.UNAUTHORIZED,
            f"access key {key.key_id!r} has no security token, and this service issues none: send none",
        )
    raise failure(
        Code.UNAUTHORIZED, f"the security token is {'wrong' if token else 'missing'} for key {key.key_id!r}"
    )


def check_date(text: str, now_s: float) -> None:
    """Raises LogHubError unless a Date header is within the skew."""
    _check_skew(_date(text), now_s)


@lru_cache(_DATES_KEPT)
def _date(text: str) -> float:
    """The time of a Date header in unix seconds."""
    if not text:
        raise failure(Code.MISSING_DATE, "Date is missing")
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError) as error:
        raise failure(Code.INVALID_DATE_FORMAT, f"Date {text[:64]!r} is not RFC 1123") from error
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return date.timestamp()


def _check_skew(time_s: float, now_s: float) -> None:
    if abs(time_s - now_s) > SKEW_S:
        raise failure(
            Code.REQUEST_TIME_EXPIRED,
            "the request's time differs by more than 15 minutes from the service's clock",
        )
