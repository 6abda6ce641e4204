"""KEDA's own generated client, compiled from its Go module, queries our server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from loghub_operator.autoscaling.keda import serving_keda
from tests.cluster.fixtures import keda_client  # noqa: F401 - a fixture
from tests.loghub_operator.support.group_metrics import readings, store

GUARD_S = 120.0


@asynccontextmanager
async def request(program: Path, *message: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The client, until its standard input is closed."""
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(str(program), *message, stdin=pipe, stdout=pipe)
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def line(running: asyncio.subprocess.Process) -> list[object]:
    assert running.stdout is not None
    reported = json.loads(await running.stdout.readline())
    return [reported["call"], reported.get("value", reported.get("code"))]


def test_keda_reads_metrics_and_receives_pushes(keda_client: Path) -> None:  # noqa: F811
    async def story() -> None:
        on = store(readings(lag_groups=0))
        message = (
            "shop",
            "loghub_lag_seconds",
            "consumerGroup=access",
            "metric=lagSeconds",
            "targetValue=2.5",
        )
        async with (
            asyncio.timeout(GUARD_S),
            serving_keda("127.0.0.1:0", on) as address,
            request(keda_client, address, *message) as running,
        ):
            assert await line(running) == ["IsActive", False]
            assert await line(running) == ["GetMetricSpec", ["loghub_lag_seconds", 3, 2.5]]
            assert await line(running) == ["GetMetrics", ["loghub_lag_seconds", 43, 42.25]]
            assert await line(running) == ["StreamIsActive", False]
            on.update(readings(lag_groups=1), ())
            assert await line(running) == ["StreamIsActive", True]
            assert running.stdin is not None
            running.stdin.close()
            assert await line(running) == ["StreamIsActive", "Canceled"]
            assert await running.wait() == 0

    asyncio.run(story())


def test_keda_receives_errors_by_their_codes(keda_client: Path) -> None:  # noqa: F811
    async def story() -> None:
        message = ("shop", "loghub_desired_workers", "consumerGroup=missing")
        async with (
            asyncio.timeout(GUARD_S),
            serving_keda("127.0.0.1:0", store()) as address,
            request(keda_client, address, *message) as running,
        ):
            assert await line(running) == ["IsActive", "NotFound"]
            assert await line(running) == ["GetMetricSpec", ["loghub_desired_workers", 1, 1]]
            assert await line(running) == ["GetMetrics", "NotFound"]
            assert await line(running) == ["StreamIsActive", "NotFound"]

    asyncio.run(story())
