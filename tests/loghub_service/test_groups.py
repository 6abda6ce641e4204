"""Consumer groups over real HTTP (docs/sls-protocol.md 2.1, 4.3)."""

import json

import pytest

from loghub.wire import cursor as wire_cursor
from tests.loghub_service.rawclient import RawClient, group_of

GROUPS = "/logstores/access/consumergroups"


@pytest.fixture
def store(client: RawClient) -> RawClient:
    """A client with a logstore of four shards and a group ``g``."""
    client.create(shards=4)
    client.create_group()
    return client


def _states(client: RawClient) -> dict[int, str]:
    return {shard["shard"]: shard["state"] for shard in client.status()["shards"]}


@pytest.mark.long
def test_list_create_update_delete(client: RawClient) -> None:
    client.create()
    assert client.ok("GET", GROUPS).json() == []
    client.create_group("g", timeout=30, order=True)
    assert client.ok("GET", GROUPS).json() == [{"name": "g", "timeout": 30, "order": True}]
    client.ok("PUT", f"{GROUPS}/g", body=b'{"timeout":40}')
    client.ok("PUT", f"{GROUPS}/g", body=b'{"order":false}')
    assert client.ok("GET", GROUPS).json() == [{"name": "g", "timeout": 40, "order": False}]
    client.ok("DELETE", f"{GROUPS}/g")
    assert client.ok("GET", GROUPS).json() == []
    reply = client.send("DELETE", f"{GROUPS}/g")
    assert (reply.status, reply.code) == (404, "ConsumerGroupNotExist")


def test_create_twice(store: RawClient) -> None:
    reply = store.send("POST", GROUPS, body=b'{"consumerGroup":"g","timeout":30,"order":false}')
    assert (reply.status, reply.code) == (400, "ConsumerGroupAlreadyExist")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"consumerGroup": "", "timeout": 30},
        {"consumerGroup": "a b", "timeout": 30},
        {"consumerGroup": "a" * 129, "timeout": 30},
        {"consumerGroup": "x"},
        {"consumerGroup": "x", "timeout": 0},
        {"consumerGroup": "x", "timeout": "30"},
        {"consumerGroup": "x", "timeout": True},
        {"consumerGroup": "x", "timeout": 30, "order": 1},
    ],
)
def test_invalid_groups_are_refused(store: RawClient, fields: dict[str, object]) -> None:
    reply = store.send("POST", GROUPS, body=json.dumps(fields).encode())
    assert (reply.status, reply.code) == (400, "JsonInfoInvalid")


def test_no_more_than_30_groups(client: RawClient) -> None:
    client.create()
    for number in range(30):
        client.create_group(f"g{number}")
    reply = client.send("POST", GROUPS, body=b'{"consumerGroup":"more","timeout":30,"order":false}')
    assert (reply.status, reply.code) == (403, "ConsumerGroupQuotaExceed")


def test_a_shard_is_handed_over_only_once_its_holder_releases_it(store: RawClient) -> None:
    assert store.heartbeat("a", []) == [0, 1, 2, 3]
    assert store.heartbeat("b", []) == []
    assert store.heartbeat("a", [0, 1, 2, 3]) == [0, 1, 2, 3]  # it may have seen no answer yet
    remaining = store.heartbeat("a", [0, 1, 2, 3])
    assert len(remaining) == 2
    assert store.heartbeat("b", []) == []  # the old holder still works on them
    assert store.heartbeat("a", remaining) == remaining
    assert sorted(remaining + store.heartbeat("b", [])) == [0, 1, 2, 3]


def test_an_answer_without_shards_is_an_array(store: RawClient) -> None:
    for name in ("a", "b", "c", "d", "e"):
        store.heartbeat(name, [])
    query = {"type": "heartbeat", "consumer": "e"}
    assert store.ok("POST", f"{GROUPS}/g", query, body=b"[]").body == b"[]"


def test_a_consumer_that_returns_keeps_its_shards(store: RawClient) -> None:
    assert store.heartbeat("a", []) == store.heartbeat("a", []) == [0, 1, 2, 3]


