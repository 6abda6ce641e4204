"""What a message of a consumer is about, in each of its threads: project, logstore and group.

A program may have many consumers, and one with several logstores has one for each, so no message may leave
this open. structlog's context variables carry it: a thread gets those of the thread that makes it, and
`loghub_consumer.settings` adds them to each message.
"""

import contextvars
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import ParamSpec, TypeVar

from structlog.contextvars import bound_contextvars

P = ParamSpec("P")
R = TypeVar("R")


def about(*, project: str, logstore: str, group: str) -> AbstractContextManager[None]:
    """Within it, messages name these, as far as they are not empty."""
    named = {"project": project, "logstore": logstore, "group": group}
    return bound_contextvars(**{name: value for name, value in named.items() if value})


def inherited(target: Callable[P, R]) -> Callable[P, R]:
    """The same function, for one thread at a time: its messages name what those of the calling thread
    name."""
    context = contextvars.copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return context.run(target, *args, **kwargs)

    return run
