"""PutLogs without ASGI: the same answers and effects as with it, also when something fails meanwhile."""

import asyncio
import errno
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given

from loghub.wire import compression, native, signing
from loghub.wire.compression import Compression
from loghub_service.http.routes import PUT_LOGS, find
from loghub_service.settings import Limits
from loghub_service.storage.group_commit import StorageFailed
from tests.loghub_service.http.puts import (
    GROUP,
    GUARD_S,
    Parsed,
    PutServer,
    answered,
    changed,
    held_appends,
    put,
    put_server,
)
from tests.loghub_service.inprocess import KEY
from tests.loghub_service.rawclient import group_of

BODY = compression.compress(GROUP, Compression.LZ4)
KEY_OF_SHARD = "8" + "0" * 31
ACCEPTED = b"HTTP/1.1 200 OK\r\ndate: ..\r\nx-log-requestid: ..\r\ncontent-length: 0\r\n\r\n"


def signed_by(key_id: str) -> bytes:
    return put().replace(b"LOG testKeyId", b"LOG " + key_id.encode())


USUAL = {
    "usual": put(),
    "a small group": put(group_of("a")),
    "without shards in the path": put(path="/logstores/access"),
    "a hash key": put(path="/logstores/access/shards/route", query=f"key={KEY_OF_SHARD}"),
    "keep-alive": put(end="Connection: Keep-Alive\r\n"),
    "headers that are not signed": put(end="x-log-date: a\r\nx-log-meta-a: b\r\nUser-Agent: c d\r\n"),
    "headers that are signed": put(headers={"x-log-zzz": "1", "X-Log-Aaa": "2", "x-acs-b": "3 4"}),
    "the hash of the body in small letters": put(headers={"Content-MD5": signing.content_md5(BODY).lower()}),
}
LEFT = {
    "another method": put().replace(b"POST", b"PUT", 1),
    "HTTP/1.0": put().replace(b"HTTP/1.1", b"HTTP/1.0"),
    "the last request": put(end="Connection: close\r\n"),
    "a wrong signature": put().replace(b"Authorization: LOG testKeyId:", b"Authorization: LOG testKeyId:x"),
    "an unknown key": put().replace(b"LOG testKeyId", b"LOG otherKeyId"),
    "a key that may only read": signed_by("reader"),
    "a key of another project": signed_by("elsewhere"),
    "a key that has expired": signed_by("old"),
    "a key with a token": signed_by("sts"),
    "an old date": put(headers={"Date": "Tue, 07 Nov 2023 22:13:20 GMT"}),
    "no time": put(headers={"Date": "today"}),
    "no date": put(headers={"Date": ""}),
    "a token": put(headers={"x-acs-security-token": "t"}),
    "the hash of another body": put(body=BODY).replace(BODY, bytes(len(BODY))),
    "the hash of something else": put(headers={"Content-MD5": signing.content_md5(b"else")}),
    "no such logstore": put(path="/logstores/other/shards/lb"),
    "no such project": put(headers={"Host": "other.127.0.0.1"}),
    "no project": put(headers={"Host": "127.0.0.1"}),
    "a shard": put(path="/logstores/access/shards/0"),
    "a key that is none": put(query="key=1"),
    "another parameter": put(query=f"kex={KEY_OF_SHARD}"),
    "a parameter twice": put(query=f"key={KEY_OF_SHARD}&key={KEY_OF_SHARD}"),
    "an escaped path": put(path="/logstores/%61ccess/shards/lb"),
    "a header twice": put(end="Host: demo.127.0.0.1\r\n"),
    "a signed header twice": put(headers={"x-log-a": "1"}, end="x-log-a: 2\r\n"),
    "a space behind a value": put(end="a: b \r\n"),
    "a value without a space before it": put(end="a:b\r\n"),
    "an empty value": put(end="a: \r\n"),
    "bytes in a value": put(end="a: \u00e9\r\n"),
    "a length and chunks": put(end="Transfer-Encoding: chunked\r\n"),
    "another length": put(headers={"Content-Length": str(len(BODY) - 1)}),
    "a mode": put(headers={"x-log-mode": "batch_group"}),
    "another version": put(headers={"x-log-apiversion": "0.4.0"}),
    "another type": put(headers={"Content-Type": "text/plain"}),
    "another compression": put(headers={"x-log-compresstype": "gzip"}),
    "zstd": put(body=compression.compress(GROUP, Compression.ZSTD), headers={"x-log-compresstype": "zstd"}),
    "no compression": put(body=GROUP, headers={"x-log-compresstype": ""}),
    "no size": put(headers={"x-log-bodyrawsize": ""}),
    "another size": put(headers={"x-log-bodyrawsize": str(len(GROUP) - 1)}),
    "a size that is too large": put(headers={"x-log-bodyrawsize": "999999999"}),
    "a size that is no number": put(headers={"x-log-bodyrawsize": "+5"}),
    "no group": put(b"\x0a"),
    "a group without logs": put(b"\x1a\x05topic"),
    "no body": put(body=b""),
    "too many headers": put(end="".join(f"x-{n}: 1\r\n" for n in range(120))),
    "too long a head": put(end=f"a: {'b' * (17 << 10)}\r\n"),
}
# Of these, what the application accepts.
STORED = {
    "HTTP/1.0",
    "the last request",
    "an escaped path",
    "a parameter twice",
    "a header twice",
    "a space behind a value",
    "a value without a space before it",
    "an empty value",
    "bytes in a value",
    "zstd",
    "no compression",
}


