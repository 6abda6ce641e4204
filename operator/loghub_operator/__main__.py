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
from loghub_operator.settings import LogLevel, Settings


async def _main(settings: Settings) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run(settings, stop)


def _configure_logging(level: LogLevel) -> None:
    """The libraries report only what is wrong."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(number),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr)


def main() -> int:
    """Returns exit status 0 after SIGTERM, 2 for invalid settings."""
    try:
        settings = Settings.from_environment(os.environ)
    except ValueError as error:
        _configure_logging(LogLevel.ERROR)
        structlog.get_logger().error("settings not understood", error=str(error))
        return 2
    _configure_logging(settings.log_level)
    asyncio.run(_main(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
