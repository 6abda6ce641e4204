"""What a request comes to: a response, and what to do once the client has it."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from msgspec import Struct


def nothing() -> None:
    """Nothing is held for the answer."""


class Reply(NamedTuple):
    """``response`` None means that none is sent. ``sent`` gives back what the answer occupied."""

    response: Struct | None
    sent: Callable[[], None] = nothing


# Completes a request that was begun; called at most once.
Finish = Callable[[], Awaitable[Reply]]