async def exchange_both_ways(running: PutServer, request: bytes) -> tuple[bytes, int]:
    """The answer, and how many groups are stored; the same with ASGI and without it."""
    groups = [running.stored()]
    answers = []
    for is_direct in (False, True):
        running.directly(is_direct)
        answers.append(await running.exchange(request))
        groups.append(running.stored())
    before, with_asgi, without = groups
    assert answers[0] == answers[1]
    assert with_asgi[len(before) :] == without[len(with_asgi) :]
    assert running.memory_in_use == 0
    return answers[0], len(with_asgi) - len(before)


def test_a_usual_put_has_the_same_answer_and_effect_without_asgi(tmp_path: Path) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d") as running:
            for named, request in USUAL.items():
                answer, stored = await exchange_both_ways(running, request)
                assert (answer, stored) == (ACCEPTED, 1), named
            assert running.counted.accepted == (len(USUAL) if native.is_installed else 0)

    asyncio.run(main())


def test_any_other_put_is_left_to_the_application(tmp_path: Path) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d") as running:
            for named, request in LEFT.items():
                answer, stored = await exchange_both_ways(running, request)
                assert running.counted.accepted == 0, named
                assert (stored == 1) == (named in STORED), (named, answer)

    asyncio.run(main())


def test_a_put_in_two_pieces_or_behind_another_one_is_left_to_the_application(tmp_path: Path) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d") as running:
            reader, writer = await running.connect()
            request = put()
            for cut in (1, 40, len(request) - len(BODY), len(request) - 1):
                for piece in (request[:cut], request[cut:]):
                    await running.deliver(writer, piece)
                assert await answered(reader) == ACCEPTED
            writer.write(request * 3)
            assert [await answered(reader) for _ in range(3)] == [ACCEPTED] * 3
            assert running.counted.accepted == 0
            writer.write(request)
            assert await answered(reader) == ACCEPTED
            assert running.counted.accepted == native.is_installed
            assert len(running.stored()) == 8

    asyncio.run(main())


ERRORS = (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), StorageFailed("gone"), OSError(errno.EIO, "odd"))


def test_a_failed_commit_has_the_same_answer_without_asgi(tmp_path: Path) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d") as running:
            with held_appends(running.engine) as held:
                for error in ERRORS:
                    answers = []
                    for is_direct in (False, True):
                        running.directly(is_direct)
                        answer = asyncio.create_task(running.exchange(put()))
                        (await held.next()).set_exception(error)
                        answers.append(await answer)
                    assert answers[0] == answers[1]
                    assert answers[0].startswith((b"HTTP/1.1 503", b"HTTP/1.1 500"))
                assert running.counted.accepted == len(ERRORS) * native.is_installed
                assert running.memory_in_use == 0

    asyncio.run(main())


