"""The vendor SDK adapter where it must differ from the SDK's own habits."""

import os
from typing import Any

import pytest

from loghub.client.aliyun import AliyunLogHub
from loghub.client.port import Credentials
from loghub.client.target import BadEndpoint
from loghub.client.transport import Timeouts
from loghub.wire import loggroup
from loghub.wire.errors import EndpointUnreachable, ExtensionMissing, LogHubError
from loghub.wire.loggroup import Log, LogGroup
from tests.loghub.client.scripted import HANG_UP, Reply, refused_endpoint, reply_error, reply_json, scripted

KEY = Credentials(access_key_id="keyId", access_key_secret="secret")
BODY = loggroup.encode(LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),)))


def client(endpoint: str, **options: Timeouts) -> AliyunLogHub:
    return AliyunLogHub(endpoint, "demo", credentials=KEY, agent="g/c", **options)


@pytest.mark.parametrize("trouble", [HANG_UP, reply_error("InternalServerError", 500)])
def test_put_with_unknown_outcome_is_sent_once(trouble: Reply) -> None:
    with scripted(trouble) as server:
        hub = client(server.endpoint)
        with pytest.raises((EndpointUnreachable, LogHubError)) as error:
            hub.put_logs("access", BODY)
        hub.close()
        told: Any = error.value
        assert told.definite is False
        assert len(server.asked) == 1


def test_nobody_listens() -> None:
    hub = client(refused_endpoint())
    with pytest.raises(EndpointUnreachable) as error:
        hub.list_logstores()
    hub.close()
    assert error.value.definite


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


def test_answers_of_another_form_are_bad_responses() -> None:
    for reply in (Reply(body=b"hello"), reply_json({}), reply_json([{"shardID": "x"}]), Reply(status=204)):
        with scripted(reply) as server:
            hub = client(server.endpoint)
            with pytest.raises(LogHubError, match="BadResponse"):
                hub.list_shards("access")
            hub.close()


def test_error_keeps_its_code_status_and_request() -> None:
    with scripted(reply_error("LogStoreNotExist", 404)) as server:
        hub = client(server.endpoint)
        with pytest.raises(LogHubError) as error:
            hub.list_shards("access")
        hub.close()
    assert (error.value.code, error.value.status, error.value.request_id) == (
        "LogStoreNotExist",
        404,
        "REQ7",
    )


def test_has_no_extensions_and_says_which_adapter_has() -> None:
    hub = client("http://127.0.0.1:1")
    assert not hub.has_extensions()
    with pytest.raises(ExtensionMissing, match="http adapter"):
        hub.group_status("access", "g")
    with pytest.raises(ExtensionMissing, match="http adapter"):
        hub.leave("access", "g", consumer="c")
    hub.close()


def test_https_to_an_address_is_told_at_once() -> None:
    with pytest.raises(BadEndpoint, match="http only"):
        client("https://127.0.0.1:8443")


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
