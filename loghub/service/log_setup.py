"""The service's log configuration: JSON or readable lines, on stderr."""

import logging
import sys

import structlog


def configure(log_format: str) -> None:
    """Configure the format ``json`` or ``console``. Callers never log secrets or log data."""
    renderer = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Its warnings are about single requests: a client could fill the log with malformed ones.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
