"""The hang guard of each test, in one thread of the process: pytest-timeout then starts none of its own.

With the method ``thread`` pytest-timeout starts and joins a thread for each test: a millisecond of CPU time,
ten thousand times, and more on the clock while other work keeps the processors. Here one thread waits for the
end of the test that runs; a test that begins wakes it only if its guard ends before the one that it knows.
"""

import os
import threading
from collections.abc import Callable
from time import monotonic

import pytest
import pytest_timeout


class HangGuard:
    """Calls what it was given if it is not cleared in time. Its thread ends with that, or the process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._changed = threading.Condition()
        self._ends_at: float | None = None
        self._wakes_at: float | None = None
        self._on_hang: Callable[[], None] = lambda: None
        threading.Thread(target=self._watch, name="hang-guard", daemon=True).start()

    def set(self, seconds: float, on_hang: Callable[[], None]) -> None:
        with self._changed:
            self._ends_at, self._on_hang = monotonic() + seconds, on_hang
            if self._wakes_at is None or self._ends_at < self._wakes_at:
                self._changed.notify()

    def clear(self) -> None:
        with self._changed:
            self._ends_at = None

    def _watch(self) -> None:
        with self._changed:
            while (left := self._left()) is None or left > 0:
                self._wakes_at = self._ends_at
                self._changed.wait(left)
            on_hang = self._on_hang
        on_hang()

    def _left(self) -> float | None:
        return None if self._ends_at is None else self._ends_at - monotonic()


_GUARDS: list[HangGuard] = []


def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool | None:
    """Takes the place of pytest-timeout's own for its method ``thread``."""
    if settings.method != "thread":
        return None
    if not _GUARDS or _GUARDS[-1].owner != os.getpid():  # a process that was forked has no thread yet
        _GUARDS.append(HangGuard())
    guard = _GUARDS[-1]
    guard.set(settings.timeout, lambda: pytest_timeout.timeout_timer(item, settings))
    item.cancel_timeout = guard.clear  # type: ignore[attr-defined] - called by pytest-timeout
    return True
