"""What an access key may do: rights, projects, and the security token of an STS key."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from loghub.client.port import Credentials
from loghub.domain.subscription import SubscriptionType
from loghub.wire.subscriptions import Exchange
from loghub_service.access_keys import Right
from loghub_service.http import routes
from loghub_service.log_setup import MAX_LINES
from loghub_service.messages import Head
from tests.loghub_service.rawclient import RawClient, Reply, group_of
from tests.support import ServiceProcess, running_service

SECRET = "a-secret-of-a-test"
KEYS = {
    "reader": {"projects": ["demo"], "rights": ["read"]},
    "writer": {"projects": ["demo"], "rights": ["write"]},
    "admin": {"projects": ["demo", "other"], "rights": ["admin"]},
    "expired": {
        "projects": ["*"],
        "rights": ["read"],
        "securityToken": "old",
        "expiration": "2024-01-01T08:00:00+08:00",
    },
    "former": {"projects": ["*"], "rights": ["read"], "expiration": "2024-01-01T00:00:00Z"},
    "lasting": {
        "projects": ["*"],
        "rights": ["read"],
        "securityToken": "new",
        "expiration": "2999-01-01T00:00:00Z",
    },
    "sts": {"projects": ["*"], "rights": ["read"], "securityToken": "a-token"},
}
SUBSCRIPTIONS = "/_loghub/v1/logstores/access/subscriptions"
EXCHANGE = msgspec.msgpack.encode(Exchange(consumer="c", type=SubscriptionType.SHARED))
# One request of each API: the right, method, path, query and body.
ApiRequest = tuple[Right, str, str, dict[str, str], bytes]
REQUESTS: list[ApiRequest] = [
    (Right.READ, "GET", "/", {}, b""),
    (Right.READ, "GET", "/logstores", {}, b""),
    (Right.READ, "GET", "/logstores/access", {}, b""),
    (Right.READ, "GET", "/logstores/access/logs", {}, b""),
    (Right.READ, "GET", "/logstores/access/index", {}, b""),
    (Right.READ, "GET", "/logstores/access/shards", {}, b""),
    (Right.READ, "GET", "/logstores/access/shards/0", {"type": "cursor", "from": "end"}, b""),
    (Right.READ, "GET", "/logstores/access/shards/0", {"type": "logs", "cursor": "MQ=="}, b""),
    (Right.READ, "GET", "/logstores/access/consumergroups", {}, b""),
    (Right.READ, "POST", "/logstores/access/consumergroups", {}, b'{"consumerGroup":"n","timeout":9}'),
    (Right.READ, "PUT", "/logstores/access/consumergroups/n", {}, b'{"timeout":8}'),
    (Right.READ, "GET", "/logstores/access/consumergroups/n", {}, b""),
    (Right.READ, "POST", "/logstores/access/consumergroups/n", {"type": "heartbeat", "consumer": "c"}, b"[]"),
    (
        Right.READ,
        "POST",
        "/logstores/access/consumergroups/n",
        {"type": "checkpoint", "consumer": "c"},
        b'{"shard":0,"checkpoint":"MQ=="}',
    ),
    (Right.READ, "GET", "/_loghub/v1/logstores/access/consumergroups/n", {}, b""),
    (Right.READ, "POST", "/_loghub/v1/logstores/access/consumergroups/n/leave", {"consumer": "c"}, b""),
    (Right.READ, "GET", "/_loghub/v1/logstores/access/consumergroups/n/revision", {"consumer": "c"}, b""),
    (
        Right.READ,
        "POST",
        "/_loghub/v1/logstores/access/consumergroups/n/checkpoints",
        {"consumer": "c"},
        b'{"0":"MQ=="}',
    ),
    (Right.READ, "POST", "/_loghub/v1/logstores/access/ends", {}, b'{"0":""}'),
    (Right.READ, "GET", "/_loghub/v1/kafka/groups", {}, b""),
    (Right.READ, "GET", SUBSCRIPTIONS, {}, b""),
    (Right.READ, "PUT", f"{SUBSCRIPTIONS}/s", {}, b'{"type":"Shared"}'),
    (Right.READ, "GET", f"{SUBSCRIPTIONS}/s", {}, b""),
    (Right.READ, "POST", f"{SUBSCRIPTIONS}/s/seek", {}, b'{"position":"end"}'),
    (Right.READ, "POST", f"{SUBSCRIPTIONS}/s/skip", {}, b'{"shard":0}'),
    (Right.READ, "POST", f"{SUBSCRIPTIONS}/s/exchange", {}, EXCHANGE),
    (Right.WRITE, "POST", "/logstores/access/shards/lb", {}, b"-"),
    (Right.WRITE, "POST", "/logstores/access/shards/route", {"key": "0" * 32}, b"-"),
    (Right.WRITE, "POST", "/logstores/access", {}, b"-"),
    (Right.ADMIN, "POST", "/logstores", {}, b'{"logstoreName":"more"}'),
    (Right.ADMIN, "PUT", "/logstores/access", {}, b'{"ttl":3}'),
    (Right.ADMIN, "POST", "/logstores/access/shards/0", {"action": "split"}, b""),
    (Right.ADMIN, "DELETE", "/logstores/access/shards/0", {}, b""),
    (Right.ADMIN, "DELETE", "/logstores/access/consumergroups/n", {}, b""),
    (Right.ADMIN, "DELETE", f"{SUBSCRIPTIONS}/s", {}, b""),
    (Right.ADMIN, "DELETE", "/logstores/access", {}, b""),
    (Right.ADMIN, "POST", "/", {}, b"{}"),
    (Right.ADMIN, "PUT", "/", {}, b"{}"),
    (Right.ADMIN, "DELETE", "/", {}, b""),
]
HOLDER = {Right.READ: "reader", Right.WRITE: "writer", Right.ADMIN: "admin"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service with several keys, and the projects ``demo`` and ``foreign``."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "credentials").mkdir()
    entries = [{"accessKeyId": name, "accessKeySecret": SECRET, **entry} for name, entry in KEYS.items()]
    (folder / "credentials" / "accessKeys.json").write_text(json.dumps(entries))
    with running_service(folder) as running:
        for project in ("demo", "foreign"):
            with RawClient(running, project) as root:
                root.create()
        yield running


def send(
    service: ServiceProcess,
    key_id: str,
    request: ApiRequest,
    project: str = "demo",
) -> Reply:
    _, method, path, query, body = request
    key = Credentials(access_key_id=key_id, access_key_secret=SECRET)
    with RawClient(service, project, credentials=key) as client:
        if body == b"-":
            client.begin_put_at(path, query, group_of("x"))
            return client.end()
        return client.send(method, path, query, body=body)


def _name(request: ApiRequest) -> str:
    _, method, path, query, _ = request
    parts = tuple(path.split("/")[1:])
    target = routes.find(Head(method=method, path=path, parts=parts, query=query, headers={}, project="p"))
    assert target is not None
    return target.name


def test_every_api_has_a_request_here() -> None:
    assert {_name(request) for request in REQUESTS} == routes.NAMES


@pytest.mark.long
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: f"{r[1]} {r[2]}")
def test_each_api_requires_exactly_one_right(service: ServiceProcess, request_: ApiRequest) -> None:
    right = request_[0]
    for other in set(Right) - {right}:
        reply = send(service, HOLDER[other], request_)
        assert (reply.status, reply.code) == (401, "Unauthorized")
        assert f"access key '{HOLDER[other]}' does not have the right '{right}'" in reply.body.decode()
    foreign = send(service, HOLDER[right], request_, project="foreign")
    assert (foreign.status, foreign.code) == (401, "Unauthorized")
    assert f"access key '{HOLDER[right]}' has no rights in project foreign" in foreign.body.decode()
    assert send(service, HOLDER[right], request_).status != 401


def test_projects_are_listed_as_far_as_the_key_sees_them(service: ServiceProcess) -> None:
    def listed(key_id: str) -> list[str]:
        key = Credentials(access_key_id=key_id, access_key_secret=SECRET)
        with RawClient(service, "", credentials=key if key_id else None) as client:
            return [one["projectName"] for one in client.ok("GET", "/").json()["projects"]]

    with RawClient(service, "listed") as root:
        root.create()
    assert {"foreign", "listed"} <= set(listed(""))
    assert set(listed("reader")) <= {"demo"}


@pytest.mark.parametrize(
    ("key_id", "token", "expected"),
    [
        ("sts", "a-token", ""),
        ("sts", "", "the security token is missing"),
        ("sts", "another", "the security token is wrong"),
        ("sts", "ü", "the security token is malformed"),
        ("sts", "t" * 4097, "the security token is malformed"),
        ("reader", "a-token", "has no security token"),
        ("lasting", "new", ""),
        ("expired", "old", "the security token has expired: key 'expired' was valid until 2024-01-01T00:00"),
        ("expired", "", "the security token is missing"),
        ("former", "", "the access key has expired"),
    ],
)
def test_a_security_token_is_checked(service: ServiceProcess, key_id: str, token: str, expected: str) -> None:
    key = Credentials(access_key_id=key_id, access_key_secret=SECRET)
    with RawClient(service, credentials=key) as client:
        headers = {"x-acs-security-token": token}
        reply = client.send("GET", "/logstores/none/shards", headers=headers)
    if expected:
        assert (reply.status, reply.code) == (401, "Unauthorized")
        assert expected in reply.json()["errorMessage"]
    else:
        assert reply.code in ("LogStoreNotExist", "ProjectNotExist")


@pytest.mark.long
def test_a_refused_signature_is_logged_once_and_not_for_each_attempt(tmp_path: Path) -> None:
    with running_service(tmp_path) as service:
        owner = service.credentials.access_key_id
        wrong = Credentials(access_key_id=owner, access_key_secret="wrong")
        with RawClient(service, credentials=wrong) as client:
            assert {client.send("GET", "/").code for _ in range(50)} == {"SignatureNotMatch"}
        (line,) = service.await_events("login refused")
        assert (line["level"], line["peer"]) == ("warning", "127.0.0.1")
        assert line["reason"] == f"the signature does not match the request and key {owner!r}"
        for number in range(100):
            unknown = Credentials(access_key_id=f"nobody-{number}", access_key_secret="wrong")
            with RawClient(service, credentials=unknown) as client:
                assert client.send("GET", "/").code == "Unauthorized"
        assert len(service.await_events("login refused", MAX_LINES)) == MAX_LINES
