"""``python -m loghub_operator``: the operator in a cluster.

What for: the composition root; everything is made here and handed in. What it must not
know: any rule. Read next: `loghub_operator.settings` (the environment),
`loghub_operator.controller.handlers`, `loghub_operator.leader.elector` (which of several operators acts).
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
