"""Signature version 4 (docs/sls-protocol.md 1.4), against the vendor SDK's own signer."""

from typing import Any

import pytest
from aliyun.log import auth
from aliyun.log.credentials import StaticCredentialsProvider
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire import signing, signing_v4
from loghub.wire.errors import MalformedSignature
from tests.loghub.wire.test_signing import SECRET, log_headers, query

REGION = "cn-hangzhou"


@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    query=query,
    headers=log_headers,
    body=st.binary(max_size=50),
    content_type=st.sampled_from(["", "application/json", "application/x-protobuf"]),
    token=st.sampled_from(["", "an-sts-token"]),
)
def test_the_vendor_sdk_computes_the_same_signature(
    method: str, query: dict[str, str], headers: dict[str, str], body: bytes, content_type: str, token: str
) -> None:
    sent: dict[str, str] = {**headers, "Host": "demo.sls.invalid"}
    sent |= {"Content-Type": content_type} if content_type else {}
    path = "/logstores/access/shards/lb"
    vendor: Any = auth
    signer = vendor.AuthV4(StaticCredentialsProvider("keyId", SECRET, token), REGION)
    signer.sign_request(method, path, dict(query), sent, body)
    authorization = sent.pop("Authorization")
    assert signing.version(authorization) == 4
    assert sent["x-log-content-sha256"] == signing_v4.content_sha256(body)
    signed = signing_v4.string_to_sign(
        method=method, path=path, query=query.items(), headers=sent, region=REGION
    )
    date = sent["x-log-date"][:8]
    assert authorization == signing_v4.authorization(
        signed, access_key_id="keyId", secret=SECRET, date=date, region=REGION
    )
    claim = signing_v4.parse(authorization)
    assert (claim.access_key_id, claim.date, claim.region) == ("keyId", date, REGION)
    assert signing_v4.verify(claim, signed, secret=SECRET)
    assert not signing_v4.verify(claim, signed, secret="another")


@pytest.mark.parametrize(
    "value",
    [
        "SLS4-HMAC-SHA256",
        "SLS4-HMAC-SHA256 Credential=id/20261123/r/sls/aliyun_v4_request",
        "SLS4-HMAC-SHA256 Credential=id/20261123/r/oss/aliyun_v4_request,Signature=00",
        "SLS4-HMAC-SHA256 Credential=/20261123/r/sls/aliyun_v4_request,Signature=00",
        "SLS4-HMAC-SHA256 Credential=id/20261123/sls/aliyun_v4_request,Signature=00",
        "SLS4-HMAC-SHA256 Key=id/20261123/r/sls/aliyun_v4_request,Signature=00",
        "LOG id:signature",
    ],
)
def test_what_is_not_of_the_form_is_refused(value: str) -> None:
    with pytest.raises(MalformedSignature, match="is not of the form"):
        signing_v4.parse(value)


def test_times_are_read_back_as_they_were_written() -> None:
    assert signing_v4.time_text(0) == "19700101T000000Z"
    assert signing_v4.unix_time(signing_v4.time_text(1_763_888_400)) == 1_763_888_400
    with pytest.raises(ValueError, match="does not match format"):
        signing_v4.unix_time("Mon, 23 Nov 2026 09:00:00 GMT")