def test_leave_frees_the_shards_immediately(store: RawClient) -> None:
    store.heartbeat("a", [])
    store.ok("POST", "/_loghub/v1/logstores/access/consumergroups/g/leave", {"consumer": "a"})
    assert store.status()["consumers"] == []
    assert store.heartbeat("b", []) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("query", "body", "code"),
    [
        ({"type": "heartbeat"}, b"[]", "ParameterInvalid"),
        ({"type": "heartbeat", "consumer": "a\n"}, b"[]", "ParameterInvalid"),
        ({"type": "heartbeat", "consumer": "a"}, b"{}", "JsonInfoInvalid"),
        ({"type": "heartbeat", "consumer": "a"}, b'["1"]', "JsonInfoInvalid"),
        ({"type": "heartbeat", "consumer": "a"}, b"[" + b"1," * 200_000 + b"1]", "PostBodyTooLarge"),
        ({"type": "other", "consumer": "a"}, b"[]", "ParameterInvalid"),
        ({"type": "checkpoint", "consumer": "a"}, b'{"shard":0}', "ParameterInvalid"),
        ({"type": "checkpoint", "consumer": "a"}, b'{"shard":0,"checkpoint":"x"}', "InvalidShardCheckPoint"),
        ({"type": "heartbeat", "consumer": "a"}, b"[0]", "NotExistConsumerWithBody"),
    ],
)
def test_invalid_posts_are_refused(store: RawClient, query: dict[str, str], body: bytes, code: str) -> None:
    reply = store.send("POST", f"{GROUPS}/g", query, body=body)
    assert (reply.status, reply.code) == (400, code)


def test_a_missing_group_is_reported(store: RawClient) -> None:
    query = {"type": "heartbeat", "consumer": "a"}
    reply = store.send("POST", f"{GROUPS}/none", query, body=b"[]")
    assert (reply.status, reply.code) == (404, "ConsumerGroupNotExist")


def test_checkpoints_have_an_entry_for_every_shard(store: RawClient) -> None:
    empty = {"checkpoint": "", "updateTime": 0, "consumer": ""}
    entries = store.ok("GET", f"{GROUPS}/g").json()
    assert entries == [{"shard": shard, **empty} for shard in range(4)]
    assert store.ok("GET", f"{GROUPS}/g", {"shard": "2"}).json() == [{"shard": 2, **empty}]
    assert store.ok("GET", f"{GROUPS}/g", {"shard": "9"}).json() == []


def test_only_the_holder_saves_without_force(store: RawClient) -> None:
    store.heartbeat("a", [])
    assert store.checkpoint(0, 77, consumer="a").status == 200
    reply = store.checkpoint(0, 78, consumer="b")
    assert (reply.status, reply.code) == (400, "ConsumerNotMatch")
    (entry,) = store.ok("GET", f"{GROUPS}/g", {"shard": "0"}).json()
    assert (wire_cursor.decode(entry["checkpoint"]), entry["consumer"]) == (77, "a")
    assert entry["updateTime"] > 1_600_000_000_000_000  # microseconds


@pytest.mark.parametrize("force", ["true", "True", "TRUE"])
def test_force_is_accepted_in_any_case(store: RawClient, force: str) -> None:
    assert store.checkpoint(0, 5, consumer="", force=force).status == 200
    assert store.checkpoint(0, 5, consumer="", force="false").code == "ParameterInvalid"


@pytest.mark.parametrize(
    ("agent", "code"),
    [("readers_pod-0", "ShardNotExsit"), ("Consumer-Library-readers/pod-0", "ShardNotExist")],
)
def test_the_code_for_a_deleted_shard_has_the_spelling_of_the_client(
    store: RawClient, agent: str, code: str
) -> None:
    """Go and Java share no spelling, and each retries forever on that of the other (2.4)."""
    query = {"type": "checkpoint", "consumer": "a", "forceSuccess": "true"}
    body = json.dumps({"shard": 9, "checkpoint": wire_cursor.encode(5)}).encode()
    reply = store.send("POST", f"{GROUPS}/g", query, body=body, headers={"User-Agent": agent})
    assert (reply.status, reply.code) == (404, code)


def test_a_checkpoint_beyond_the_end_is_refused(store: RawClient) -> None:
    """On a read-only shard it would count as the end, and unread logs as consumed."""
    store.put(group_of("unread"), key="0" * 32)
    end = wire_cursor.decode(store.cursor("end"))
    for action in ("writable", "read-only"):
        reply = store.checkpoint(0, end + 1, consumer="", force="true")
        assert (reply.status, reply.code) == (400, "InvalidShardCheckPoint"), action
        store.send("POST", "/logstores/access/shards/0", {"action": "split"})
    assert _states(store)[0] != "over"
    assert store.checkpoint(0, end, consumer="", force="true").status == 200
    assert _states(store)[0] == "over"


