"""Our HTTP adapter against answers that a healthy service never gives."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loghub.client import transport
from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials
from loghub.client.transport import Timeouts
from loghub.wire import compression, loggroup, signing
from loghub.wire.compression import Compression
from loghub.wire.errors import EndpointUnreachable, ExtensionMissing, LogHubError
from loghub.wire.loggroup import Log, LogGroup
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

KEY = Credentials(access_key_id="keyId", access_key_secret="secret")
BODY = loggroup.encode(LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),)))
BUSY = reply_error("ServerBusy", 503)
FAILED = reply_error("InternalServerError", 500)
SHARDS = reply_json([])


@contextmanager
def client(endpoint: str, **options: Any) -> Iterator[HttpLogHub]:
    hub = HttpLogHub(endpoint, "demo", credentials=options.pop("credentials", KEY), **options)
    try:
        yield hub
    finally:
        hub.close()


def asked(server: ScriptedServer) -> list[str]:
    return [request.method for request in server.asked]


# --- what is tried again, and what is not ----------------------------------------------------


@pytest.mark.parametrize("trouble", [HANG_UP, FAILED, BUSY, Reply(status=502, body=b"<html>")])
def test_get_is_tried_again(trouble: Reply) -> None:
    with scripted(trouble, trouble, SHARDS) as server, client(server.endpoint) as hub:
        assert hub.list_shards("access") == ()
        assert len(server.asked) == 3


@pytest.mark.parametrize("trouble", [HANG_UP, FAILED, Reply(body=b"half", cut=True)])
def test_put_with_unknown_outcome_is_sent_once(trouble: Reply) -> None:
    with scripted(trouble, OK) as server, client(server.endpoint) as hub:
        with pytest.raises((EndpointUnreachable, LogHubError)) as error:
            hub.put_logs("access", BODY)
        told: Any = error.value
        assert told.definite is False
        assert len(server.asked) == 1


def test_put_that_was_surely_not_done_is_sent_again() -> None:
    with scripted(BUSY, OK) as server, client(server.endpoint) as hub:
        hub.put_logs("access", BODY)
        assert len(server.asked) == 2


def test_nobody_listens() -> None:
    endpoint = refused_endpoint()
    with client(endpoint) as hub, pytest.raises(EndpointUnreachable) as error:
        hub.put_logs("access", BODY)
    assert error.value.definite
    assert endpoint in str(error.value)
    assert "refused" in str(error.value)


def test_name_that_does_not_resolve() -> None:
    with client("http://no-such-host.invalid") as hub, pytest.raises(EndpointUnreachable) as error:
        hub.list_logstores()
    assert error.value.definite


def test_tries_are_bounded() -> None:
    with scripted(BUSY) as server, client(server.endpoint) as hub:
        with pytest.raises(LogHubError, match="ServerBusy"):
            hub.list_shards("access")
        assert len(server.asked) == 3


def test_no_try_begins_after_the_total_time() -> None:
    limits = Timeouts(total_s=0.0)
    with scripted(BUSY) as server, client(server.endpoint, timeouts=limits) as hub:
        with pytest.raises(LogHubError, match="ServerBusy"):
            hub.list_shards("access")
        assert len(server.asked) == 1


@pytest.mark.parametrize("code", ["ParameterInvalid", "LogStoreNotExist", "ConsumerNotMatch"])
def test_refusal_is_final(code: str) -> None:
    with scripted(reply_error(code, 400)) as server, client(server.endpoint) as hub:
        with pytest.raises(LogHubError) as error:
            hub.list_shards("access")
        assert (error.value.code, error.value.request_id) == (code, "REQ7")
        assert len(server.asked) == 1


def test_heartbeat_and_checkpoint_are_tried_again() -> None:
    with scripted(HANG_UP, reply_json([1]), HANG_UP, OK) as server, client(server.endpoint) as hub:
        assert hub.heartbeat("access", "g", consumer="c", held=()) == (1,)
        hub.update_checkpoint("access", "g", shard=1, cursor="MTI=", consumer="c", force=False)
        assert len(server.asked) == 4


def test_close_ends_the_pause_before_the_next_try() -> None:
    with scripted(BUSY) as server, client(server.endpoint) as hub:
        hub.close()
        with pytest.raises(LogHubError, match="ServerBusy"):
            hub.list_shards("access")
        assert len(server.asked) == 1


@contextmanager
def silent() -> Iterator[ScriptedServer]:
    """It accepts, and says nothing until the end of the test."""
    with scripted(SHARDS) as server:
        server.speaking.clear()
        try:
            yield server
        finally:
            server.speaking.set()


def test_silent_service_is_given_up_and_a_get_asked_again() -> None:
    limits = Timeouts(read_s=0.2)
    with silent() as server, client(server.endpoint, timeouts=limits) as hub:
        with pytest.raises(EndpointUnreachable, match="timed out") as error:
            hub.list_shards("access")
        assert not error.value.definite
        assert len(server.asked) == 3


def test_slow_heartbeat_and_checkpoint_are_not_sent_twice() -> None:
    """The first may still arrive, even after the caller's next one."""
    with silent() as server, client(server.endpoint, timeouts=Timeouts(read_s=0.2)) as hub:
        with pytest.raises(EndpointUnreachable):
            hub.heartbeat("access", "g", consumer="c", held=())
        with pytest.raises(EndpointUnreachable):
            hub.update_checkpoint("access", "g", shard=0, cursor="MTI=", consumer="c", force=False)
        assert len(server.asked) == 2


