"""Hypothesis strategies for requests: parts that reach deep into the API, and parts that no client sends."""

import json
from dataclasses import dataclass
from urllib.parse import quote

from hypothesis import strategies as st

from loghub.wire import compression
from loghub.wire.compression import Compression
from loghub_service.settings import Limits
from tests.loghub_service.inprocess import KEY, Part
from tests.loghub_service.rawclient import group_of, signed_headers

# Small, so that small bodies reach them.
LIMITS = Limits(
    body_bytes=20_000,
    raw_bytes=20_000,
    log_bytes=50_000,
    json_bytes=8_000,
    json_total_bytes=10_000,
    response_bytes=20_000,
    pull_bytes=5_000,
    body_timeout_s=0.01,
    json_timeout_s=0.01,
)
GROUP = group_of("a line", "another") * 20
PUT = {"Content-Type": "application/x-protobuf", "x-log-bodyrawsize": str(len(GROUP))}
LOGSTORES = ("logstores", "access")
GROUPS = (*LOGSTORES, "consumergroups")
EXTENSION = ("_loghub", "v1", *GROUPS, "g")
OF_CONSUMERS = (
    *((*EXTENSION, name) for name in ("leave", "revision", "checkpoints")),
    ("_loghub", "v1", *LOGSTORES, "ends"),
)


@dataclass(frozen=True, slots=True)
class AnyRequest:
    """``pieces`` is into how many parts the body is cut, and after how many the client disconnects."""

    method: str
    segments: tuple[str, ...]
    query: dict[str, str]
    body: bytes
    headers: dict[str, str]
    pieces: tuple[int, int | None] = (1, None)

    def scope(self, unix_s: float) -> dict[str, object]:
        """The ASGI scope, signed unless ``headers`` has another signature."""
        path = "/" + "/".join(quote(segment, safe="") for segment in self.segments)
        query = "&".join(
            f"{quote(name, safe='')}={quote(text, safe='')}" for name, text in self.query.items()
        )
        sent = signed_headers(
            self.method,
            path,
            self.query,
            body=self.body,
            headers={"Host": "demo.127.0.0.1"} | self.headers,
            key=KEY,
            unix_s=unix_s,
        )
        return {
            "type": "http",
            "method": self.method,
            "path": "/" + "/".join(self.segments),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), text.encode("latin-1")) for name, text in sent.items()],
        }

    def arriving(self) -> list[Part]:
        pieces, gone_after = self.pieces
        step = len(self.body) // pieces + 1
        starts = range(0, max(len(self.body), 1), step)
        parts: list[Part] = [
            (self.body[start : start + step], start + step < len(self.body)) for start in starts
        ]
        return parts if gone_after is None else [*parts[:gone_after], None]


odd_text = st.text(max_size=20)


def words(text: str, *more: str) -> st.SearchStrategy[str]:
    """One of these words, or anything."""
    return st.one_of(st.sampled_from([*text.split(), *more]), odd_text)


