"""Large bodies, complete or not, from clients with and without a key: heartbeats and checkpoints continue."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from loghub_service.settings import MIB, Limits
from tests.loghub_service.rawclient import GUARD_S, RawClient, group_of
from tests.support import ServiceProcess

LB = "/logstores/access/shards/lb"
PROTOBUF = {"Content-Type": "application/x-protobuf"}
LIMITS = Limits()
BUDGET = 128 * MIB
FITTING = BUDGET // LIMITS.body_bytes  # bodies of the largest size that fit into the budget together


@pytest.fixture
def store(client: RawClient) -> RawClient:
    """A client of a logstore with one shard and a group, whose consumer ``a`` has the shard."""
    client.create()
    client.create_group()
    client.heartbeat("a", [])
    return client


@pytest.fixture
def crowd(service: ServiceProcess, store: RawClient) -> Iterator[list[RawClient]]:
    """More further clients than bodies that fit into the budget."""
    with ExitStack() as stack:
        yield [stack.enter_context(RawClient(service, store.project)) for _ in range(FITTING + 1)]


def assert_consumers_go_on(client: RawClient) -> None:
    assert client.heartbeat("a", [0]) == [0]
    assert client.checkpoint(0, 71, consumer="a").status == 200
    assert client.ok("GET", "/logstores/access/shards").json()


def begin_body(client: RawClient, body: bytes, *, declared: int, **more: str) -> None:
    """Send the head of a PutLogs request that declares a size, and as much of a body as is given."""
    headers = PROTOBUF | {"Content-Length": str(declared), "Content-MD5": "0" * 32, **more}
    client.begin("POST", LB, {}, body=body, headers=headers)


def put(client: RawClient) -> str:
    """Put a log group; the code of the refusal, "" if there is none."""
    reply = client.put(group_of("x" * 1000))
    return "" if reply.status == 200 else reply.code


@pytest.mark.long
@pytest.mark.parametrize(
    ("headers", "secret", "code"),
    [
        ({"Authorization": ""}, None, "Unauthorized"),
        ({"Authorization": "LOG other:abc="}, None, "Unauthorized"),
        ({"Date": "Mon, 01 Jan 2024 00:00:00 GMT"}, None, "RequestTimeExpired"),
        ({}, "wrong", "SignatureNotMatch"),
        ({"Content-MD5": ""}, None, "SignatureNotMatch"),
    ],
)
def test_a_head_that_fails_authentication_is_answered_before_its_body(
    client: RawClient, headers: dict[str, str], secret: str | None, code: str
) -> None:
    declared = {"Content-Length": str(LIMITS.body_bytes), "Content-MD5": "0" * 32}
    client.begin("POST", LB, {}, body=b"", headers=PROTOBUF | declared | headers, secret=secret)
    assert client.answered(within_s=GUARD_S / 2)
    assert client.end().code == code


def test_an_unknown_path_is_answered_before_its_body(client: RawClient) -> None:
    client.begin("POST", "/nothing", {}, body=b"", headers={"Content-Length": "99", "Content-MD5": "0" * 32})
    assert client.answered(within_s=GUARD_S / 2)
    assert client.end().code == "InvalidMethod"


def test_the_rest_of_a_refused_body_does_not_disturb_the_next_request(client: RawClient) -> None:
    body = bytes(2 * MIB)
    refused = client.send("POST", LB, body=body, headers=PROTOBUF, secret="wrong")
    assert refused.code == "SignatureNotMatch"
    assert client.send("GET", "/").code == "ProjectNotExist"


def test_declared_sizes_take_no_memory(store: RawClient, crowd: list[RawClient]) -> None:
    for other in crowd[:FITTING]:
        begin_body(other, b"", declared=LIMITS.body_bytes)
    begin_body(crowd[FITTING], b"", declared=BUDGET - FITTING * LIMITS.body_bytes)
    assert_consumers_go_on(store)
    assert put(store) == ""


def test_json_bodies_are_small(store: RawClient) -> None:
    """They are decoded on the event loop, and have a budget of their own."""
    body = json.dumps({"logstoreName": "x" * (64 << 10)}).encode()
    assert store.send("POST", "/logstores", body=body).code == "PostBodyTooLarge"
