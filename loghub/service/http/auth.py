"""Authentication of requests: signature version 1 and the clock skew (docs/sls-protocol.md 1.3, 1.5).

The service looks up and stores nothing for a request that has not passed this check. The signature itself
is computed in `loghub.wire.signing`.
"""

from datetime import UTC
from email.utils import parsedate_to_datetime

from loghub.service.api_errors import failure
from loghub.service.credentials import AccessKey
from loghub.service.messages import Request
from loghub.wire import signing
from loghub.wire.errors import Code

SKEW_S = 15 * 60


def authenticate(request: Request, key: AccessKey, *, now_s: float) -> None:
    """Raises LogHubError or MalformedInput unless the key signed exactly this request within the skew."""
    value = request.headers.get("authorization", "")
    if not value:
        raise failure(Code.UNAUTHORIZED, "the request is not signed")
    if signing.version(value) == 4:
        raise failure(Code.UNAUTHORIZED, "this service accepts only signature version 1, not 4")
    claim = signing.parse(value)
    if claim.access_key_id != key.key_id:
        raise failure(Code.UNAUTHORIZED, f"access key {claim.access_key_id[:128]!r} is unknown")
    _check_time(request.headers.get("date", ""), now_s)
    text = signing.string_to_sign(
        method=request.method, path=request.path, query=request.query.items(), headers=request.headers
    )
    if not signing.verify(claim, text, secret=key.secret):
        raise failure(Code.SIGNATURE_NOT_MATCH, "the signature does not match the request")
    if request.headers.get("content-md5", "").upper() != signing.content_md5(request.body):
        raise failure(Code.SIGNATURE_NOT_MATCH, "Content-MD5 does not match the body")


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
