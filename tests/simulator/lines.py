"""Stops a thread at one line of production code, so that what comes at the wrong moment comes then.

A schedule that is drawn by chance rarely stops a thread just where that matters; a test that goes through all
lines does so each time.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import patch

from tests.simulator.threads import SimThread, Threads

STOPPED_S = 1.0  # of virtual time, in which all others do what they have to do


class Lines:
    """The lines of some modules, in the order in which threads come to them."""

    def __init__(self, threads: Threads, *modules: ModuleType) -> None:
        self._threads = threads
        self._files = {module.__file__ for module in modules}
        self._left = -1
        self.stopped_at = ""  # the line

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Through all threads that begin within it."""
        before, run = sys.gettrace(), SimThread._run

        def traced(thread: SimThread) -> None:
            sys.settrace(self._called)
            run(thread)

        with patch.object(SimThread, "_run", traced):
            try:
                yield
            finally:
                sys.settrace(before)

    def stop_at(self, number: int) -> None:
        """Stop the thread that comes to this line, counted from now on."""
        self._left, self.stopped_at = number, ""

    def is_stopped(self) -> bool:
        """Wait until one has stopped; False if none does."""
        self._threads.wait(lambda: self.stopped_at != "", STOPPED_S)
        self._left = -1
        return self.stopped_at != ""

    def _called(self, frame: FrameType, event: str, value: Any) -> Any:
        return self._at if frame.f_code.co_filename in self._files else None

    def _at(self, frame: FrameType, event: str, value: Any) -> Any:
        current = self._threads.current
        if event == "line" and self._left >= 0 and current is not None and current.name != "call":
            self._left -= 1
            if self._left < 0:
                self.stopped_at = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
                self._threads.sleep(STOPPED_S)
        return self._at
