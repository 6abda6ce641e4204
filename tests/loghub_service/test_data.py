"""PutLogs, PullLogs and cursors over real HTTP (docs/sls-protocol.md 2.1 to 3)."""

import time

import pytest
import zstandard

from loghub.wire import compression, loggroup
from loghub.wire import cursor as wire_cursor
from loghub.wire.compression import Compression
from tests.loghub_service.rawclient import RawClient, group_of

LB = "/logstores/access/shards/lb"


@pytest.fixture
def store(client: RawClient) -> RawClient:
    """A client whose logstore ``access`` has one shard."""
    client.create()
    return client


@pytest.mark.long
def test_log_groups_are_read_unchanged(store: RawClient) -> None:
    odd = group_of("x") + b"\x4a\x03abc"  # an unknown field stays where it was
    groups = [group_of("a", "b"), odd, group_of("\u00e9" * 1000, topic="")]
    for group in groups:
        assert store.put(group).status == 200
    assert store.pull_all() == groups


def test_pull_headers_with_data(store: RawClient) -> None:
    store.put(group_of("a"))
    store.put(group_of("b"))
    begin = store.cursor()
    reply, groups = store.pull(begin)
    first = wire_cursor.decode(begin)
    assert reply.header("x-log-count") == "2" == str(len(groups))
    assert reply.header("x-log-cursor") == wire_cursor.encode(first + 2) == store.cursor("end")
    assert reply.header("x-log-compresstype") == "lz4"
    assert reply.header("x-log-read-last-cursor") == str(first + 1)
    assert reply.header("x-log-end-of-cursor") == "1"
    assert reply.header("content-type") == "application/x-protobuf"
    assert int(reply.header("x-log-bodyrawsize")) == sum(len(g) + 2 for g in groups)
    reply, groups = store.pull(begin, count=1)
    assert (reply.header("x-log-end-of-cursor"), reply.header("x-log-count")) == ("0", "1")


def test_pull_at_the_end_gives_the_cursor_back(store: RawClient) -> None:
    store.put(group_of("a"))
    end = store.cursor("end")
    reply, groups = store.pull(end)
    assert groups == []
    assert reply.header("x-log-cursor") == end
    assert reply.header("x-log-count") == "0" == reply.header("x-log-bodyrawsize")
    assert reply.header("content-length") == "0"


def test_pull_with_end_cursor_is_exclusive(store: RawClient) -> None:
    for text in "abc":
        store.put(group_of(text))
    first = wire_cursor.decode(store.cursor())
    middle = wire_cursor.encode(first + 2)
    reply, groups = store.pull(store.cursor(), end_cursor=middle)
    assert (len(groups), reply.header("x-log-cursor")) == (2, middle)
    reply, groups = store.pull(middle, end_cursor=middle)
    assert (groups, reply.header("x-log-cursor")) == ([], middle)


def test_type_log_is_the_same_as_logs(store: RawClient) -> None:
    store.put(group_of("a"))
    assert len(store.pull(store.cursor(), type="log")[1]) == 1


def test_zstd_in_both_directions(store: RawClient) -> None:
    group = group_of("a" * 500)
    body = compression.compress(group, Compression.ZSTD)
    headers = {
        "Content-Type": "application/x-protobuf",
        "x-log-bodyrawsize": str(len(group)),
        "x-log-compresstype": "zstd",
    }
    store.ok("POST", LB, body=body, headers=headers)
    query = {"type": "log", "cursor": store.cursor(), "count": "10"}
    reply = store.ok("GET", "/logstores/access/shards/0", query, headers={"Accept-Encoding": "zstd"})
    assert reply.header("x-log-compresstype") == "zstd"
    assert list(map(bytes, loggroup.split(zstandard.decompress(reply.body)))) == [group]


