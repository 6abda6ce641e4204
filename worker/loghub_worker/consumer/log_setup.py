"""Where the messages of a consumer go in a program that is not ours: to Python's `logging`.

The modules log through structlog, whose default prints on standard output. A program that uses structlog has
configured it, and is left alone.
"""

import structlog


def log_to_logging() -> None:
    """Send messages to the loggers ``loghub_worker.*``, unless structlog is configured."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
