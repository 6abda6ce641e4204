"""The properties that all requests and responses share (docs/sls-protocol.md 1)."""

import base64
import contextlib
import hashlib
import hmac
import socket
import time
from email.utils import formatdate

import pytest

from tests.loghub_service.rawclient import RawClient, group_of
from tests.support import ServiceProcess


@pytest.mark.long
def test_success_is_200_with_a_request_id_and_an_empty_body_of_length_0(client: RawClient) -> None:
    reply = client.ok("POST", "/", body=b"{}")
    assert reply.header("content-length") == "0"
    assert reply.body == b""
    assert len(reply.header("x-log-requestid")) == 24
    assert not [name for name, _ in reply.headers if name.lower() == "content-encoding"]


def test_header_names_are_lower_case(client: RawClient) -> None:
    client.create()
    reply, _ = client.pull(client.cursor())
    names = [name for name, _ in reply.headers]
    assert names == [name.lower() for name in names]


def test_errors_are_json_with_both_names_and_a_request_id(client: RawClient) -> None:
    reply = client.send("GET", "/logstores/none")
    assert reply.status == 404
    assert set(reply.json()) == {"errorCode", "errorMessage"}
    assert reply.code == "ProjectNotExist"
    assert reply.header("x-log-requestid")


def test_the_signature_by_hand(client: RawClient) -> None:
    """Computed by this test and not by the code under test (docs/sls-protocol.md 1.3)."""
    date = formatdate(usegmt=True)
    body = b'{"projectName":"%s"}' % client.project.encode()
    md5 = hashlib.md5(body).hexdigest().upper()
    text = (
        f"POST\n{md5}\napplication/json\n{date}\nx-log-apiversion:0.6.0\n"
        f"x-log-bodyrawsize:0\nx-log-signaturemethod:hmac-sha1\n/"
    )
    digest = hmac.new(b"testKeySecret", text.encode(), hashlib.sha1).digest()
    headers = {
        "Date": date,
        "x-log-bodyrawsize": "0",
        "x-log-date": "left out of the signed text",
        "Authorization": "LOG testKeyId:" + base64.b64encode(digest).decode(),
    }
    client.ok("POST", "/", body=body, headers=headers)


@pytest.mark.parametrize(
    ("headers", "secret", "status", "code"),
    [
        ({}, "wrong", 401, "SignatureNotMatch"),
        ({"Authorization": "LOG other:abc="}, None, 401, "Unauthorized"),
        ({"Authorization": ""}, None, 401, "Unauthorized"),
        ({"Authorization": "SLS4-HMAC-SHA256 Credential=a"}, None, 401, "Unauthorized"),
        ({"Authorization": "Basic abc"}, None, 401, "Unauthorized"),
        ({"Date": ""}, None, 400, "MissingDate"),
        ({"Date": "today"}, None, 400, "InvalidDateFormat"),
        ({"Date": "Mon, 01 Jan 2024 00:00:00 +99999999999999"}, None, 400, "InvalidDateFormat"),
        ({"Content-MD5": "0" * 32}, None, 401, "SignatureNotMatch"),
    ],
)
def test_unsigned_or_badly_signed_is_refused(
    client: RawClient, headers: dict[str, str], secret: str | None, status: int, code: str
) -> None:
    reply = client.send("POST", "/", body=b"{}", headers=headers, secret=secret)
    assert (reply.status, reply.code) == (status, code)
    assert client.send("GET", "/").code == "ProjectNotExist"  # nothing was done


@pytest.mark.parametrize(("off_s", "status"), [(-890, 200), (890, 200), (-910, 400), (910, 400)])
def test_requests_more_than_15_minutes_off_are_refused(client: RawClient, off_s: int, status: int) -> None:
    date = formatdate(time.time() + off_s, usegmt=True)
    reply = client.send("POST", "/", body=b"{}", headers={"Date": date})
    assert reply.status == status
    assert status == 200 or reply.code == "RequestTimeExpired"


def test_a_body_other_than_the_signed_one_is_refused(client: RawClient) -> None:
    """The body is signed through Content-MD5 alone: without one, a body is not signed at all."""
    reply = client.send("POST", "/", body=b"{}", headers={"Content-MD5": ""})
    assert (reply.status, reply.code) == (401, "SignatureNotMatch")


