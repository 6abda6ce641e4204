"""The adapter for the vendor's SDK, where it differs from our own, and how much this machine's clock is ahead
of the service's, which the adapter corrects.

`test_contract_failures` tests what the adapters have in common.
"""

import os
import time
from dataclasses import replace
from email.utils import formatdate

import pytest

from loghub.client.aliyun import AliyunLogHub
from loghub.client.port import Poll
from loghub.client.target import BadEndpoint
from loghub.client.transport import ahead_s
from loghub.wire.errors import ExtensionMissing, LogHubError
from tests.loghub.client.adapters import KEY
from tests.loghub.client.scripted import Reply, refused_endpoint, reply_json, scripted


def open_client(endpoint: str) -> AliyunLogHub:
    return AliyunLogHub(endpoint, "demo", credentials=KEY, agent="g/c")


def test_goes_through_the_service_as_a_proxy_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", refused_endpoint())
    before = dict(os.environ)
    with scripted(reply_json([])) as server:
        client = open_client(server.endpoint)
        assert client.list_shards("access") == ()
        client.close()
        (request,) = server.requests
    port = server.endpoint.rpartition(":")[2]
    assert request.target == f"http://demo.127.0.0.1:{port}/logstores/access/shards"
    assert request.headers["host"] == "demo.127.0.0.1"
    assert request.headers["user-agent"].startswith("loghub-client/")
    assert dict(os.environ) == before


def test_a_long_unexpected_answer_is_quoted_in_part() -> None:
    """The SDK's own error has it whole, and would reach a log."""
    for reply in (Reply(body=b"<html>" * 10_000), Reply(status=404, body=b"<html>" * 10_000)):
        with scripted(reply) as server:
            client = open_client(server.endpoint)
            with pytest.raises(LogHubError, match="BadResponse") as error:
                client.list_shards("access")
            client.close()
        assert len(str(error.value)) < 400
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__


@pytest.mark.parametrize("body", [[{"x": 1}], {"cursor": {}}, 7, [[]], "text", None])
def test_an_answer_that_the_sdk_cannot_parse_is_a_bad_response(body: object) -> None:
    with scripted(reply_json(body)) as server:
        client = open_client(server.endpoint)
        for call in (
            lambda: client.get_cursor("access", 0, "end"),
            lambda: client.get_cursor_time("access", 0, "MTI="),
            lambda: client.list_groups("access"),
            lambda: client.get_checkpoints("access", "g"),
            lambda: client.heartbeat("access", "g", consumer="c", held=()),
            client.list_logstores,
        ):
            with pytest.raises(LogHubError, match="BadResponse"):
                call()
        client.close()


def test_the_error_for_a_missing_extension_names_the_http_adapter() -> None:
    client = open_client("http://127.0.0.1:1")
    assert not client.has_extensions()
    with pytest.raises(ExtensionMissing, match="http adapter"):
        client.group_status("access", "g")
    with pytest.raises(ExtensionMissing, match="http adapter"):
        client.leave("access", "g", consumer="c")
    assert not client.has_polls()
    poll = Poll(name="p", wait_s=0.0)
    for call in (
        lambda: client.await_ends("access", {}, poll=poll),
        lambda: client.await_group("access", "g", consumer="c", revision=0, poll=poll),
        lambda: client.save_checkpoints("access", "g", {}, consumer="c"),
    ):
        with pytest.raises(ExtensionMissing, match="http adapter"):
            call()
    client.close()


@pytest.mark.parametrize("endpoint", ["https://127.0.0.1:8443", "http://[::1]:8080"])
def test_an_address_that_the_sdk_cannot_reach_is_refused_immediately(endpoint: str) -> None:
    with pytest.raises(BadEndpoint, match="only IPv4 and http"):
        open_client(endpoint)


def test_more_than_one_page_of_logstores_is_listed() -> None:
    names = [f"store-{number:03}" for number in range(501)]
    pages = [
        reply_json({"count": len(part), "total": 501, "logstores": part})
        for part in (names[:500], names[500:])
    ]
    with scripted(*pages) as server:
        client = open_client(server.endpoint)
        assert client.list_logstores() == tuple(names)
        client.close()
        targets = [request.target.partition("?")[2] for request in server.requests]
    assert targets == ["offset=0&size=500", "offset=500&size=500"]


NOW_S = 1_763_888_400.0


@pytest.mark.parametrize(
    ("off_s", "expected"), [(0, 0), (29, 0), (31, 60), (400, 420), (-400, -420), (840, 840)]
)
def test_the_difference_is_that_of_the_date_in_whole_minutes(off_s: int, expected: int) -> None:
    for name in ("Date", "date"):
        assert ahead_s({name: formatdate(NOW_S - off_s, usegmt=True)}, now_unix_s=NOW_S) == expected


@pytest.mark.parametrize("date", [None, "", "today", "Mon, 01 Jan 2024 00:00:00 +99999999999999"])
def test_without_a_time_there_is_no_difference(date: str | None) -> None:
    assert ahead_s({} if date is None else {"Date": date}, now_unix_s=NOW_S) == 0


def test_checkpoints_have_the_time_of_this_machine() -> None:
    """A consumer that saved one ten seconds ago did so ten seconds ago, whatever this clock says."""
    service_s = time.time() - 400
    saved_us = round((service_s - 10) * 1_000_000)
    body = [
        {"shard": 0, "checkpoint": "MQ==", "updateTime": saved_us, "consumer": "theirs"},
        {"shard": 1, "checkpoint": "", "updateTime": 0, "consumer": ""},
    ]
    reply = reply_json(body)
    dated = replace(reply, headers={**reply.headers, "Date": formatdate(service_s, usegmt=True)})
    with scripted(dated) as server:
        client = AliyunLogHub(server.endpoint, "demo", credentials=KEY, agent="g/c")
        first, second = client.get_checkpoints("access", "g")
        client.close()
    assert abs(time.time() - first.updated_unix_us / 1_000_000 - 10) <= 45
    assert second.updated_unix_us == 0
