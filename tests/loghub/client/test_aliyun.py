"""The vendor SDK adapter where it differs from our own.

What they have in common is in `test_contract_failures`.
"""

import os

import pytest

from loghub.client.aliyun import AliyunLogHub
from loghub.client.target import BadEndpoint
from loghub.wire.errors import ExtensionMissing, LogHubError
from tests.loghub.client.adapters import KEY
from tests.loghub.client.scripted import Reply, refused_endpoint, reply_json, scripted


def client(endpoint: str) -> AliyunLogHub:
    return AliyunLogHub(endpoint, "demo", credentials=KEY, agent="g/c")


def test_goes_through_the_service_as_a_proxy_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", refused_endpoint())
    before = dict(os.environ)
    with scripted(reply_json([])) as server:
        hub = client(server.endpoint)
        assert hub.list_shards("access") == ()
        hub.close()
        (request,) = server.asked
    port = server.endpoint.rpartition(":")[2]
    assert request.target == f"http://demo.127.0.0.1:{port}/logstores/access/shards"
    assert request.headers["host"] == "demo.127.0.0.1"
    assert request.headers["user-agent"].startswith("loghub-client/")
    assert dict(os.environ) == before


def test_a_long_answer_of_another_form_is_quoted_in_part() -> None:
    """The SDK's own error has it whole, and would reach a log."""
    for reply in (Reply(body=b"<html>" * 10_000), Reply(status=404, body=b"<html>" * 10_000)):
        with scripted(reply) as server:
            hub = client(server.endpoint)
            with pytest.raises(LogHubError, match="BadResponse") as error:
                hub.list_shards("access")
            hub.close()
        assert len(str(error.value)) < 400
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__


@pytest.mark.parametrize("body", [[{"x": 1}], {"cursor": {}}, 7, [[]], "text", None])
def test_what_the_sdk_cannot_take_apart_is_a_bad_response(body: object) -> None:
    with scripted(reply_json(body)) as server:
        hub = client(server.endpoint)
        for call in (
            lambda: hub.get_cursor("access", 0, "end"),
            lambda: hub.get_cursor_time("access", 0, "MTI="),
            lambda: hub.list_groups("access"),
            lambda: hub.get_checkpoints("access", "g"),
            lambda: hub.heartbeat("access", "g", consumer="c", held=()),
            hub.list_logstores,
        ):
            with pytest.raises(LogHubError, match="BadResponse"):
                call()
        hub.close()


def test_has_no_extensions_and_says_which_adapter_has() -> None:
    hub = client("http://127.0.0.1:1")
    assert not hub.has_extensions()
    with pytest.raises(ExtensionMissing, match="http adapter"):
        hub.group_status("access", "g")
    with pytest.raises(ExtensionMissing, match="http adapter"):
        hub.leave("access", "g", consumer="c")
    hub.close()


@pytest.mark.parametrize("endpoint", ["https://127.0.0.1:8443", "http://[::1]:8080"])
def test_address_that_the_sdk_cannot_reach_is_reported_at_once(endpoint: str) -> None:
    with pytest.raises(BadEndpoint, match="IPv4 and http only"):
        client(endpoint)


def test_more_logstores_than_one_page_are_all_told() -> None:
    names = [f"store-{number:03}" for number in range(501)]
    pages = [
        reply_json({"count": len(part), "total": 501, "logstores": part})
        for part in (names[:500], names[500:])
    ]
    with scripted(*pages) as server:
        hub = client(server.endpoint)
        assert hub.list_logstores() == tuple(names)
        hub.close()
        targets = [request.target.partition("?")[2] for request in server.asked]
    assert targets == ["offset=0&size=500", "offset=500&size=500"]
