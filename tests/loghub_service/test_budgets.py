"""Budgets of memory: what requests hold, what is refused, and that everything is given back."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from loghub.wire import compression, loggroup, signing
from loghub.wire.compression import Compression
from loghub_service.api import logs as put_logs
from loghub_service.http.protocol import AUTHENTICATED
from loghub_service.settings import MIB, Limits
from loghub_service.storage.group_commit import ThreadedBatches
from tests.loghub_service.inprocess import Exchange, InProcess, in_process
from tests.loghub_service.rawclient import Reply, group_of, noise

LB = "/logstores/access/shards/lb"
GROUP = "/logstores/access/consumergroups/g"
PROTOBUF = {"Content-Type": "application/x-protobuf"}
# Small, so that a test fills them quickly.
LIMITS = Limits(log_bytes=MIB, json_total_bytes=1 << 16, body_timeout_s=60)


def run(
    tmp_path: Path, scenario: Callable[[InProcess], Awaitable[None]], *, limits: Limits = LIMITS, **more: Any
) -> None:
    """Run the scenario; afterwards no memory may be in use."""

    async def main() -> None:
        async with in_process(tmp_path / "data", limits=limits, **more) as service:
            await scenario(service)
            assert set(service.memory_in_use) == {0}

    asyncio.run(main())


async def outcome(exchange: Exchange) -> str:
    """The code of a refusal, "" for a success."""
    reply = await exchange.reply()
    assert isinstance(reply, Reply)
    return "" if reply.status == 200 else reply.code


async def settle() -> None:
    """Let every task run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def assert_consumers_go_on(service: InProcess) -> None:
    heartbeat = await service.ok("POST", GROUP, {"type": "heartbeat", "consumer": "a"}, body=b"[]")
    assert heartbeat.json() == [0]
    checkpoint = {"type": "checkpoint", "consumer": "a"}
    await service.ok("POST", GROUP, checkpoint, body=b'{"shard":0,"checkpoint":"NzE="}')
    await service.ok("GET", "/logstores/access/shards")


def begin_put(service: InProcess, size: int) -> Exchange:
    """A body of which all but the last byte has arrived."""
    body = bytes(size)
    headers = PROTOBUF | {"Content-MD5": signing.content_md5(body)}
    return service.begin("POST", LB, body=body, headers=headers, arrive=[(body[:-1], True)])


