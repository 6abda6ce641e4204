"""The contract of every adapter over HTTP, for answers that a healthy service never sends."""

import logging
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loghub.client import retry
from loghub.client.port import Credentials, Timeouts
from loghub.wire import signing
from loghub.wire.errors import EndpointUnreachable, LogHubError
from tests.loghub.client.adapters import BODY, OpenClient
from tests.loghub.client.scripted import (
    HANG_UP,
    OK,
    Reply,
    ScriptedServer,
    refused_endpoint,
    reply_error,
    reply_json,
    scripted,
)

pytestmark = pytest.mark.long  # most of them wait for the second attempt
BUSY = reply_error("ServerBusy", 503)
FAILED = reply_error("InternalServerError", 500)
SHARDS = reply_json([])

# --- what is tried again, and what is not ----------------------------------------------------


@pytest.mark.parametrize("failure", [HANG_UP, FAILED, BUSY, Reply(status=502, body=b"<html>")])
def test_a_get_is_retried(open_client: OpenClient, failure: Reply) -> None:
    with scripted(failure, failure, SHARDS) as server, open_client(server.endpoint) as client:
        assert client.list_shards("access") == ()
        assert len(server.requests) == 3


@pytest.mark.parametrize("failure", [HANG_UP, FAILED, Reply(body=b"half", cut=True)])
def test_put_with_unknown_outcome_is_sent_once(open_client: OpenClient, failure: Reply) -> None:
    with scripted(failure, OK) as server, open_client(server.endpoint) as client:
        with pytest.raises((EndpointUnreachable, LogHubError)) as error:
            client.put_logs("access", BODY)
        reported: Any = error.value
        assert reported.definite is False
        assert len(server.requests) == 1


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> str:
    """A name of this machine, as SLS has names; the vendor's SDK goes another way to an address."""
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest: resolve("127.0.0.1" if host == "demo.sls.test" else host, *rest),
    )
    monkeypatch.setenv("NO_PROXY", "sls.test")
    return "sls.test"


@pytest.mark.parametrize("failure", [HANG_UP, FAILED, Reply(body=b"half", cut=True)])
def test_put_with_unknown_outcome_is_sent_once_to_a_name_too(
    open_client: OpenClient, failure: Reply, named: str
) -> None:
    with scripted(failure, OK) as server, open_client(f"http://{named}:{server.server_address[1]}") as client:
        with pytest.raises((EndpointUnreachable, LogHubError)) as error:
            client.put_logs("access", BODY)
        outcome: Any = error.value
        assert outcome.definite is False
        (request,) = server.requests
        assert request.headers["host"] == "demo.sls.test"


def test_a_host_name_without_a_server_is_unreachable(open_client: OpenClient, named: str) -> None:
    port = refused_endpoint().rpartition(":")[2]
    with (
        open_client(f"http://{named}:{port}") as client,
        pytest.raises(EndpointUnreachable, match="refused") as error,
    ):
        client.put_logs("access", BODY)
    assert error.value.definite


def test_a_heartbeat_to_a_silent_service_is_sent_once(open_client: OpenClient, named: str) -> None:
    with silent() as server:
        endpoint = f"http://{named}:{server.server_address[1]}"
        with open_client(endpoint, timeouts=Timeouts(read_s=0.2)) as client:
            with pytest.raises(EndpointUnreachable, match="timed out"):
                client.heartbeat("access", "g", consumer="c", held=())
            assert len(server.await_requests(1)) == 1


def test_a_put_that_was_surely_not_done_is_retried(open_client: OpenClient) -> None:
    with scripted(BUSY, OK) as server, open_client(server.endpoint) as client:
        client.put_logs("access", BODY)
        assert len(server.requests) == 2


def test_a_refused_connection_is_unreachable(open_client: OpenClient) -> None:
    endpoint = refused_endpoint()
    with open_client(endpoint) as client, pytest.raises(EndpointUnreachable) as error:
        client.put_logs("access", BODY)
    assert error.value.definite
    assert endpoint in str(error.value)
    assert "refused" in str(error.value)