def test_a_put_in_progress_counts_and_is_followed_by_the_next_request(tmp_path: Path) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d") as running:
            with held_appends(running.engine) as held:
                reader, writer = await running.connect()
                writer.write(put())
                first = await held.next()
                assert running.memory_in_use == len(BODY) + len(GROUP)
                assert not running.connection.may_go
                await running.deliver(writer, put())
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert held.begun.empty()
                first.set_result(1)
                assert await answered(reader) == ACCEPTED
                (await held.next()).set_result(2)
                assert await answered(reader) == ACCEPTED
                assert b'"status"' in await answered(reader)
                assert running.connection.may_go
                assert running.counted.accepted == native.is_installed

    asyncio.run(main())


def test_a_client_that_leaves_before_the_answer_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d") as running:
            with held_appends(running.engine) as held:
                _, writer = await running.connect()
                writer.write(put())
                appended = await held.next()
                writer.transport.abort()
                await running.until(lambda: not running.server.server_state.connections)
                appended.set_result(1)
                await running.until(lambda: running.memory_in_use == 0)
                assert running.server.connections.authenticated_count == 0

    asyncio.run(main())


def test_a_server_that_stops_answers_a_put_in_progress_and_closes_its_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d") as running:
            with held_appends(running.engine) as held:
                reader, writer = await running.connect()
                writer.write(put())
                appended = await held.next()
                running.server.should_exit = True
                await running.until(lambda: running.is_stopping)
                appended.set_result(1)
                closing = ACCEPTED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
                assert await answered(reader) == closing
                assert all(one.transport.is_closing() for one in running.server.server_state.connections)
                assert await reader.read() == b""

    asyncio.run(main())


def test_an_idle_connection_is_closed_after_a_put(tmp_path: Path) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d", keep_alive_s=0) as running:
            reader, writer = await running.connect()
            writer.write(put())
            assert await answered(reader) == ACCEPTED
            async with asyncio.timeout(GUARD_S):
                assert await reader.read() == b""

    asyncio.run(main())


@pytest.mark.parametrize(
    "limits", [Limits(body_bytes=len(BODY) - 1), Limits(raw_bytes=len(GROUP) - 1), Limits(head_bytes=300)]
)
def test_a_put_beyond_a_limit_is_refused(tmp_path: Path, limits: Limits) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d", limits=limits) as running:
            answer, stored = await exchange_both_ways(running, put())
            assert answer.startswith(b"HTTP/1.1 400")
            assert (stored, running.counted.accepted) == (0, 0)

    asyncio.run(main())


def test_a_put_beyond_the_budget_of_memory_or_to_a_shard_that_is_sealed_is_left_to_the_application(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with put_server(tmp_path / "d") as running:
            budget = running.app.budgets[0]
            budget.used = budget.limit - len(GROUP)
            answer = await running.exchange(put())
            assert answer.startswith(b"HTTP/1.1 503")
            budget.used = 0
            shard, sealed = (1, 0), asyncio.Event()
            running.engine.sealing[shard] = sealed
            waiting = asyncio.create_task(running.exchange(put()))
            await running.until(lambda: running.memory_in_use > 0)
            del running.engine.sealing[shard]
            sealed.set()
            assert await waiting == ACCEPTED
            assert running.counted.accepted == 0

    asyncio.run(main())


@given(changed(USUAL.values()))
def test_no_request_is_read_otherwise_than_by_the_parser_and_the_check_of_signatures(data: bytes) -> None:
    found = native.put_request(data, 100, 16 << 10)
    stored = None if found is None else found.stored(KEY.access_key_secret, 1000)
    if found is None or stored is None:
        return
    parsed = Parsed(data)
    assert parsed.is_signed
    head, headers = parsed.head, parsed.head.headers
    target = find(head)
    assert target is not None
    assert (target.name, target.arguments) == (PUT_LOGS, {"ls": found.logstore})
    assert (found.host, found.date) == (headers["host"], headers["date"])
    assert {"key": found.hash_key} == (head.query or {"key": None})
    assert hashlib.md5(parsed.body, usedforsecurity=False).hexdigest() == headers["content-md5"].lower()
    assert (found.body_bytes, found.raw_size) == (len(parsed.body), int(headers["x-log-bodyrawsize"]))
