"""``python -m loghub_operator``: runs the operator in a cluster.

The program reads its settings from the environment (`loghub_operator.settings`), configures logging, and
runs `loghub_operator.controller.app` until SIGTERM or SIGINT.
"""

import asyncio
import logging
import os
import signal
import sys
import threading

from loghub.extras import needs
from loghub_operator.settings import OperatorLogLevel, Settings

with needs("loghub-operator[controller]", "the operator"):
    import structlog

    from loghub_operator.controller.app import run

# The API server decodes JSON that is nested 10,000 levels deep, so any author of a pod template can store
# that. Each level takes up to three calls here: of the decoder, the encoder or a copy. With fewer, a list or
# a watch ends the process, and the next one too, for the groups of everybody.
DEEPEST_CALLS = 30_000
# 160 bytes of C's stack for each of them, twice; where stacks are unlimited, a thread's has 2 MiB only.
STACK_BYTES = 16 << 20


async def _main(settings: Settings) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run(settings, stop)


def _configure_logging(level: OperatorLogLevel) -> None:
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
        _configure_logging(OperatorLogLevel.ERROR)
        structlog.get_logger().error("settings not understood", error=str(error))
        return 2
    _configure_logging(settings.log_level)
    read_any_depth()
    asyncio.run(_main(settings))
    return 0


def read_any_depth() -> None:
    """Lets this process read every document that the API server stores."""
    sys.setrecursionlimit(DEEPEST_CALLS)
    threading.stack_size(STACK_BYTES)


if __name__ == "__main__":
    sys.exit(main())