def test_answer_that_trickles_for_ever_is_given_up() -> None:
    """Each byte comes in time; all of them would take 20 s."""
    trickle = Reply(body=b"[" + b" " * 1000 + b"]", trickle=True)
    limits = Timeouts(read_s=5.0, total_s=0.3)
    with scripted(trickle) as server, client(server.endpoint, timeouts=limits) as hub:
        with pytest.raises(EndpointUnreachable, match=r"timed out: .* not whole after 0\.3 s") as error:
            hub.list_shards("access")
        assert not error.value.definite
        assert len(server.asked) == 1


# --- what an answer may be -------------------------------------------------------------------


def test_cut_answer_is_noticed_and_asked_for_again() -> None:
    whole = reply_json([])
    with scripted(Reply(body=b"[", cut=True), whole) as server, client(server.endpoint) as hub:
        assert hub.list_shards("access") == ()
        assert len(server.asked) == 2


def test_answer_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_MAX_ANSWER_BYTES", 1000)
    monkeypatch.setattr(transport, "_PIECE_BYTES", 300)
    with scripted(Reply(body=b"x" * 1001)) as server, client(server.endpoint) as hub:
        with pytest.raises(LogHubError, match="more than 1000 bytes"):
            hub.list_shards("access")
        server.replies = [Reply(body=b"[]" + b" " * 998)]
        assert hub.list_shards("access") == ()


@pytest.mark.parametrize("status", [201, 204, 301, 404])
def test_only_200_is_success_and_a_redirect_is_not_followed(status: int) -> None:
    elsewhere = Reply(status=status, headers={"Location": "http://127.0.0.1:1/"})
    with scripted(elsewhere) as server, client(server.endpoint) as hub:
        with pytest.raises(LogHubError) as error:
            hub.delete_logstore("access")
        assert (error.value.code, error.value.status) == ("BadResponse", status)
        assert len(server.asked) == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"null", b'[{"shardID": "x"}]'])
def test_answer_of_another_form_is_a_bad_response(body: bytes) -> None:
    with (
        scripted(Reply(body=body)) as server,
        client(server.endpoint) as hub,
        pytest.raises(LogHubError, match="BadResponse"),
    ):
        hub.list_shards("access")


def pulled(**headers: str) -> Reply:
    body = loggroup.wrap([BODY])
    usual = {
        "x-log-count": "1",
        "x-log-cursor": "MTM=",
        "x-log-bodyrawsize": str(len(body)),
        "x-log-compresstype": "lz4",
    }
    changed = {name.replace("_", "-"): value for name, value in headers.items()}
    kept = {name: value for name, value in (usual | changed).items() if value != "absent"}
    return Reply(body=compression.compress(body, Compression.LZ4), headers=kept)


@pytest.mark.parametrize(
    "headers",
    [
        {"x_log_count": "absent"},
        {"x_log_count": "many"},
        {"x_log_cursor": "absent"},
        {"x_log_bodyrawsize": "absent"},
        {"x_log_bodyrawsize": "5"},
        {"x_log_bodyrawsize": str(1 << 40)},
        {"x_log_compresstype": "absent"},
        {"x_log_compresstype": "snappy"},
        {"x_log_compresstype": "zstd"},
    ],
)
def test_pull_answer_that_does_not_fit_its_headers(headers: dict[str, str]) -> None:
    with (
        scripted(pulled(**headers)) as server,
        client(server.endpoint) as hub,
        pytest.raises(LogHubError, match="BadResponse"),
    ):
        hub.pull_logs("access", 0, cursor="MTI=", count=10)


def test_pull_without_a_cursor_in_the_answer_keeps_its_own() -> None:
    with scripted(pulled(x_log_cursor="")) as server, client(server.endpoint) as hub:
        answer = hub.pull_logs("access", 0, cursor="MTI=", count=10)
    assert (answer.next_cursor, answer.count, answer.end_of_shard) == ("MTI=", 1, False)
    assert answer.body == loggroup.wrap([BODY])


# --- what is sent ----------------------------------------------------------------------------