def test_unfinished_bodies_of_putlogs_delay_no_heartbeat(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        unfinished = [begin_put(service, LIMITS.log_bytes // 4) for _ in range(4)]
        await settle()
        assert service.memory_in_use[0] == LIMITS.log_bytes - 4
        assert await outcome(begin_put(service, 100)) == "ServerBusy"
        await assert_consumers_go_on(service)
        for exchange in unfinished:
            exchange.arriving.put_nowait(None)
            assert await exchange.reply() is None

    run(tmp_path, scenario)


def test_unfinished_json_bodies_delay_no_heartbeat(tmp_path: Path) -> None:
    """Clients with a key can fill the budget of JSON, but what heartbeats need is not in it."""

    async def scenario(service: InProcess) -> None:
        body = b'{"x":"' + b"y" * (LIMITS.json_bytes - 8) + b'"}'
        unfinished = [service.begin("POST", "/logstores", body=body, arrive=[(body, True)]) for _ in range(2)]
        await settle()
        assert await outcome(unfinished[1]) == "ServerBusy"
        medium = b'{"logstoreName":"%s"}' % (b"x" * 9000)
        assert await outcome(service.begin("POST", "/logstores", body=medium)) == "ServerBusy"
        await assert_consumers_go_on(service)
        unfinished[0].arriving.put_nowait((b"", False))
        assert await outcome(unfinished[0]) == "ParameterInvalid"
        assert await outcome(service.begin("POST", "/logstores", body=medium)) == "ParameterInvalid"

    run(tmp_path, scenario, limits=Limits(json_total_bytes=62_000))


def test_bodies_are_not_read_beyond_their_limit(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        piece = bytes(1000)
        body = service.begin(
            "POST", "/logstores", headers={"Content-MD5": "0" * 32}, arrive=[(piece, True)] * 1000
        )
        assert await outcome(body) == "PostBodyTooLarge"
        assert body.asked == service.engine.settings.limits.json_bytes // len(piece) + 1

    run(tmp_path, scenario)


def test_a_body_without_its_hash_is_refused_at_its_first_byte(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        for declared in ("3", ""):  # chunked, if it is not declared
            headers = {"Content-MD5": "", "Content-Length": declared}
            body = service.begin("POST", "/logstores", headers=headers, arrive=[(b"{", True), (b"}", True)])
            assert await outcome(body) == "SignatureNotMatch"
            assert body.asked <= 1

    run(tmp_path, scenario)


@pytest.mark.parametrize("sent", [b"[]x", b"[", b"{}"])
def test_a_body_other_than_the_signed_one_is_refused(tmp_path: Path, sent: bytes) -> None:
    async def scenario(service: InProcess) -> None:
        query = {"type": "heartbeat", "consumer": "a"}
        body = service.begin("POST", GROUP, query, body=b"[]", arrive=[(sent, True), (b"", False)])
        assert await outcome(body) == "SignatureNotMatch"
        assert service.engine.groups.of(1)["g"].state.consumers == {}

    run(tmp_path, scenario)


def test_a_key_with_too_many_requests_in_progress_is_refused_before_its_body(tmp_path: Path) -> None:
    """The listener says so; clients repeat such a request."""

    async def scenario(service: InProcess) -> None:
        asked: list[str] = []

        async def crowded(scope: Any, receive: Any, send: Any) -> None:
            state = {AUTHENTICATED: asked.append}  # nothing is returned, which means no
            await service.app(scope | {"state": state}, receive, send)

        scope = service.scope("POST", LB, body=b"x", headers=PROTOBUF)
        exchange = service.begin_scope(scope, [], app=crowded)
        assert await outcome(exchange) == "ServerBusy"
        assert (asked, exchange.asked) == (["testKeyId"], 0)

    run(tmp_path, scenario)


def test_a_body_that_takes_too_long_is_refused(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        assert await outcome(begin_put(service, 100)) == "ServerBusy"
        assert await outcome(service.begin("POST", "/logstores", body=b"{}", arrive=[])) == "ServerBusy"

    run(tmp_path, scenario, limits=Limits(body_timeout_s=0.05, json_timeout_s=0.05))


class Gate:
    """Commits of log data wait until it is open."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.max_batch = 0

    def start_batches(self, *, name: str, commit: Any, **more: Any) -> ThreadedBatches[Any]:
        def gated(batch: Sequence[Any]) -> Sequence[object]:
            assert self.open.wait(180)
            self.max_batch = max(self.max_batch, sum(map(more["size"], batch)))
            return list(commit(batch))

        return ThreadedBatches(name=name, commit=gated if name == "log-commit" else commit, **more)


def _bomb(raw_bytes: int) -> tuple[bytes, dict[str, str]]:
    """A valid log group of this size, compressed to a hundredth or less, and the headers of its request."""
    logs = (loggroup.Log(time=1, contents=(("line", bytes(raw_bytes)),)),)
    raw = loggroup.encode(loggroup.LogGroup(logs=logs))
    headers = PROTOBUF | {"x-log-bodyrawsize": str(len(raw)), "x-log-compresstype": "lz4"}
    return compression.compress(raw, Compression.LZ4), headers


def test_decompressed_bytes_count_until_they_are_committed(tmp_path: Path) -> None:
    gate = Gate()
    body, headers = _bomb(LIMITS.log_bytes // 4)
    assert len(body) < LIMITS.log_bytes // 400

    async def scenario(service: InProcess) -> None:
        gate.open.clear()
        puts = [service.begin("POST", LB, body=body, headers=headers) for _ in range(3)]
        while service.engine.commits["logs"].waiting < 3:
            await asyncio.sleep(0.01)
        assert service.memory_in_use[0] > 3 * LIMITS.log_bytes // 4
        for _ in range(2):
            assert await outcome(service.begin("POST", LB, body=body, headers=headers)) == "ServerBusy"
        await assert_consumers_go_on(service)
        gate.open.set()
        assert [await outcome(put) for put in puts] == ["", "", ""]
        assert await outcome(service.begin("POST", LB, body=body, headers=headers)) == ""

    run(tmp_path, scenario, start_batches=gate.start_batches)


@pytest.mark.parametrize("announced", [0, 1, MIB // 2, 11 * MIB])
def test_a_wrong_announcement_of_the_size_is_refused_and_given_back(tmp_path: Path, announced: int) -> None:
    body, headers = _bomb(100_000)
    headers["x-log-bodyrawsize"] = str(announced)

    async def scenario(service: InProcess) -> None:
        expected = "PostBodyTooLarge" if announced > MIB else "PostBodyUncompressError"
        assert await outcome(service.begin("POST", LB, body=body, headers=headers)) == expected

    run(tmp_path, scenario)


def test_a_commit_writes_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    gate = Gate()
    group = group_of(noise(10_000))
    headers = PROTOBUF | {"x-log-bodyrawsize": str(len(group))}

    async def scenario(service: InProcess) -> None:
        gate.open.clear()
        puts = [service.begin("POST", LB, body=group, headers=headers) for _ in range(20)]
        while service.engine.commits["logs"].waiting < 20:
            await asyncio.sleep(0.01)
        gate.open.set()
        assert [await outcome(put) for put in puts] == [""] * 20
        assert len(group) < gate.max_batch <= 50_000

    run(tmp_path, scenario, limits=Limits(batch_bytes=50_000), start_batches=gate.start_batches)


@pytest.mark.long
def test_large_groups_are_checked_two_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a copy, and they compete for the interpreter with the event loop."""
    check, lock, running, maximum = put_logs.check_group, threading.Lock(), 0, 0

    def counted(*arguments: Any, **more: Any) -> put_logs.Checked:
        nonlocal running, maximum
        with lock:
            running += 1
            maximum = max(maximum, running)
        try:
            threading.Event().wait(0.05)  # long enough for others to begin
            return check(*arguments, **more)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(put_logs, "check_group", counted)
    group = group_of(noise(40_000))
    headers = PROTOBUF | {"x-log-bodyrawsize": str(len(group))}

    async def scenario(service: InProcess) -> None:
        puts = [service.begin("POST", LB, body=group, headers=headers) for _ in range(8)]
        assert [await outcome(put) for put in puts] == [""] * 8

    run(tmp_path, scenario)
    assert maximum == 2
