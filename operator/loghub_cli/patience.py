"""How long a command that runs for hours goes on: past an outage of the log service, and until it is
interrupted.

The client itself repeats a request twice within a second (`loghub.client.retry`). A command that runs for
hours must also outlive the restart of a service, so it goes on for a stated time, and says that it waits. The
first Ctrl-C or SIGTERM lets it finish what it does; the second Ctrl-C interrupts at once, as everywhere else.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import click

from loghub.backoff import backoff_s
from loghub.clock import Clock
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError


@contextmanager
def interruption() -> Iterator[threading.Event]:
    """Yields an event that the first Ctrl-C or SIGTERM sets."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


T = TypeVar("T")
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.5, 5.0
_BUSY = frozenset(
    {
        Code.SERVER_BUSY,
        Code.READ_QUOTA_EXCEED,
        Code.WRITE_QUOTA_EXCEED,
        Code.SHARD_READ_QUOTA_EXCEED,
        Code.SHARD_WRITE_QUOTA_EXCEED,
    }
)


class Patience:
    """Repeats a call for ``seconds`` after it first failed; ``stop`` ends the waiting."""

    def __init__(self, clock: Clock, *, seconds: float, stop: threading.Event) -> None:
        self._clock = clock
        self._seconds = seconds
        self._stop = stop

    def call(self, request: Callable[[], T], *, repeats_unsure: bool) -> T:
        """The result. ``repeats_unsure``: also repeat a call of which it is not known whether it was done.
        Raises the last error."""
        give_up: float | None = None
        failures = 0
        while True:
            try:
                return request()
            except (LogHubError, EndpointUnreachable) as error:
                failures += 1
                now = self._clock.monotonic_s()
                give_up = now + self._seconds if give_up is None else give_up
                if not _passes(error, repeats_unsure) or now >= give_up:
                    raise
                if failures == 1:
                    click.echo(f"loghub: {error}; it is tried again for {self._seconds:g} s", err=True)
                pause_s = backoff_s(failures, first_s=_FIRST_PAUSE_S, max_s=_MAX_PAUSE_S)
                if self._stop.wait(min(pause_s, give_up - now)):
                    raise


def _passes(error: LogHubError | EndpointUnreachable, repeats_unsure: bool) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, EndpointUnreachable):
        return error.definite or repeats_unsure
    return error.code in _BUSY or (repeats_unsure and error.status >= 500)
