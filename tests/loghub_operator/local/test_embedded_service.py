"""The embedded service on this machine: found, started, and never confused with another one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from loghub_operator.local.embedded_service import EmbeddedService
from loghub_operator.local.paths import Root
from tests.support import running_service


@contextlib.asynccontextmanager
async def ensured(root: Root) -> AsyncIterator[EmbeddedService]:
    service = EmbeddedService(root)
    try:
        await service.ensure()
        yield service
    finally:
        await service.end()


def test_another_service_on_the_recorded_port_is_not_used(tmp_path: Path) -> None:
    async def story() -> None:
        root = Root(tmp_path / "state")
        async with ensured(root) as first:
            assert first.ours
        with running_service(tmp_path / "other") as other:
            (root.service / "address").write_text(f"127.0.0.1:{other.port}\n")
            async with ensured(root) as again:
                assert again.ours
                assert again.endpoint != other.endpoint

    asyncio.run(story())


def test_two_processes_share_one_service(tmp_path: Path) -> None:
    async def story() -> None:
        root = Root(tmp_path / "state")
        both = (EmbeddedService(root), EmbeddedService(root))
        try:
            await asyncio.gather(*(one.ensure() for one in both))
            assert sorted(one.ours for one in both) == [False, True]
            assert both[0].endpoint == both[1].endpoint
            assert f"http://{(root.service / 'address').read_text().strip()}" == both[0].endpoint
        finally:
            for one in both:
                await one.end()

    asyncio.run(story())
