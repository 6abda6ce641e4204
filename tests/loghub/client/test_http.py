"""Our HTTP adapter: what it sends, its reading of pulled logs, and the extensions.

What it has in common with the vendor's SDK is in `test_contract_failures`.
"""

import pytest

from loghub.wire import compression, loggroup, signing
from loghub.wire.compression import Compression
from loghub.wire.errors import ExtensionMissing, LogHubError
from tests.loghub.client.adapters import BODY, client_of
from tests.loghub.client.scripted import Reply, reply_error, reply_json, scripted

FAILED = reply_error("InternalServerError", 500)
client = client_of("http")


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