names = words("access copy g c 0 1 7 lb route .. %2F", "", "x" * 200)
paths = st.one_of(
    st.lists(words("logstores shards consumergroups _loghub v1 leave ends logs healthz"), max_size=6).map(
        tuple
    ),
    st.just(("",)),
    st.tuples(st.just("logstores")),
    st.tuples(st.just("logstores"), names),
    st.tuples(st.just("logstores"), names, st.sampled_from(["shards", "consumergroups"]), names),
    st.sampled_from([EXTENSION, *OF_CONSUMERS, GROUPS, (*LOGSTORES, "shards")]),
)
values = words(
    "heartbeat checkpoint cursor cursor_time log logs begin end split merge c true 0 1 -1 MQ== NzE=",
    *("MTAwMDAwMDAwMDAwMDAwMDAwMDAw", "9" * 30, "0" * 32, "f" * 32),
)
queries = st.dictionaries(
    words(
        "type consumer cursor end_cursor count from key action shard forceSuccess shardCount offset size "
        "logstoreName projectName poll revision"
    ),
    values,
    max_size=4,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(values, inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "projectName description logstoreName shardCount ttl consumerGroup timeout order shard checkpoint "
    "autoSplit hot_ttl"
)
json_fields = st.dictionaries(st.sampled_from(FIELDS.split()), json_values, max_size=4)
bodies = st.one_of(
    st.binary(max_size=100),
    st.one_of(json_values, json_fields).map(lambda value: json.dumps(value).encode()),
    st.sampled_from(
        [
            b"",
            GROUP,
            compression.compress(GROUP, Compression.LZ4),
            compression.compress(GROUP, Compression.ZSTD),
            bytes(LIMITS.json_bytes + 1),
            bytes(LIMITS.body_bytes + 1),
            b"[" * 5000,
            b'{"description": "\xff"}',
        ]
    ),
)
ODD_HEADERS = {
    "Host": ["demo.127.0.0.1", "127.0.0.1", "other.x.y", "", "a b", "[::1]:80"],
    "Content-Type": ["application/x-protobuf", "application/json", "", "x"],
    "x-log-bodyrawsize": [str(len(GROUP)), "0", "-1", "x", "", "9" * 40, "20000", "20001"],
    "x-log-compresstype": ["lz4", "zstd", "deflate", ""],
    "Content-Length": ["0", "5", "99999999", "x", "", "9" * 5000, "-1"],
    "Content-MD5": ["", "0" * 32, "x"],
    "Date": ["", "yesterday", "Mon, 01 Jan 0001 00:00:00 +2359", "Thu, 99 Foo 2023 00:00:00"],
    "Accept-Encoding": ["lz4", "zstd", "gzip", ""],
    "Authorization": ["", "LOG a:b", "LOG testKeyId:", "SLS4-HMAC-SHA256 x", "Basic", "LOG"],
    "x-acs-security-token": ["", "token"],
    "User-Agent": ["log-python-sdk", "%C3%A9", ""],
}
# Few in one request: each of most of them alone is reason enough to refuse it.
headers = st.lists(
    st.sampled_from([(name, text) for name, texts in ODD_HEADERS.items() for text in texts]), max_size=2
).map(dict)
anything = st.builds(
    AnyRequest,
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"]),
    paths,
    queries,
    bodies,
    headers,
    st.tuples(st.integers(1, 3), st.none() | st.integers(0, 3)),
)


def _usual(
    method: str,
    segments: tuple[str, ...],
    query: str = "",
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> AnyRequest:
    pairs = dict(pair.split("=", 1) for pair in query.split("&") if pair)
    return AnyRequest(method, segments, pairs, body, headers or {})


usual = st.sampled_from(
    [
        _usual("POST", (*LOGSTORES, "shards", "lb"), body=GROUP, headers=PUT),
        _usual("POST", (*LOGSTORES, "shards", "route"), "key=" + "0" * 32, GROUP, PUT),
        _usual("GET", (*LOGSTORES, "shards", "0"), "type=cursor&from=begin"),
        _usual("GET", (*LOGSTORES, "shards", "0"), "type=logs&cursor=MQ=="),
        _usual("POST", (*LOGSTORES, "shards", "0"), "action=split"),
        _usual("POST", (*LOGSTORES, "shards", "1"), "action=merge"),
        _usual("DELETE", (*LOGSTORES, "shards", "0")),
        _usual("POST", (*GROUPS, "g"), "type=heartbeat&consumer=c", b"[0]"),
        _usual("POST", (*GROUPS, "g"), "type=checkpoint&consumer=c", b'{"shard":0,"checkpoint":"NzE="}'),
        _usual("GET", EXTENSION),
        _usual("POST", (*EXTENSION, "leave"), "consumer=c"),
        _usual("POST", (*EXTENSION, "checkpoints"), "consumer=c", b'{"0":"NzE="}'),
        _usual("GET", (*EXTENSION, "revision"), "consumer=c&poll=p&wait_ms=1&revision=1"),
        _usual("POST", OF_CONSUMERS[-1], "poll=p&wait_ms=1", b'{"0":""}'),
        _usual("PUT", (*GROUPS, "g"), body=b'{"order":true}'),
        _usual("DELETE", (*GROUPS, "g")),
        _usual("DELETE", LOGSTORES),
        _usual("POST", ("logstores",), body=b'{"logstoreName":"copy","shardCount":3}'),
    ]
)
requests = st.one_of(usual, anything)
