"""The embedded service on this machine: found, started, and never confused with another one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from loghub.client.credentials_dir import read_key
from loghub.client.http import HttpLogHub
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_cli.up.embedded_service import EmbeddedService
from loghub_cli.up.paths import Root
from tests.loghub_service import stable_storage
from tests.support import running_service


@contextlib.asynccontextmanager
async def ensured(root: Root, said: list[str]) -> AsyncIterator[EmbeddedService]:
    service = EmbeddedService(root, say=said.append)
    try:
        await service.ensure()
        yield service
    finally:
        await service.end()


@pytest.mark.long
def test_another_service_on_the_recorded_port_is_not_used(tmp_path: Path) -> None:
    async def story() -> None:
        root = Root(tmp_path / "state")
        async with ensured(root, []) as first:
            assert first.ours
        with running_service(tmp_path / "other") as other:
            (root.service / "address").write_text(f"127.0.0.1:{other.port}\n")
            async with ensured(root, []) as again:
                assert again.ours
                assert again.endpoint != other.endpoint

    asyncio.run(story())


@pytest.mark.long
def test_two_processes_share_one_service(tmp_path: Path) -> None:
    async def story() -> None:
        root = Root(tmp_path / "state")
        both = [EmbeddedService(root, say=print) for _ in range(2)]
        try:
            await asyncio.gather(*(one.ensure() for one in both))
            assert sorted(one.ours for one in both) == [False, True]
            assert both[0].endpoint == both[1].endpoint
            assert f"http://{(root.service / 'address').read_text().strip()}" == both[0].endpoint
        finally:
            for one in both:
                await one.end()

    asyncio.run(story())


@pytest.mark.long
def test_a_recovery_is_shown_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a second process, which must not start another service on the data meanwhile."""
    gate, library = tmp_path / "gate", stable_storage.build(tmp_path)
    said: list[list[str]] = [[], []]

    async def story() -> None:
        root = Root(tmp_path / "state")
        async with ensured(root, []) as service:
            _write_a_log_group(service)
        # From now on, the sync of the recovered log waits for the gate.
        monkeypatch.setenv("LD_PRELOAD", str(library))
        monkeypatch.setenv("STABLE_GATE", str(gate))
        monkeypatch.setenv("STABLE_GATED", ".seg")
        both = [EmbeddedService(root, say=lines.append) for lines in said]
        try:
            ensuring = [asyncio.create_task(both[0].ensure())]
            await _until(lambda: said[0])
            monkeypatch.delenv("LD_PRELOAD")
            ensuring.append(asyncio.create_task(both[1].ensure()))
            await asyncio.sleep(0)
            assert not any(task.done() for task in ensuring)
            gate.touch()
            await asyncio.gather(*ensuring)
            assert [one.ours for one in both] == [True, False]
            assert both[0].endpoint == both[1].endpoint
        finally:
            for one in both:
                await one.end()

    asyncio.run(story())
    assert said[0][0] == "the embedded log service is recovering 0 of 1 shards"


def _write_a_log_group(service: EmbeddedService) -> None:
    key = read_key(service.credentials_dir)
    with contextlib.closing(HttpLogHub(service.endpoint, "demo", credentials=key)) as client:
        client.create_project()
        client.create_logstore("access", shards=1)
        log = Log(time=1, contents=(("line", "hello"),))
        client.put_logs("access", encode(LogGroup(logs=(log,))))


async def _until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)