@pytest.mark.long
def test_a_silent_consumer_loses_its_shards(client: RawClient) -> None:
    client.create(shards=2)
    client.create_group(timeout=1)
    assert client.heartbeat("a", []) == [0, 1]
    assigned: list[int] = []
    while assigned != [0, 1]:  # bounded by the test's own time limit
        assigned = client.heartbeat("b", assigned)
    assert [consumer["name"] for consumer in client.status()["consumers"]] == ["b"]


def test_status_counts_lag_exactly(store: RawClient) -> None:
    for number in range(3):
        store.put(group_of(*"x" * (number + 1)), key="0" * 32)
    first = wire_cursor.decode(store.cursor())
    shard, empty = store.status()["shards"][:2]
    # Where the consumers will begin only they know: not said, and not 0 either.
    assert (shard["lag_groups"], shard["lag_logs"], shard["lag_s"], shard["checkpoint"]) == (*[None] * 3, "")
    assert (empty["lag_groups"], empty["lag_logs"], empty["lag_s"]) == (0, 0, 0.0)
    store.checkpoint(0, first, consumer="", force="true")
    shard = store.status()["shards"][0]
    assert (shard["lag_groups"], shard["lag_logs"]) == (3, 6)
    store.checkpoint(0, first + 1, consumer="", force="true")
    shard = store.status()["shards"][0]
    assert (shard["lag_groups"], shard["lag_logs"]) == (2, 5)
    assert 0 < shard["lag_s"] < 600
    assert shard["end_cursor"] == wire_cursor.encode(first + 3)
    store.checkpoint(0, first + 3, consumer="", force="true")
    shard = store.status()["shards"][0]
    assert (shard["lag_groups"], shard["lag_logs"], shard["lag_s"]) == (0, 0, 0.0)


def test_a_shard_is_split_into_as_many_as_are_asked_for(store: RawClient) -> None:
    path = "/logstores/access/shards/0"
    for query in ({"shardCount": "1"}, {"shardCount": "x"}, {"shardCount": "3", "key": "1" * 32}):
        assert store.send("POST", path, {"action": "split", **query}).code == "ParameterInvalid"
    answer = store.ok("POST", path, {"action": "split", "shardCount": "3"}).json()
    assert [(shard["shardID"], shard["status"]) for shard in answer] == [
        (0, "readonly"), (4, "readwrite"), (5, "readwrite"), (6, "readwrite"),
    ]  # fmt: skip
    assert [_states(store)[shard] for shard in (4, 5, 6)] == ["not_alloc"] * 3


def test_split_and_merge_reach_the_group(store: RawClient) -> None:
    """An empty read-only shard is over at once (docs/sls-protocol.md 4.4)."""
    store.heartbeat("a", [])
    store.heartbeat("a", [0, 1, 2, 3])
    store.ok("POST", "/logstores/access/shards/0", {"action": "split"})
    store.ok("POST", "/logstores/access/shards/2", {"action": "merge"})
    assert _states(store) == {
        0: "over",
        1: "already_alloc",
        2: "over",
        3: "over",
        4: "already_alloc",
        5: "already_alloc",
        6: "already_alloc",
    }
    assert store.heartbeat("a", [0, 1, 2, 3]) == [1, 4, 5, 6]
    store.ok("DELETE", "/logstores/access/shards/0")
    assert 0 not in _states(store)


def test_a_read_only_shard_is_over_when_checkpointed_at_its_end(store: RawClient) -> None:
    store.put(group_of("x"), key="0" * 32)
    store.heartbeat("a", [])
    store.ok("POST", "/logstores/access/shards/0", {"action": "split"})
    assert _states(store)[0] == "already_alloc"
    store.checkpoint(0, wire_cursor.decode(store.cursor("end")), consumer="a")
    assert _states(store)[0] == "over"


def test_deleting_a_logstore_deletes_its_groups(store: RawClient) -> None:
    store.heartbeat("a", [])
    store.ok("DELETE", "/logstores/access")
    query = {"type": "heartbeat", "consumer": "a"}
    assert store.send("POST", f"{GROUPS}/g", query, body=b"[]").code == "LogStoreNotExist"
    store.create_logstore("access")
    assert store.ok("GET", GROUPS).json() == []


def test_a_project_is_deleted_with_its_logstores_and_groups(store: RawClient) -> None:
    store.put(group_of("gone"), key="0" * 32)
    end = store.cursor("end")
    store.heartbeat("a", [])
    store.ok("DELETE", "/")
    assert store.send("GET", "/").code == "ProjectNotExist"
    store.create()
    assert store.ok("GET", GROUPS).json() == []
    assert wire_cursor.decode(store.cursor("begin")) >= wire_cursor.decode(end), "a cursor has one log group"
