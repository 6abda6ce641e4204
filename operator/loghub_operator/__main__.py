"""``python -m loghub_operator``: runs the operator in a cluster.

The program reads its settings from the environment (`loghub_operator.settings`), configures logging, and
runs `loghub_operator.controller.app` until SIGTERM or SIGINT.
"""

import asyncio
import logging
import os
import signal
import sys

import structlog

from loghub_operator.controller.app import run
from loghub_operator.settings import Settings


async def _main(settings: Settings) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run(settings, stop)


def main() -> int:
    """Returns exit status 0 after SIGTERM, 2 for invalid settings."""
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
