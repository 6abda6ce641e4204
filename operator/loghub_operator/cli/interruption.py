"""Ctrl-C and SIGTERM for commands that run until then: the first one lets the command finish what it does.

The second Ctrl-C interrupts at once, as everywhere else.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
