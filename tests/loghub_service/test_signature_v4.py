"""Requests signed with version 4 (docs/sls-protocol.md 1.4); this test computes the signature by itself."""

import hashlib
import hmac
import time
from datetime import UTC, datetime

import pytest

from tests.loghub_service.rawclient import RawClient, Reply

BODY = b"{}"
REGION = "anywhere"


def send(
    client: RawClient,
    *,
    off_s: float = 0.0,
    date: str = "",
    signed_body: bytes = BODY,
    secret: str = "testKeySecret",
    changes: dict[str, str] | None = None,
) -> Reply:
    """CreateProject; ``changes`` are of headers, once they are signed."""
    now = datetime.fromtimestamp(time.time() + off_s, UTC).strftime("%Y%m%dT%H%M%SZ")
    date = date or now[:8]
    content = hashlib.sha256(signed_body).hexdigest()
    names = "content-type;host;x-log-apiversion;x-log-bodyrawsize;x-log-content-sha256;x-log-date"
    canonical = (
        f"POST\n/\n\ncontent-type:application/json\nhost:{client.host_header}\nx-log-apiversion:0.6.0\n"
        f"x-log-bodyrawsize:2\nx-log-content-sha256:{content}\nx-log-date:{now}\n\n{names}\n{content}"
    )
    scope = f"{date}/{REGION}/sls/aliyun_v4_request"
    text = f"SLS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = b"aliyun_v4" + secret.encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers = {
        "Date": "",
        "Content-MD5": "",
        "x-log-signaturemethod": "",
        "x-log-date": now,
        "x-log-content-sha256": content,
        "Authorization": f"SLS4-HMAC-SHA256 Credential=testKeyId/{scope},Signature={signature}",
    }
    return client.send("POST", "/", body=BODY, headers=headers | (changes or {}))


@pytest.mark.long
def test_the_signature_by_hand(client: RawClient) -> None:
    assert send(client).status == 200
    assert client.send("GET", "/").status == 200


@pytest.mark.parametrize(("off_s", "status"), [(-890, 200), (890, 200), (-910, 400), (910, 400)])
def test_requests_more_than_15_minutes_off_are_refused(client: RawClient, off_s: int, status: int) -> None:
    reply = send(client, off_s=off_s)
    assert reply.status == status
    assert status == 200 or reply.code == "RequestTimeExpired"


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        ({"secret": "wrong"}, 401, "SignatureNotMatch"),
        ({"signed_body": b"[]"}, 401, "SignatureNotMatch"),
        ({"date": "20240101"}, 401, "SignatureNotMatch"),
        ({"changes": {"x-log-apiversion": "0.6.1"}}, 401, "SignatureNotMatch"),
        ({"changes": {"Content-Type": "text/plain"}}, 401, "SignatureNotMatch"),
        ({"changes": {"Host": "other.127.0.0.1"}}, 401, "SignatureNotMatch"),
        ({"changes": {"x-log-content-sha256": ""}}, 401, "SignatureNotMatch"),
        ({"changes": {"x-log-date": "today"}}, 400, "InvalidDateFormat"),
        ({"changes": {"x-log-date": ""}}, 400, "InvalidDateFormat"),
        ({"changes": {"x-acs-security-token": "added"}}, 401, "SignatureNotMatch"),
    ],
)
def test_what_was_not_signed_so_is_refused(
    client: RawClient, request_: dict[str, object], status: int, code: str
) -> None:
    reply = send(client, **request_)  # type: ignore[arg-type]
    assert (reply.status, reply.code) == (status, code)
    assert client.send("GET", "/").code == "ProjectNotExist"  # nothing was done