def test_name_that_does_not_resolve(open_client: OpenClient) -> None:
    with open_client("http://no-such-host.invalid") as client, pytest.raises(EndpointUnreachable) as error:
        client.list_logstores()
    assert error.value.definite


def test_attempts_are_bounded(open_client: OpenClient) -> None:
    with scripted(BUSY) as server, open_client(server.endpoint) as client:
        with pytest.raises(LogHubError, match="ServerBusy"):
            client.list_shards("access")
        assert len(server.requests) == 3


def test_no_attempt_begins_after_the_total_time(open_client: OpenClient) -> None:
    limits = Timeouts(total_s=0.0)
    with scripted(BUSY) as server, open_client(server.endpoint, timeouts=limits) as client:
        with pytest.raises(LogHubError, match="ServerBusy"):
            client.list_shards("access")
        assert len(server.requests) == 1


@pytest.mark.parametrize("code", ["ParameterInvalid", "LogStoreNotExist", "ConsumerNotMatch"])
def test_a_refused_request_is_not_retried(open_client: OpenClient, code: str) -> None:
    with scripted(reply_error(code, 400)) as server, open_client(server.endpoint) as client:
        with pytest.raises(LogHubError) as error:
            client.list_shards("access")
        assert (error.value.code, error.value.request_id) == (code, "REQ7")
        assert len(server.requests) == 1


def test_heartbeat_and_checkpoint_are_retried(open_client: OpenClient) -> None:
    with scripted(HANG_UP, reply_json([1]), HANG_UP, OK) as server, open_client(server.endpoint) as client:
        assert client.heartbeat("access", "g", consumer="c", held=()) == (1,)
        client.update_checkpoint("access", "g", shard=1, cursor="MTI=", consumer="c", force=False)
        assert len(server.requests) == 4


def test_close_ends_the_pause_before_the_next_attempt(open_client: OpenClient) -> None:
    with scripted(BUSY) as server, open_client(server.endpoint) as client:
        client.close()
        with pytest.raises(LogHubError, match="ServerBusy"):
            client.list_shards("access")
        assert len(server.requests) == 1


@contextmanager
def silent() -> Iterator[ScriptedServer]:
    """A server that accepts connections and sends nothing until the end of the test."""
    with scripted(SHARDS) as server:
        server.speaking.clear()
        try:
            yield server
        finally:
            server.speaking.set()


def test_a_request_to_a_silent_service_times_out_and_a_get_is_retried(open_client: OpenClient) -> None:
    limits = Timeouts(read_s=0.2)
    with silent() as server, open_client(server.endpoint, timeouts=limits) as client:
        with pytest.raises(EndpointUnreachable, match="timed out") as error:
            client.list_shards("access")
        assert not error.value.definite
        assert len(server.await_requests(3)) == 3


def test_slow_heartbeat_and_checkpoint_are_not_sent_twice(open_client: OpenClient) -> None:
    """The first may still arrive, even after the caller's next one."""
    with silent() as server, open_client(server.endpoint, timeouts=Timeouts(read_s=0.2)) as client:
        with pytest.raises(EndpointUnreachable):
            client.heartbeat("access", "g", consumer="c", held=())
        with pytest.raises(EndpointUnreachable):
            client.update_checkpoint("access", "g", shard=0, cursor="MTI=", consumer="c", force=False)
        assert len(server.await_requests(2)) == 2


def test_an_answer_that_arrives_too_slowly_is_abandoned(open_client: OpenClient) -> None:
    """Each byte comes in time; all of them would take 20 s."""
    trickle = Reply(body=b"[" + b" " * 1000 + b"]", trickle=True)
    limits = Timeouts(read_s=5.0, total_s=0.3)
    with scripted(trickle) as server, open_client(server.endpoint, timeouts=limits) as client:
        with pytest.raises(EndpointUnreachable, match=r"timed out: .* not complete after 0\.3 s") as error:
            client.list_shards("access")
        assert not error.value.definite
        assert len(server.await_requests(1)) == 1


