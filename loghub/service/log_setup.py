"""How the service's log lines look: JSON for machines, one readable line for people.

What for: one configuration, on stderr. What it must not know: what is logged. Read next:
`loghub.service.group_registry` (a line for each shard state change).
"""

import logging
import sys

import structlog


def configure(log_format: str) -> None:
    """``json`` or ``console``; no line ever holds a secret or log data."""
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