def test_put_without_the_shards_path_is_balanced(store: RawClient) -> None:
    """Go posts to the logstore itself."""
    group = group_of("from go")
    headers = {"Content-Type": "application/x-protobuf", "x-log-bodyrawsize": str(len(group))}
    store.ok("POST", "/logstores/access", body=group, headers=headers)
    assert store.pull_all() == [group]


def test_a_put_with_a_key_goes_to_the_shard_of_the_key(client: RawClient) -> None:
    client.create(shards=4)
    for shard, key in enumerate(("0" * 32, "7" + "f" * 31, "80" + "0" * 30, "f" * 32)):
        client.put(group_of(str(shard)), key=key)
    assert [client.pull_all(shard=n) for n in range(4)] == [[group_of(str(n))] for n in range(4)]


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"x-log-compresstype": "gzip"}, b"abc", 400, "InvalidCompressType"),
        ({"x-log-compresstype": "lz4"}, b"abc", 400, "PostBodyUncompressError"),
        ({"x-log-compresstype": "lz4", "x-log-bodyrawsize": "99999999"}, b"abc", 400, "PostBodyTooLarge"),
        ({"x-log-bodyrawsize": ""}, b"abc", 400, "MissingBodyRawSize"),
        ({"x-log-bodyrawsize": "-3"}, b"abc", 400, "InvalidBodyRawSize"),
        ({"x-log-bodyrawsize": "2"}, b"abc", 400, "InvalidBodyRawSize"),
        ({}, b"abc", 400, "PostBodyInvalid"),
        ({"Content-Type": "text/plain"}, b"abc", 415, "InvalidContentType"),
    ],
)
def test_invalid_puts_are_refused_and_store_nothing(
    store: RawClient, headers: dict[str, str], body: bytes, status: int, code: str
) -> None:
    reply = store.send("POST", LB, body=body, headers={"Content-Type": "application/x-protobuf"} | headers)
    assert (reply.status, reply.code) == (status, code)
    assert store.cursor() == store.cursor("end")


@pytest.mark.parametrize("key", ["", "abc", "g" * 32, "0" * 33])
def test_invalid_keys_are_refused(store: RawClient, key: str) -> None:
    group = group_of("a")
    headers = {"Content-Type": "application/x-protobuf", "x-log-bodyrawsize": str(len(group))}
    reply = store.send("POST", "/logstores/access/shards/route", {"key": key}, body=group, headers=headers)
    assert (reply.status, reply.code) == (400, "ParameterInvalid")


@pytest.mark.parametrize(
    ("path", "query", "headers", "code", "message"),
    [
        (LB, {"processor": "parse"}, {}, "ParameterInvalid", "has no processors"),
        ("/logstores/access", {"processor": "parse"}, {}, "ParameterInvalid", "has no processors"),
        (LB, {"ttl": "3"}, {}, "ParameterInvalid", "has the parameter key only, not 'ttl'"),
        (LB, {}, {"x-log-mode": "batch_group"}, "ParameterInvalid", "no x-log-mode 'batch_group'"),
        (LB, {}, {"Content-Encoding": "gzip"}, "ParameterInvalid", "no content-encoding 'gzip'"),
        (LB, {}, {"x-log-apiversion": "0.7.0"}, "InvalidAPIVersion", "must be 0.6.0, not '0.7.0'"),
    ],
)
def test_options_that_would_be_ignored_are_refused_in_words(
    store: RawClient, path: str, query: dict[str, str], headers: dict[str, str], code: str, message: str
) -> None:
    group = group_of("a")
    usual = {"Content-Type": "application/x-protobuf", "x-log-bodyrawsize": str(len(group))}
    reply = store.send("POST", path, query, body=group, headers=usual | headers)
    assert (reply.status, reply.code) == (400, code)
    assert message in reply.json()["errorMessage"]
    assert store.cursor() == store.cursor("end")