# --- what an answer may be -------------------------------------------------------------------


def test_a_truncated_answer_is_detected_and_requested_again(open_client: OpenClient) -> None:
    whole = reply_json([])
    with scripted(Reply(body=b"[", cut=True), whole) as server, open_client(server.endpoint) as client:
        assert client.list_shards("access") == ()
        assert len(server.requests) == 2


def test_an_endless_answer_is_refused(open_client: OpenClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_MAX_BODY_BYTES", 1000)
    monkeypatch.setattr(retry, "_PIECE_BYTES", 300)
    with scripted(Reply(body=b"x" * 1001)) as server, open_client(server.endpoint) as client:
        with pytest.raises(LogHubError, match="more than 1000 bytes"):
            client.list_shards("access")
        server.replies = [Reply(body=b"[]" + b" " * 998)]
        assert client.list_shards("access") == ()


@pytest.mark.parametrize("status", [201, 204, 301, 404])
def test_only_200_is_success_and_a_redirect_is_not_followed(open_client: OpenClient, status: int) -> None:
    elsewhere = Reply(status=status, headers={"Location": "http://127.0.0.1:1/"})
    with scripted(elsewhere) as server, open_client(server.endpoint) as client:
        with pytest.raises(LogHubError) as error:
            client.delete_logstore("access")
        assert (error.value.code, error.value.status) == ("BadResponse", status)
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize(
    "body", [b"", *b'<html> {} null [{"shardID":"x"}] [{"status":"\xff"}] {"errorCode":"\xff"}'.split()]
)
def test_an_answer_in_another_form_is_a_bad_response(
    open_client: OpenClient, body: bytes, status: int
) -> None:
    with (
        scripted(Reply(status=status, body=body)) as server,
        open_client(server.endpoint) as client,
        pytest.raises(LogHubError, match="BadResponse"),
    ):
        client.list_shards("access")


# --- what is sent ----------------------------------------------------------------------------


def test_a_rotated_key_is_used_immediately_and_the_token_is_sent(open_client: OpenClient) -> None:
    keys = [
        Credentials(access_key_id="old", access_key_secret="a"),
        Credentials(access_key_id="new", access_key_secret="b", security_token="token"),
    ]
    with scripted(SHARDS) as server, open_client(server.endpoint, credentials=lambda: keys.pop(0)) as client:
        client.list_shards("access")
        client.list_shards("access")
        first, second = server.requests
    assert signing.parse(first.headers["authorization"]).access_key_id == "old"
    assert "x-acs-security-token" not in first.headers
    assert signing.parse(second.headers["authorization"]).access_key_id == "new"
    assert second.headers["x-acs-security-token"] == "token"


def test_no_error_and_no_repr_contains_the_secret(open_client: OpenClient) -> None:
    key = Credentials(access_key_id="keyId", access_key_secret="hush-hush")
    with (
        scripted(reply_error("SignatureNotMatch", 401)) as server,
        open_client(server.endpoint, credentials=key) as client,
        pytest.raises(LogHubError) as error,
    ):
        client.list_shards("access")
    assert "hush-hush" not in f"{error.value}{error.value!r}{key}{key!r}"


@pytest.mark.parametrize("odd", ["hush\nhush", "hush\r\nx-log-date: now", "hush\x00hush", "hüsh€"])
@pytest.mark.parametrize("field", ["access_key_id", "security_token"])
def test_a_key_that_is_not_allowed_in_a_header_is_refused_without_being_quoted(
    open_client: OpenClient, field: str, odd: str
) -> None:
    key = Credentials(**({"access_key_id": "keyId", "access_key_secret": "hush-secret"} | {field: odd}))
    with (
        scripted(SHARDS) as server,
        open_client(server.endpoint, credentials=key) as client,
        pytest.raises(LogHubError, match=field.replace("_", " ")) as error,
    ):
        client.list_shards("access")
    assert error.value.status == 401
    assert error.value.definite
    assert "hush" not in repr(error.value)
    assert "hüsh" not in str(error.value)
    assert server.requests == []


def test_proxy_of_the_environment_is_not_used_on_this_machine(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", refused_endpoint())
    monkeypatch.setenv("http_proxy", refused_endpoint())
    monkeypatch.setenv("ALL_PROXY", refused_endpoint())
    with scripted(SHARDS) as server, open_client(server.endpoint) as client:
        assert client.list_shards("access") == ()


def test_proxy_of_the_environment_is_used_for_others(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with scripted(SHARDS) as proxy:
        monkeypatch.setenv("http_proxy", proxy.endpoint)
        with open_client("http://cn-somewhere.example.com") as client:
            client.list_shards("access")
        (request,) = proxy.requests
    assert request.target == "http://demo.cn-somewhere.example.com:80/logstores/access/shards"
    assert request.headers["host"] == "demo.cn-somewhere.example.com"


def test_netrc_of_the_environment_does_not_replace_the_signature(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("default login another password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with scripted(SHARDS) as server, open_client(server.endpoint) as client:
        client.list_shards("access")
        (request,) = server.requests
    assert request.headers["authorization"].startswith("LOG keyId:")


def test_cookies_are_not_returned(open_client: OpenClient) -> None:
    reply = Reply(body=b"[]", headers={"Set-Cookie": "session=1; Path=/"})
    with scripted(reply) as server, open_client(server.endpoint) as client:
        client.list_shards("access")
        client.list_shards("access")
        assert len(server.requests) == 2
        assert "cookie" not in server.requests[1].headers


def test_nothing_is_printed_and_no_key_is_logged(
    open_client: OpenClient, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    key = Credentials(access_key_id="keyId", access_key_secret="hush-secret", security_token="hush-token")
    with scripted(SHARDS, reply_error("SignatureNotMatch", 401), HANG_UP, HANG_UP, HANG_UP) as server:
        with open_client(server.endpoint, credentials=key) as client:
            client.list_shards("access")
            for _ in range(2):
                with pytest.raises((LogHubError, EndpointUnreachable)):
                    client.list_shards("access")
        assert len(server.requests) == 5
    assert "GET" in caplog.text  # urllib3 at its most talkative
    assert "hush" not in caplog.text
    assert capfd.readouterr() == ("", "")


# --- TLS -------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path, named: str) -> Path:
    """Of the project's host, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate; install it")
    pair = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")]
    name = ["-subj", "/CN=demo.sls.test", "-addext", "subjectAltName=DNS:demo.sls.test"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *pair, *name],
        check=True,
        capture_output=True,
    )
    return tmp_path / "cert"


@contextmanager
def tls_server(certificate: Path) -> Iterator[tuple[ScriptedServer, str]]:
    """The server and its endpoint, without project."""
    with scripted(SHARDS) as server:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, certificate.with_name("key"))
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        yield server, f"https://sls.test:{server.server_address[1]}"


def test_certificate_of_an_unknown_authority_is_refused(open_client: OpenClient, certificate: Path) -> None:
    with tls_server(certificate) as (server, endpoint), open_client(endpoint) as client:
        with pytest.raises(EndpointUnreachable, match="certificate") as error:
            client.put_logs("access", BODY)
        assert error.value.definite
        assert server.requests == []


def test_certificate_authorities_are_those_of_openssl(
    open_client: OpenClient, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSL_CERT_FILE is where OpenSSL finds them; a company's own authority is made known by it."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with tls_server(certificate) as (server, endpoint), open_client(endpoint) as client:
        assert client.list_shards("access") == ()
        assert len(server.requests) == 1
