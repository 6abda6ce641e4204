"""``python -m loghub_operator``: the operator in a cluster.

What for: the composition root; everything is made here and handed in. What it must not
know: any rule. Read next: `loghub_operator.settings` (the environment),
`loghub_operator.handlers`.
"""

import asyncio
import logging
import os
import signal
import sys

import kopf
import structlog

from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials, LogHub
from loghub.client.transport import Timeouts
from loghub.clock import SystemClock
from loghub_operator import handlers
from loghub_operator.apply import Executor
from loghub_operator.hubs import Connect, Hubs
from loghub_operator.kube import AioKube, configured
from loghub_operator.observe import Observer
from loghub_operator.reconcile import Reconciler
from loghub_operator.settings import Settings

# One slow endpoint holds one of the threads for so long at most.
TIMEOUTS = Timeouts(connect_s=3.0, read_s=5.0, total_s=10.0)


def connect(endpoint: str, project: str, credentials: Credentials) -> LogHub:
    """Our own adapter; it takes both kinds of endpoint."""
    return HttpLogHub(endpoint, project, credentials=credentials, agent="loghub-operator", timeouts=TIMEOUTS)


async def run(settings: Settings, stop: asyncio.Event, *, connect: Connect = connect) -> None:
    """Until ``stop`` is set."""
    clock, hubs = SystemClock(), Hubs(connect)
    async with AioKube(await configured()) as kube:
        observer = Observer(kube=kube, hubs=hubs, settings=settings, clock=clock)
        executor = Executor(kube=kube, hubs=hubs, observer=observer, settings=settings, clock=clock)
        reconciler = Reconciler(
            kube=kube, observer=observer, executor=executor, clock=clock, resync_s=settings.resync_s
        )
        try:
            await _watch(settings, reconciler, stop)
        finally:
            await reconciler.close()
            hubs.close()


async def _watch(settings: Settings, reconciler: Reconciler, stop: asyncio.Event) -> None:
    registry = kopf.OperatorRegistry()
    handlers.register(registry)
    address = settings.liveness_address
    await kopf.operator(
        registry=registry,
        settings=handlers.settings(),
        memo=kopf.Memo(reconciler=reconciler),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=f"http://{address}/healthz" if address else None,
        stop_flag=stop,
    )


async def _main(settings: Settings) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run(settings, stop)


def main() -> int:
    """Exit status 0 after SIGTERM, 2 for settings that make no sense."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        settings = Settings.from_environment(os.environ)
    except ValueError as error:
        structlog.get_logger().error("settings not understood", error=str(error))
        return 2
    asyncio.run(_main(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