@pytest.mark.parametrize("path", ["/logstores/access", LB, "/logstores/access/shards/route"])
def test_a_key_chooses_the_shard_on_every_path(client: RawClient, path: str) -> None:
    client.create(shards=16)
    client.begin_put_at(path, {"key": "9" * 32}, group_of("a"))
    assert client.end().status == 200
    assert client.pull_all(shard=9) == [group_of("a")]


def test_a_put_on_the_path_of_keys_without_a_key_is_balanced(store: RawClient) -> None:
    store.begin_put_at("/logstores/access/shards/route", {}, group_of("a"))
    assert store.end().status == 200
    assert store.pull_all() == [group_of("a")]


def test_a_group_without_logs_is_accepted_but_not_stored(store: RawClient) -> None:
    empty = loggroup.encode(loggroup.LogGroup(logs=(), topic="t"))
    assert store.put(empty).status == 200
    assert store.cursor() == store.cursor("end")


@pytest.mark.parametrize("count", ["0", "1001", "x", "-1", "9" * 5000])
def test_invalid_counts_are_refused(store: RawClient, count: str) -> None:
    query = {"type": "logs", "cursor": store.cursor(), "count": count}
    assert store.send("GET", "/logstores/access/shards/0", query).code == "ParameterInvalid"


@pytest.mark.parametrize("cursor", ["", "!", "YWJj", wire_cursor.encode(2**63 - 1)])
def test_invalid_cursors_are_refused(store: RawClient, cursor: str) -> None:
    """An empty cursor too: Go pulls with one after an error, and must not get data (6)."""
    reply = store.send("GET", "/logstores/access/shards/0", {"type": "logs", "cursor": cursor, "count": "1"})
    assert (reply.status, reply.code) == (400, "InvalidCursor")


def test_an_old_cursor_starts_at_the_oldest_group(store: RawClient) -> None:
    store.put(group_of("a"))
    reply, groups = store.pull(wire_cursor.encode(5))
    assert (groups, reply.header("x-log-cursor")) == ([group_of("a")], store.cursor("end"))


def test_cursor_positions(store: RawClient) -> None:
    assert wire_cursor.decode(store.cursor()) > 0  # clients compute "one before"
    before = int(time.time())
    store.put(group_of("a"))
    assert store.cursor("0") == store.cursor("begin") == store.cursor(str(before))
    assert store.cursor(str(int(time.time()) + 60)) == store.cursor("end")
    for bad in ("", "middle", "-1", "1.5", "9" * 5000):
        query = {"type": "cursor", "from": bad}
        assert store.send("GET", "/logstores/access/shards/0", query).code == "ParameterInvalid"


@pytest.mark.parametrize("shard", ["1", "x", "-1", "99999999999", "9" * 5000])
def test_missing_shards_are_refused(store: RawClient, shard: str) -> None:
    reply = store.send("GET", f"/logstores/access/shards/{shard}", {"type": "cursor", "from": "begin"})
    assert (reply.status, reply.code) == (400, "ShardNotExist")


def test_a_recreated_logstore_has_other_cursors_and_no_old_data(store: RawClient) -> None:
    store.put(group_of("old"))
    old_end = wire_cursor.decode(store.cursor("end"))
    store.ok("DELETE", "/logstores/access")
    assert store.send("GET", "/logstores/access").code == "LogStoreNotExist"
    store.create_logstore("access")
    assert store.pull_all() == []
    assert wire_cursor.decode(store.cursor()) > old_end


def test_a_split_keeps_order_between_parent_and_children(store: RawClient) -> None:
    for number in range(5):
        store.put(group_of(str(number)))
    store.ok("POST", "/logstores/access/shards/0", {"action": "split"})
    for number in range(5, 15):
        store.put(group_of(str(number)))
    assert store.pull_all(shard=0) == [group_of(str(n)) for n in range(5)]
    rest = store.pull_all(shard=1) + store.pull_all(shard=2)
    assert sorted(rest) == sorted(group_of(str(n)) for n in range(5, 15))