def test_query_values_are_signed_decoded(client: RawClient) -> None:
    """A space as + or %20 (docs/sls-protocol.md 1.3, 7)."""
    client.create()
    client.create_group()
    path, query = "/logstores/access/consumergroups/g", {"type": "heartbeat", "consumer": "c 1"}
    for spelling in ("c+1", "c%201"):
        target = f"{path}?type=heartbeat&consumer={spelling}"
        assert client.ok("POST", path, query, body=b"[]", target=target).json() == [0]
    assert [c["name"] for c in client.status()["consumers"]] == ["c 1"]


def test_absolute_form_targets_are_served(client: RawClient) -> None:
    """As a forward proxy gets them; the project is still that of the Host header."""
    host = client.host_header
    client.host_header = f"{client.project}.sls.invalid"
    client.ok("POST", "/", body=b"{}", target=f"http://{client.project}.sls.invalid:80/")
    client.host_header = host
    assert client.ok("GET", "/").json()["projectName"] == client.project


def test_a_host_with_a_port_names_the_project_too(client: RawClient) -> None:
    client.ok("POST", "/", body=b"{}")
    client.host_header += ":8080"
    assert client.ok("GET", "/").json()["projectName"] == client.project


def test_a_bare_host_lists_projects(client: RawClient) -> None:
    client.ok("POST", "/", body=b"{}")
    client.host_header = "127.0.0.1"
    found = client.ok("GET", "/", {"offset": "0", "size": "100", "projectName": client.project}).json()
    assert (found["count"], found["total"], found["projects"][0]["projectName"]) == (1, 1, client.project)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nothing"),
        ("PATCH", "/"),
        ("PUT", "/logstores/access/shards"),
        ("POST", "/logstores/access/consumergroups/"),
        ("POST", "/logstores//"),
        ("GET", "/_loghub/v2/info"),
    ],
)
def test_an_unknown_path_is_refused(client: RawClient, method: str, path: str) -> None:
    client.create()
    reply = client.send(method, path)
    assert (reply.status, reply.code) == (405, "InvalidMethod")


@pytest.mark.parametrize("path", ["/healthz", "/_loghub/v1/info"])
def test_open_paths_need_neither_host_nor_key(client: RawClient, path: str) -> None:
    client.host_header = "10.1.2.3:8080"
    reply = client.ok("GET", path, headers={"Authorization": "", "Date": ""})
    if path.endswith("info"):
        assert reply.json()["service"] == "loghub-embedded"
        assert reply.json()["extensions"] == [
            "leave",
            "group_status",
            "kafka_groups",
            "await_ends",
            "await_group",
            "save_checkpoints",
            "subscriptions",
        ]


def test_a_body_beyond_the_bound_is_refused(client: RawClient) -> None:
    client.create()
    headers = {"Content-Type": "application/x-protobuf"}
    reply = client.send("POST", "/logstores/access/shards/lb", body=bytes((10 << 20) + 1), headers=headers)
    assert (reply.status, reply.code) == (400, "PostBodyTooLarge")


def test_a_chunked_body_is_accepted(client: RawClient) -> None:
    client.create()
    group = group_of("chunked")
    headers = {
        "Content-Type": "application/x-protobuf",
        "x-log-bodyrawsize": str(len(group)),
        "Content-Length": "",
        "Transfer-Encoding": "chunked",
    }
    client.ok("POST", "/logstores/access/shards/lb", body=group, headers=headers, chunked=True)
    assert client.pull_all() == [group]


@pytest.mark.parametrize(
    "body",
    [b"[", b"[1]", b'"x"', b"{", b'{"logstoreName":3}', b'{"logstoreName":"\xff"}', b"\xff", b"[" * 60_000],
)
def test_invalid_json_is_refused(client: RawClient, body: bytes) -> None:
    client.create()
    reply = client.send("POST", "/logstores", body=body)
    assert reply.status == 400
    assert reply.code in ("JsonInfoInvalid", "ParameterInvalid")


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\nx: ", b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 5])
def test_a_client_with_an_endless_head_is_disconnected(service: ServiceProcess, head: bytes) -> None:
    with socket.create_connection((service.host, service.port), timeout=180) as connection:
        connection.sendall(head)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 64 << 20:
                connection.sendall(b"a" * 65536)
                sent += 65536
        assert sent < 64 << 20
