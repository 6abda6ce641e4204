"""Where the messages of a consumer go in a program that is not ours: to Python's `logging`.

The modules log through structlog, whose default prints on standard output. A program that uses structlog has
configured it, and is left alone.
"""

from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import structlog

from loghub_worker.consumer.settings import ConsumerSettings
from loghub_worker.log_context import about

P = ParamSpec("P")
S = TypeVar("S")

_FIELDS = structlog.processors.LogfmtRenderer(key_order=["project", "logstore", "group"], drop_missing=True)
_OF_LOGGING = ("exc_info", "stack_info")  # logging renders them below the message, with line breaks


def log_to_logging() -> None:
    """Send messages to the loggers ``loghub_worker.*``, unless structlog is configured."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            _to_logging,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _to_logging(
    logger: Any, method: str, event_dict: MutableMapping[str, Any]
) -> tuple[tuple[str], dict[str, Any]]:
    """The arguments of `logging`: the text with the fields after it, and the exception as it is."""
    kept = {name: event_dict.pop(name) for name in _OF_LOGGING if name in event_dict}
    event = event_dict.pop("event")
    fields = {name: value if isinstance(value, str) else repr(value) for name, value in event_dict.items()}
    return (f"{event} {_FIELDS(logger, method, fields)}".rstrip(),), kept


def about_consumer(settings: ConsumerSettings) -> AbstractContextManager[None]:
    """Within it, messages name what this consumer reads."""
    return about(project=settings.project, logstore=settings.logstore, group=settings.consumer_group)


def logs_as_consumer(
    init: Callable[Concatenate[S, ConsumerSettings, P], None],
) -> Callable[Concatenate[S, ConsumerSettings, P], None]:
    """For an ``__init__`` that gets the settings first: so do the threads that it makes."""

    @wraps(init)
    def named(self: S, settings: ConsumerSettings, /, *args: P.args, **kwargs: P.kwargs) -> None:
        with about_consumer(settings):
            init(self, settings, *args, **kwargs)

    return named
