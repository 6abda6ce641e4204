"""Signed requests over one plain connection: the test sees status, headers and bytes as sent.

Tests of the service use it because they must not share the code of `loghub.client`.
"""

import http.client
import json
import random
import select
import string
from dataclasses import dataclass
from email.utils import formatdate
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

from loghub.client.port import Credentials
from loghub.wire import compression, loggroup, signing
from loghub.wire import cursor as wire_cursor
from loghub.wire.compression import Compression
from tests.support import ServiceProcess

GUARD_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer as it came."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        """By its exact spelling, as Python's SDK looks it up."""
        return dict(self.headers)[name]

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json()["errorCode"])


class Refused(AssertionError):  # noqa: N818 - says what happened
    """An answer that is not 200 where one was expected."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"{reply.status} {reply.body!r}")
        self.reply = reply


def signed_headers(
    method: str,
    path: str,
    query: dict[str, str],
    *,
    body: bytes,
    headers: dict[str, str],
    key: Credentials,
    unix_s: float | None = None,
) -> dict[str, str]:
    """The usual headers of a request, replaced and completed by ``headers``; one of "" is left out. The
    request is signed unless Authorization is given."""
    result = {
        "Date": formatdate(unix_s, usegmt=True),
        "x-log-apiversion": "0.6.0",
        "x-log-bodyrawsize": str(len(body)),
        "x-log-signaturemethod": "hmac-sha1",
        "Content-Length": str(len(body)),
    }
    if body:
        result["Content-Type"] = "application/json"
        result["Content-MD5"] = signing.content_md5(body)
    result |= headers
    unsigned = result.get("Authorization") == ""
    result = {name: value for name, value in result.items() if value != ""}
    if unsigned:
        return result
    text = signing.string_to_sign(method=method, path=path, query=query.items(), headers=result)
    result.setdefault(
        "Authorization",
        signing.authorization(text, access_key_id=key.access_key_id, secret=key.access_key_secret),
    )
    return result


class RawClient:
    """One keep-alive connection for one project; not to be shared by threads."""

    def __init__(
        self, service: ServiceProcess, project: str = "demo", *, credentials: Credentials | None = None
    ) -> None:
        self.project = project
        self.host_header = f"{project}.127.0.0.1" if project else "127.0.0.1"
        self._credentials = credentials or service.credentials
        self.connection = http.client.HTTPConnection(service.host, service.port, timeout=GUARD_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def send(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        secret: str | None = None,
        target: str | None = None,
        chunked: bool = False,
    ) -> Reply:
        """Send and give the answer, whatever it is. A header of "" is not sent."""
        self.begin(
            method,
            path,
            query or {},
            body=body,
            headers=headers or {},
            secret=secret,
            target=target,
            chunked=chunked,
        )
        return self.end()

    def begin(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        *,
        body: bytes,
        headers: dict[str, str],
        secret: str | None = None,
        target: str | None = None,
        chunked: bool = False,
    ) -> None:
        """Send it without waiting for the answer."""
        key = self._credentials
        if secret is not None:
            key = Credentials(access_key_id=key.access_key_id, access_key_secret=secret)
        sent = signed_headers(
            method, path, query, body=body, headers={"Host": self.host_header} | headers, key=key
        )
        if target is None:
            target = path + ("?" + urlencode(query, quote_via=quote) if query else "")
        self.connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            self.connection.putheader(name, value)
        if chunked:
            self.connection.endheaders(iter([body[:5], body[5:]]), encode_chunked=True)
        else:
            self.connection.endheaders(body)

    def end(self) -> Reply:
        """The answer to what was begun."""
        response = self.connection.getresponse()
        return Reply(status=response.status, headers=response.getheaders(), body=response.read())

    def ok(self, method: str, path: str, query: dict[str, str] | None = None, **more: Any) -> Reply:
        reply = self.send(method, path, query, **more)
        if reply.status != 200:
            raise Refused(reply)
        return reply

    # The actions that many tests need

    def answered(self, *, within_s: float) -> bool:
        """Whether an answer to what was begun has come."""
        return bool(select.select([self.connection.sock], [], [], within_s)[0])

    def create(self, *, logstore: str = "access", shards: int = 1, ttl: int = 7) -> None:
        self.ok("POST", "/", body=json.dumps({"projectName": self.project}).encode())
        self.create_logstore(logstore, shards=shards, ttl=ttl)

    def create_logstore(self, logstore: str, *, shards: int = 1, ttl: int = 7) -> None:
        fields = {"logstoreName": logstore, "shardCount": shards, "ttl": ttl}
        self.ok("POST", "/logstores", body=json.dumps(fields).encode())

    def create_group(
        self, group: str = "g", *, timeout: int = 30, order: bool = False, ls: str = "access"
    ) -> None:
        fields = {"consumerGroup": group, "timeout": timeout, "order": order}
        self.ok("POST", f"/logstores/{ls}/consumergroups", body=json.dumps(fields).encode())

    def put(self, group: bytes, *, ls: str = "access", key: str | None = None) -> Reply:
        self.begin_put(group, ls=ls, key=key)
        return self.end()

    def begin_put(self, group: bytes, *, ls: str = "access", key: str | None = None) -> None:
        """Send it without waiting for the answer."""
        path = f"/logstores/{ls}/shards/" + ("lb" if key is None else "route")
        self.begin_put_at(path, {"key": key} if key else {}, group)

    def begin_put_at(self, path: str, query: dict[str, str], group: bytes) -> None:
        """The same on any path."""
        headers = {
            "Content-Type": "application/x-protobuf",
            "x-log-bodyrawsize": str(len(group)),
            "x-log-compresstype": "lz4",
        }
        body = compression.compress(group, Compression.LZ4)
        self.begin("POST", path, query, body=body, headers=headers)

    def cursor(self, position: str = "begin", *, shard: int = 0, ls: str = "access") -> str:
        reply = self.ok("GET", f"/logstores/{ls}/shards/{shard}", {"type": "cursor", "from": position})
        return str(reply.json()["cursor"])

    def pull(
        self, cursor: str, *, shard: int = 0, ls: str = "access", count: int = 1000, **query: str
    ) -> tuple[Reply, list[bytes]]:
        """The answer and its groups."""
        query = {"type": "logs", "cursor": cursor, "count": str(count)} | query
        reply = self.ok("GET", f"/logstores/{ls}/shards/{shard}", query, headers={"Accept-Encoding": "lz4"})
        size = int(reply.header("x-log-bodyrawsize"))
        raw = compression.decompress(reply.body, Compression.LZ4, raw_size=size, max_size=64 << 20)
        return reply, [bytes(group) for group in loggroup.split(raw)]

    def pull_all(self, *, shard: int = 0, ls: str = "access") -> list[bytes]:
        """Every group of a shard, oldest first."""
        cursor, groups = self.cursor(shard=shard, ls=ls), []
        while True:
            reply, more = self.pull(cursor, shard=shard, ls=ls)
            groups += more
            if not more:
                return groups
            cursor = reply.header("x-log-cursor")

    def heartbeat(self, consumer: str, held: list[int], *, group: str = "g", ls: str = "access") -> list[int]:
        query = {"type": "heartbeat", "consumer": consumer}
        body = json.dumps(held).encode()
        answer = self.ok("POST", f"/logstores/{ls}/consumergroups/{group}", query, body=body).json()
        assert isinstance(answer, list)
        return answer

    def checkpoint(
        self, shard: int, cursor: int, *, consumer: str, force: str = "false", ls: str = "access"
    ) -> Reply:
        self.begin_checkpoint(shard, cursor, consumer=consumer, force=force, ls=ls)
        return self.end()

    def begin_checkpoint(
        self, shard: int, cursor: int, *, consumer: str, force: str = "false", ls: str = "access"
    ) -> None:
        """Send it without waiting for the answer."""
        body = json.dumps({"shard": shard, "checkpoint": wire_cursor.encode(cursor)}).encode()
        query = {"type": "checkpoint", "consumer": consumer, "forceSuccess": force}
        self.begin("POST", f"/logstores/{ls}/consumergroups/g", query, body=body, headers={})

    def status(self, *, group: str = "g", ls: str = "access") -> Any:
        return self.ok("GET", f"/_loghub/v1/logstores/{ls}/consumergroups/{group}").json()


def noise(size: int) -> str:
    """Letters that no compression makes much shorter, for tests in which the stored bytes count."""
    return "".join(random.Random(size).choices(string.ascii_letters + string.digits, k=size))


def group_of(*lines: str, topic: str = "t") -> bytes:
    """A log group with one log for each line."""
    logs = tuple(
        loggroup.Log(time=1_700_000_000 + n, contents=(("line", line),)) for n, line in enumerate(lines)
    )
    return loggroup.encode(loggroup.LogGroup(logs=logs, topic=topic))
