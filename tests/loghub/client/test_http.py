"""Our HTTP adapter: its requests, its decoding of pulled logs, and the extensions.

`test_contract_failures` tests what it has in common with the vendor's SDK.
"""

from collections.abc import Callable
from urllib.parse import parse_qsl

import pytest

from loghub.client.port import Credentials, LogHub
from loghub.client.transport import INFO_PATH
from loghub.domain.subscription import SubscriptionType
from loghub.wire import compression, loggroup, signing, signing_v4
from loghub.wire.compression import Compression
from loghub.wire.errors import ExtensionMissing, LogHubError
from loghub.wire.subscriptions import Exchange, Exchanged
from tests.loghub.client.adapters import BODY, opener_of
from tests.loghub.client.scripted import HANG_UP, NO_INFO, Reply, reply_error, reply_json, scripted

FAILED = reply_error("InternalServerError", 500)
open_client = opener_of("http")


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
def test_a_pull_answer_that_contradicts_its_headers_is_a_bad_response(headers: dict[str, str]) -> None:
    with (
        scripted(pulled(**headers)) as server,
        open_client(server.endpoint) as client,
        pytest.raises(LogHubError, match="BadResponse"),
    ):
        client.pull_logs("access", 0, cursor="MTI=", count=10)


def test_an_error_nested_too_deeply_is_a_bad_response() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    with (
        scripted(Reply(status=400, body=b'{"errorCode": ' + deep + b"}")) as server,
        open_client(server.endpoint) as client,
        pytest.raises(LogHubError, match="BadResponse"),
    ):
        client.list_shards("access")


def test_pull_without_a_cursor_in_the_answer_keeps_its_own() -> None:
    with scripted(pulled(x_log_cursor="")) as server, open_client(server.endpoint) as client:
        answer = client.pull_logs("access", 0, cursor="MTI=", count=10)
    assert (answer.next_cursor, answer.count, answer.end_of_shard) == ("MTI=", 1, False)
    assert answer.body == loggroup.wrap([BODY])


# --- what is sent ----------------------------------------------------------------------------


def test_a_request_is_signed_and_names_its_client() -> None:
    with scripted(reply_json([])) as server, open_client(server.endpoint, agent="readers/pod-0") as client:
        client.heartbeat("access", "readers", consumer="pod 0+1", held=(3, 1))
        (request,) = server.requests
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


V4 = reply_json({"service": "loghub-embedded", "signatures": ["v1", "v4"]})


@pytest.mark.parametrize(
    ("info", "region", "signed_for"),
    [
        (V4, "", "embedded"),
        (V4, "cn-hangzhou", "cn-hangzhou"),
        (NO_INFO, "cn-hangzhou", "cn-hangzhou"),
        (NO_INFO, "", ""),
        (FAILED, "", ""),
        (reply_json({"service": "loghub-embedded"}), "", ""),
    ],
)
def test_version_4_signs_where_the_service_takes_it_or_the_key_has_a_region(
    info: Reply, region: str, signed_for: str
) -> None:
    key = Credentials(access_key_id="id", access_key_secret="s", security_token="t", region=region)
    with (
        scripted(reply_json([]), info=info) as server,
        open_client(server.endpoint, credentials=key) as client,
    ):
        client.heartbeat("access", "readers", consumer="pod 0+1", held=(3, 1))
        (request,) = server.requests
    path, _, query = request.target.partition("?")
    value, headers = request.headers["authorization"], request.headers
    assert headers["x-acs-security-token"] == "t"
    assert ("content-md5" in headers) == (signing.version(value) == 1) == (not signed_for)
    if signed_for:
        text = signing_v4.string_to_sign(
            method="POST", path=path, query=parse_qsl(query), headers=headers, region=signed_for
        )
        claim = signing_v4.parse(value)
        assert claim.region == signed_for
        assert signing_v4.verify(claim, text, secret="s")
        assert headers["x-log-content-sha256"] == signing_v4.content_sha256(request.body)