def test_request_is_signed_and_says_who_asks() -> None:
    with scripted(reply_json([])) as server, client(server.endpoint, agent="readers/pod-0") as hub:
        hub.heartbeat("access", "readers", consumer="pod 0+1", held=(3, 1))
        (request,) = server.asked
    path, _, query = request.target.partition("?")
    assert (path, query) == (
        "/logstores/access/consumergroups/readers",
        "type=heartbeat&consumer=pod%200%2B1",
    )
    assert request.headers["host"] == "demo.127.0.0.1"
    assert request.headers["user-agent"].startswith("loghub-client/")
    assert request.headers["user-agent"].endswith(" readers/pod-0")
    assert request.body == b"[3,1]"
    signed = signing.string_to_sign(
        method="POST",
        path=path,
        query=[("consumer", "pod 0+1"), ("type", "heartbeat")],
        headers=request.headers,
    )
    claim = signing.parse(request.headers["authorization"])
    assert claim.access_key_id == "keyId"
    assert signing.verify(claim, signed, secret="secret")


def test_rotated_key_is_used_at_once_and_the_token_travels() -> None:
    keys = [
        Credentials(access_key_id="old", access_key_secret="a"),
        Credentials(access_key_id="new", access_key_secret="b", security_token="token"),
    ]
    with scripted(SHARDS) as server, client(server.endpoint, credentials=lambda: keys.pop(0)) as hub:
        hub.list_shards("access")
        hub.list_shards("access")
        first, second = server.asked
    assert signing.parse(first.headers["authorization"]).access_key_id == "old"
    assert "x-acs-security-token" not in first.headers
    assert signing.parse(second.headers["authorization"]).access_key_id == "new"
    assert second.headers["x-acs-security-token"] == "token"


def test_secret_stands_in_no_error_and_no_repr() -> None:
    key = Credentials(access_key_id="keyId", access_key_secret="hush-hush")
    with (
        scripted(reply_error("SignatureNotMatch", 401)) as server,
        client(server.endpoint, credentials=key) as hub,
        pytest.raises(LogHubError) as error,
    ):
        hub.list_shards("access")
    assert "hush-hush" not in f"{error.value}{error.value!r}{key}{key!r}"


@pytest.mark.parametrize("odd", ["hush\nhush", "hush\r\nx-log-date: now", "hush\x00hush", "hüsh€"])
@pytest.mark.parametrize("field", ["access_key_id", "security_token"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_quoted(field: str, odd: str) -> None:
    key = Credentials(**({"access_key_id": "keyId", "access_key_secret": "hush-secret"} | {field: odd}))
    with (
        scripted(SHARDS) as server,
        client(server.endpoint, credentials=key) as hub,
        pytest.raises(LogHubError, match=field.replace("_", " ")) as error,
    ):
        hub.list_shards("access")
    assert error.value.status == 401
    assert error.value.definite
    assert "hush" not in repr(error.value)
    assert "hüsh" not in str(error.value)
    assert server.asked == []


def test_proxy_of_the_environment_is_not_used_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", refused_endpoint())
    monkeypatch.setenv("http_proxy", refused_endpoint())
    monkeypatch.setenv("ALL_PROXY", refused_endpoint())
    with scripted(SHARDS) as server, client(server.endpoint) as hub:
        assert hub.list_shards("access") == ()


def test_proxy_of_the_environment_is_used_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with scripted(SHARDS) as proxy:
        monkeypatch.setenv("http_proxy", proxy.endpoint)
        with client("http://cn-somewhere.example.com") as hub:
            hub.list_shards("access")
        (request,) = proxy.asked
    assert request.target == "http://demo.cn-somewhere.example.com:80/logstores/access/shards"
    assert request.headers["host"] == "demo.cn-somewhere.example.com"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate; install it")
def test_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    pair = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")]
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *pair, *name],
        check=True,
        capture_output=True,
    )
    with scripted(SHARDS) as server:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(tmp_path / "cert", tmp_path / "key")
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        endpoint = server.endpoint.replace("http:", "https:")
        with client(endpoint) as hub, pytest.raises(EndpointUnreachable, match="certificate") as error:
            hub.put_logs("access", BODY)
        assert error.value.definite
        assert server.asked == []


# --- extensions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        reply_error("InvalidMethod", 404),
        reply_error("Unauthorized", 401),
        Reply(status=404, body=b"<html>"),
        reply_json({"service": "something else"}),
        Reply(body=b"hello"),
    ],
)
def test_other_services_have_no_extensions_and_are_asked_once(reply: Reply) -> None:
    with scripted(reply) as server, client(server.endpoint) as hub:
        assert not hub.has_extensions()
        assert not hub.has_extensions()
        with pytest.raises(ExtensionMissing):
            hub.leave("access", "g", consumer="c")
        with pytest.raises(ExtensionMissing):
            hub.group_status("access", "g")
        assert len(server.asked) == 1
        assert server.asked[0].target == "/_loghub/v1/info"
        assert "authorization" not in server.asked[0].headers


def test_failing_service_says_nothing_about_extensions() -> None:
    info = reply_json({"service": "loghub-embedded", "extensions": ["leave", "group_status", "more"]})
    with scripted(FAILED, FAILED, FAILED, info) as server, client(server.endpoint) as hub:
        with pytest.raises(LogHubError, match="InternalServerError"):
            hub.has_extensions()
        assert hub.has_extensions()
