"""The context of a consumer's messages in each of its threads: project, logstore and group.

A program may have many consumers, and one with several logstores has one for each, so no message may leave
this open. structlog's context variables carry it: a thread inherits them from the thread that makes it, and
`loghub_consumer.settings` adds them to each message.
"""

import contextvars
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import ParamSpec, TypeVar

from structlog.contextvars import bound_contextvars

from loghub_consumer.errors import text_of

P = ParamSpec("P")
R = TypeVar("R")


def about(*, project: str, logstore: str, group: str) -> AbstractContextManager[None]:
    """Within it, messages name these, except empty ones."""
    named = {"project": project, "logstore": logstore, "group": group}
    return bound_contextvars(**{name: value for name, value in named.items() if value})


def inherited(target: Callable[P, R]) -> Callable[P, R]:
    """The same function, for one thread at a time, whose messages have the context of the calling thread."""
    context = contextvars.copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return context.run(target, *args, **kwargs)

    return run


def log_error(write: Callable[..., object], event: str, error: BaseException, **fields: object) -> None:
    """Logs an error of user code with its traceback; ``write`` is a logger's method for the level.

    The program chooses what renders messages, and a renderer may fail at such an error, for example where its
    ``__str__`` raises. Then the message has the error's text alone: no message ends a consumer.
    """
    try:
        write(event, **fields, exc_info=error)
    except Exception:  # noqa: BLE001 - of a renderer, which the program chooses
        write(event, **fields, error=f"{type(error).__name__}: {text_of(error)}")