@pytest.mark.parametrize(
    "error", [PermissionError("secret"), KeyError("no key yet"), LogHubError("E", 403, "e")]
)
def test_a_key_that_cannot_be_had_fails_one_request_and_the_next_one_asks_again(error: Exception) -> None:
    """An error of another type would end the threads of a consumer."""
    given: list[Credentials | Exception] = [error, Credentials(access_key_id="id", access_key_secret="s")]

    def provide() -> Credentials:
        one = given.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    with scripted(reply_json([])) as server, open_client(server.endpoint, credentials=provide) as client:
        with pytest.raises(LogHubError) as raised:
            client.list_groups("access")
        assert raised.value is error or (raised.value.code, raised.value.status) == ("Unauthorized", 401)
        assert str(error) in str(raised.value)
        assert client.list_groups("access") == ()


def test_a_service_is_asked_once_how_it_may_be_signed_for_and_again_after_a_failure() -> None:
    replies = (FAILED, reply_json([]), V4, reply_json([]), reply_json([]))
    with scripted(*replies, info=None) as server, open_client(server.endpoint) as client:
        for _ in range(3):
            client.list_groups("access")
        versions = [
            signing.version(each.headers["authorization"])
            for each in server.requests
            if each.target != INFO_PATH
        ]
    assert versions == [1, 4, 4]
    assert [each.target for each in server.requests].count(INFO_PATH) == 2


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
def test_other_services_have_no_extensions_and_are_asked_only_once(reply: Reply) -> None:
    with scripted(reply, info=None) as server, open_client(server.endpoint) as client:
        assert not client.has_extensions()
        assert not client.has_extensions()
        with pytest.raises(ExtensionMissing):
            client.leave("access", "g", consumer="c")
        with pytest.raises(ExtensionMissing):
            client.group_status("access", "g")
        assert len(server.requests) == 1
        assert server.requests[0].target == "/_loghub/v1/info"
        assert "authorization" not in server.requests[0].headers


@pytest.mark.long
def test_a_failing_service_does_not_decide_about_extensions() -> None:
    info = reply_json({"service": "loghub-embedded", "extensions": ["leave", "group_status", "more"]})
    with (
        scripted(FAILED, FAILED, FAILED, info, info=None) as server,
        open_client(server.endpoint) as client,
    ):
        with pytest.raises(LogHubError, match="InternalServerError"):
            client.has_extensions()
        assert client.has_extensions()


# --- calls that are done by an attempt whose answer was lost ---------------------------------

WITH_SUBSCRIPTIONS = reply_json({"service": "loghub-embedded", "extensions": ["subscriptions"]})
DELETED = reply_error("SubscriptionNotExist", 404)
ENDED = reply_error("SubscriptionFenced", 409)


def delete(client: LogHub) -> None:
    client.delete_subscription("access", "s")


def leave(client: LogHub) -> None:
    last = Exchange(consumer="c", type=SubscriptionType.SHARED, session="x", leave=True)
    assert client.exchange("access", "s", last) == Exchanged(session="", lease_s=30.0)


@pytest.mark.parametrize(("call", "answer"), [(delete, DELETED), (leave, ENDED)])
@pytest.mark.parametrize("before", [(HANG_UP,), (FAILED,), (reply_error("ServerBusy", 503), HANG_UP)])
def test_a_call_that_an_attempt_has_done_whose_answer_was_lost_is_a_success(
    call: Callable[[LogHub], None], answer: Reply, before: tuple[Reply, ...]
) -> None:
    with scripted(*before, answer, info=WITH_SUBSCRIPTIONS) as server, open_client(server.endpoint) as client:
        call(client)
        assert len(server.requests) == len(before) + 1


@pytest.mark.parametrize(
    ("call", "answers", "code"),
    [
        (delete, (DELETED,), "SubscriptionNotExist"),
        (leave, (ENDED,), "SubscriptionFenced"),
        (delete, (reply_error("ServerBusy", 503), DELETED), "SubscriptionNotExist"),  # nothing was done
        (delete, (HANG_UP, reply_error("Unauthorized", 401)), "Unauthorized"),
        (delete, (HANG_UP, ENDED), "SubscriptionFenced"),
    ],
)
def test_the_same_error_of_a_first_attempt_and_any_other_one_stay_errors(
    call: Callable[[LogHub], None], answers: tuple[Reply, ...], code: str
) -> None:
    with scripted(*answers, info=WITH_SUBSCRIPTIONS) as server, open_client(server.endpoint) as client:
        with pytest.raises(LogHubError) as error:
            call(client)
        assert error.value.code == code
