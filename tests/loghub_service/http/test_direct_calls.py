"""Heartbeats, checkpoints and GetCursor without ASGI: the same answers, effects and metrics as with it, also
when something fails meanwhile."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from prometheus_client import generate_latest

from loghub.domain.group import GroupState
from loghub.wire import cursor, native
from loghub_service.http.protocol import BoundedProtocol
from loghub_service.http.routes import GET_CURSOR, HEARTBEAT, UPDATE_CHECKPOINT, find
from loghub_service.settings import Limits
from loghub_service.storage.group_commit import StorageFailed
from tests.loghub_service.http.puts import (
    GUARD_S,
    Parsed,
    PutServer,
    answered,
    changed,
    held_steps,
    put_server,
    signed,
)
from tests.loghub_service.inprocess import KEY

GROUP, SHARD = "/logstores/access/consumergroups/g", "/logstores/access/shards/0"


def beat(
    body: bytes = b"[]",
    *,
    path: str = GROUP,
    query: str = "type=heartbeat&consumer=c1",
    headers: dict[str, str] | None = None,
    end: str = "",
) -> bytes:
    return signed("POST", path, query, body=body, headers=headers, end=end)


def save(
    text: str = "",
    query: str = "type=checkpoint&consumer=c1",
    *,
    at: int = 1,
    headers: dict[str, str] | None = None,
) -> bytes:
    text = text or json.dumps({"shard": 0, "checkpoint": cursor.encode(at)})
    return signed("POST", GROUP, query, body=text.encode(), headers=headers)


def cursor_at(
    position: str = "end",
    *,
    path: str = SHARD,
    headers: dict[str, str] | None = None,
    end: str = "",
) -> bytes:
    return signed("GET", path, f"type=cursor&from={position}", headers=headers, end=end)


def signed_by(key_id: str, request: bytes) -> bytes:
    return request.replace(b"LOG testKeyId", b"LOG " + key_id.encode())


USUAL = {
    "a consumer that joins": beat(),
    "a consumer without shards": beat(),
    "one with a shard": beat(b"[0]"),
    "shards that do not exist": beat(b"[0, 7, 7]"),
    "no body": beat(b""),
    "another consumer": beat(query="consumer=c-2.x_y~z&type=heartbeat"),
    "keep-alive": beat(end="Connection: Keep-Alive\r\n"),
    "headers that are signed": beat(headers={"x-log-zzz": "1", "x-acs-b": "3 4"}),
    "a key that may only read": signed_by("reader", beat()),
    "a checkpoint": save(),
    "the same again": save(),
    "a forced one of nobody": save(query="type=checkpoint&forceSuccess=true"),
    "a forced one of another": save(query="consumer=c9&forceSuccess=True&type=checkpoint"),
    "the end": cursor_at(),
    "the begin": cursor_at("begin"),
    "a time": cursor_at("1600000000"),
    "a time to come": cursor_at("1900000000"),
    "a length of nothing": cursor_at(headers={"Content-Length": "0"}),
}
LEFT = {
    "another method": beat().replace(b"POST", b"PUT", 1),
    "HTTP/1.0": cursor_at().replace(b"HTTP/1.1", b"HTTP/1.0"),
    "the last request": beat(end="Connection: close\r\n"),
    "a wrong signature": cursor_at().replace(b"LOG testKeyId:", b"LOG testKeyId:x"),
    "an unknown key": signed_by("otherKeyId", beat()),
    "a key that may only write": signed_by("writer", beat()),
    "a key of another project": signed_by("elsewhere", cursor_at()),
    "a key that has expired": signed_by("old", cursor_at()),
    "a key with a token": signed_by("sts", save()),
    "an old date": beat(headers={"Date": "Tue, 07 Nov 2023 22:13:20 GMT"}),
    "no date": cursor_at(headers={"Date": ""}),
    "the hash of another body": beat(b"[1]").replace(b"[1]", b"[2]"),
    "no hash": beat(b"[1]", headers={"Content-MD5": ""}),
    "a hash of nothing": beat(b"", headers={"Content-MD5": "0" * 32}),
    "a body that no one expects": cursor_at(end="Content-Length: 2\r\n") + b"{}",
    "chunks": beat(headers={"Content-Length": "", "Transfer-Encoding": "chunked"}),
    "no such project": beat(headers={"Host": "other.127.0.0.1"}),
    "no project": cursor_at(headers={"Host": "127.0.0.1"}),
    "no such logstore": beat(path="/logstores/other/consumergroups/g"),
    "no such group": beat(path="/logstores/access/consumergroups/h"),
    "no such shard": cursor_at(path="/logstores/access/shards/7"),
    "a shard that is no number": cursor_at(path="/logstores/access/shards/x"),
    "an escaped path": cursor_at(path="/logstores/%61ccess/shards/0"),
    "an escaped parameter": beat(query="type=heartbeat&consumer=a%3Ab"),
    "a parameter twice": beat(query="type=heartbeat&consumer=c1&consumer=c1"),
    "an empty parameter": beat(query="type=heartbeat&consumer="),
    "many parameters": beat(query="a=1&b=2&consumer=c1&d=3&type=heartbeat"),
    "another type": beat(query="type=other&consumer=c1"),
    "no type": beat(query="consumer=c1"),
    "no consumer": beat(query="type=heartbeat"),
    "a header twice": beat(end="Host: demo.127.0.0.1\r\n"),
    "bytes in a value": beat(end="a: \u00e9\r\n"),
    "no array": beat(b"{}"),
    "no JSON": beat(b"[0"),
    "a deep array": beat(b"[" * 3000),
    "an unknown consumer with shards": beat(b"[0]", query="type=heartbeat&consumer=new"),
    "a checkpoint of another": save(query="type=checkpoint&consumer=c9"),
    "a checkpoint of nobody": save(query="type=checkpoint"),
    "a checkpoint of no shard": save('{"shard":9,"checkpoint":"MQ=="}', headers={"User-Agent": "sls-java"}),
    "a checkpoint beyond the end": save(at=cursor.MAX_CURSOR),
    "a checkpoint that is none": save('{"shard":0,"checkpoint":7}'),
    "a body that is no object": save("[]"),
    "no position": cursor_at("later"),
    "the time of a cursor": signed("GET", SHARD, "type=cursor_time&cursor=MQ"),
    "too many headers": beat(end="".join(f"x-{n}: 1\r\n" for n in range(120))),
    "too long a head": cursor_at(end=f"a: {'b' * (17 << 10)}\r\n"),
    "a long body": beat(b"[" + b" " * (5 << 10) + b"]"),
}


def counted(running: PutServer) -> list[str]:
    """What the service counts of requests."""
    text = generate_latest(running.service.metrics.registry).decode()
    return [line for line in text.splitlines() if "_requests_" in line or "_bytes_total" in line]


def state_of(running: PutServer) -> GroupState:
    return running.engine.groups.of(1)["g"].state


def test_usual_requests_have_the_same_answers_and_effects_without_asgi_and_all_others_need_it(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "a") as direct, put_server(tmp_path / "b") as asgi:
            asgi.directly(False)
            for named, request in (USUAL | LEFT).items():
                before = direct.counted.calls
                answers = [await direct.exchange(request), await asgi.exchange(request)]
                assert answers[0] == answers[1], named
                assert state_of(direct) == state_of(asgi), named
                assert counted(direct) == counted(asgi), named
                assert (b" 200 OK" in answers[0]) or named in LEFT, (named, answers[0])
                is_direct = native.is_installed and named in USUAL
                assert direct.counted.calls - before == is_direct, named

    asyncio.run(main())


ACCEPTED = b"HTTP/1.1 200 OK\r\ndate: ..\r\nx-log-requestid: ..\r\ncontent-length: %d\r\n"
NO_SHARDS = ACCEPTED % 2 + b"content-type: application/json\r\n\r\n[]"
SAVED = ACCEPTED % 0 + b"\r\n"
LONG = b"[" + b" " * 100 + b"]"
UNKNOWN = beat(query="type=heartbeat&consumer=c2")  # of a consumer that gets no shard


def test_a_call_in_two_pieces_or_behind_another_one_is_left_to_the_application(tmp_path: Path) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d") as running:
            await running.exchange(beat())
            served = running.counted.calls
            reader, writer = await running.connect()
            for cut in (1, 40, len(UNKNOWN) - 2, len(UNKNOWN) - 1):
                for piece in (UNKNOWN[:cut], UNKNOWN[cut:]):
                    await running.deliver(writer, piece)
                assert await answered(reader) == NO_SHARDS
            writer.write(UNKNOWN * 3)
            assert [await answered(reader) for _ in range(3)] == [NO_SHARDS] * 3
            assert running.counted.calls == served
            for _ in range(2):
                writer.write(UNKNOWN)
                assert await answered(reader) == NO_SHARDS
            assert running.counted.calls - served == 2 * native.is_installed
            writer.write(beat())
            assert (await answered(reader)).endswith(b"[0]")

    asyncio.run(main())


def test_a_checkpoint_in_progress_counts_and_is_followed_by_the_next_request(tmp_path: Path) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d") as running:
            reader, writer = await running.connect()
            writer.write(beat())
            await answered(reader)
            with held_steps(running.engine) as held:
                writer.write(save())
                first = await held.next()
                await running.until(lambda: not running.connection.may_go)
                await running.deliver(writer, UNKNOWN)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                first.set_result(1)
                assert await answered(reader) == SAVED
                assert await answered(reader) == NO_SHARDS
                assert b'"status"' in await answered(reader)
                assert running.connection.may_go

    asyncio.run(main())


def test_a_failed_commit_has_the_same_answer_without_asgi(tmp_path: Path) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d") as running:
            await running.exchange(beat())
            served = running.counted.calls
            with held_steps(running.engine) as held:
                answers = []
                for is_direct in (True, False):
                    running.directly(is_direct)
                    answer = asyncio.create_task(running.exchange(save(at=1 + is_direct)))
                    (await held.next()).set_exception(StorageFailed("gone"))
                    answers.append(await answer)
                assert answers[0] == answers[1]
                assert answers[0].startswith(b"HTTP/1.1 500")
                assert running.counted.calls - served == native.is_installed

    asyncio.run(main())


def test_a_client_that_leaves_and_a_server_that_stops_end_a_checkpoint_in_progress(tmp_path: Path) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d") as running:
            await running.exchange(beat())
            with held_steps(running.engine) as held:
                _, leaving = await running.connect()
                leaving.write(save())
                left = await held.next()
                leaving.transport.abort()
                reader, writer = await running.connect()
                writer.write(save(query="type=checkpoint&forceSuccess=true"))
                saved = await held.next()
                await running.until(lambda: len(running.server.server_state.connections) == 2)
                left.set_result(1)
                running.server.should_exit = True
                await running.until(lambda: running.is_stopping)
                saved.set_result(1)
                closing = SAVED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
                assert await answered(reader) == closing
                assert await reader.read() == b""

    asyncio.run(main())


def test_an_idle_connection_is_closed_after_a_call(tmp_path: Path) -> None:
    limits = Limits(head_timeout_s=2 * GUARD_S)  # from the connection on

    async def main() -> None:
        async with put_server(tmp_path / "d", limits=limits, keep_alive_s=0) as running:
            reader, writer = await running.connect()
            writer.write(cursor_at())
            assert b" 200 OK" in await answered(reader)
            async with asyncio.timeout(GUARD_S):
                assert await reader.read() == b""

    asyncio.run(main())


@pytest.mark.parametrize(
    ("limits", "request_", "status"),
    [
        (Limits(json_bytes=len(LONG) - 1), beat(LONG), 400),
        (Limits(json_free_bytes=len(LONG) - 2, json_total_bytes=1), beat(LONG), 503),
        (Limits(head_bytes=300), beat(), 400),
        (Limits(response_bytes=1), cursor_at(), 503),
        (Limits(consumers_per_group=0), beat(), 403),
    ],
)
def test_a_call_beyond_a_limit_has_the_same_answer_without_asgi(
    tmp_path: Path, limits: Limits, request_: bytes, status: int
) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d", limits=limits) as running:
            answers = []
            for is_direct in (True, False):
                running.directly(is_direct)
                answers.append(await running.exchange(request_))
            assert answers[0] == answers[1]
            assert answers[0].startswith(b"HTTP/1.1 %d" % status)

    asyncio.run(main())


def test_one_request_too_many_of_a_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(BoundedProtocol, "authenticated", lambda *_: False)
        async with put_server(tmp_path / "d") as running:
            assert (await running.exchange(cursor_at())).startswith(b"HTTP/1.1 503")
            assert (running.counted.calls, running.counted.accepted) == (0, 0)

    asyncio.run(main())


NAMES = {
    ("POST", "heartbeat"): HEARTBEAT,
    ("POST", "checkpoint"): UPDATE_CHECKPOINT,
    ("GET", "cursor"): GET_CURSOR,
}


@given(changed(USUAL.values()))
def test_no_call_is_read_otherwise_than_by_the_parser_and_the_check_of_signatures(data: bytes) -> None:
    found = native.call_request(data, 100, 16 << 10)
    if found is None or not found.is_signed(KEY.access_key_secret):
        return
    parsed = Parsed(data)
    assert parsed.is_signed
    head, headers = parsed.head, parsed.head.headers
    target = find(head)
    assert target is not None
    assert target.name == NAMES[found.method, found.query["type"]]
    assert (found.method, found.path, found.parts) == (head.method, head.path, head.parts)
    assert tuple(target.arguments.values()) == (found.parts[1], found.parts[3])
    assert (found.host, found.date, found.query) == (headers["host"], headers["date"], head.query)
    assert found.body == parsed.body
    digest = hashlib.md5(found.body, usedforsecurity=False).hexdigest() if found.body else ""
    assert digest == headers.get("content-md5", "").lower()
