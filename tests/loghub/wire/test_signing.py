"""Signature version 1 (docs/sls-protocol.md 1.3), against the vendor SDK's own signer."""

from typing import Any

import pytest
from aliyun.log import auth, util
from aliyun.log.credentials import StaticCredentialsProvider
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire import signing
from loghub.wire.errors import MalformedSignature

SECRET = "a secret"
text = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)
header_value = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
query = st.dictionaries(st.sampled_from(["type", "consumer", "cursor", "shard", "key"]), text)
log_headers = st.dictionaries(
    st.sampled_from(["x-log-apiversion", "x-log-bodyrawsize", "x-log-meta-author", "x-acs-extra", "Accept"]),
    header_value,
)


def vendor_headers(
    *, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: bytes, token: str = ""
) -> dict[str, str]:
    """The headers as the vendor SDK sends them, its Authorization and its late x-log-date included."""
    sent: dict[str, str] = dict(headers)
    vendor: Any = auth
    signer = vendor.AuthV1(StaticCredentialsProvider("keyId", SECRET, token))
    signer.sign_request(method, path, dict(query), sent, body)
    return sent


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
    reported = headers | ({"Content-Type": content_type} if content_type else {})
    path = "/logstores/access/shards/lb"
    sent = vendor_headers(method=method, path=path, query=query, headers=reported, body=body, token=token)
    authorization = sent.pop("Authorization")
    assert "x-log-date" in sent  # added after signing, so it must not be in the text
    signed = signing.string_to_sign(method=method, path=path, query=query.items(), headers=sent)
    assert signing.authorization(signed, access_key_id="keyId", secret=SECRET) == authorization
    claim = signing.parse(authorization)
    assert claim.access_key_id == "keyId"
    assert signing.verify(claim, signed, secret=SECRET)
    assert not signing.verify(claim, signed, secret="another")


def test_the_signed_text_line_by_line() -> None:
    signed = signing.string_to_sign(
        method="POST",
        path="/logstores/access",
        query=[("type", "checkpoint"), ("consumer", "c 1"), ("empty", "")],
        headers={
            "Content-MD5": "ABC",
            "content-type": "application/json",
            "Date": "Sat, 21 Nov 2026 09:00:00 GMT",
            "X-Log-ApiVersion": "0.6.0",
            "x-acs-security-token": "token",
            "x-log-date": "left out",
            "x-log-meta-author": "left out",
            "Host": "left out",
        },
    )
    assert signed.split("\n") == [
        "POST",
        "ABC",
        "application/json",
        "Sat, 21 Nov 2026 09:00:00 GMT",
        "x-acs-security-token:token",
        "x-log-apiversion:0.6.0",
        "/logstores/access?consumer=c 1&empty=&type=checkpoint",
    ]


def test_absent_headers_leave_empty_lines() -> None:
    signed = signing.string_to_sign(method="GET", path="/", query=[], headers={"Date": "now"})
    assert signed == "GET\n\n\nnow\n/"


@pytest.mark.parametrize(
    "change",
    [
        {"method": "GET"},
        {"path": "/logstores/b"},
        {"query": [("a", "2")]},
        {"query": []},
        {"headers": {"Date": "later", "x-log-bodyrawsize": "1"}},
        {"headers": {"Date": "now", "x-log-bodyrawsize": "2"}},
        {"headers": {"Date": "now", "x-log-bodyrawsize": "1", "Content-MD5": "00"}},
    ],
)
def test_any_signed_part_that_changes_breaks_the_signature(change: dict[str, Any]) -> None:
    parts: dict[str, Any] = {
        "method": "POST",
        "path": "/logstores/a",
        "query": [("a", "1")],
        "headers": {"Date": "now", "x-log-bodyrawsize": "1"},
    }
    claim = signing.SignatureClaim(
        access_key_id="keyId", signature=signing.sign(signing.string_to_sign(**parts), secret=SECRET)
    )
    assert signing.verify(claim, signing.string_to_sign(**parts), secret=SECRET)
    assert not signing.verify(claim, signing.string_to_sign(**(parts | change)), secret=SECRET)


@given(st.binary(max_size=100))
def test_content_md5_equals_that_of_the_vendor_sdk(body: bytes) -> None:
    vendor: Any = util
    assert signing.content_md5(body) == (vendor.Util.cal_md5(body) if body else "")


@pytest.mark.parametrize("value", ["", "LOG", "LOG ", "LOG key", "LOG key:", "LOG :sig", "Basic a:b"])
def test_other_authorizations_are_refused(value: str) -> None:
    with pytest.raises(MalformedSignature):
        signing.parse(value)


def test_the_scheme_determines_the_signature_version() -> None:
    assert signing.version("LOG key:signature") == 1
    assert signing.version("SLS4-HMAC-SHA256 Credential=k/20260101/r/sls/aliyun_v4_request,Signature=0") == 4
    assert signing.version("Bearer x") is None


def test_a_signature_that_is_not_ascii_is_refused() -> None:
    assert not signing.verify(signing.parse("LOG key:é"), "text", secret=SECRET)
