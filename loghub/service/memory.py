"""Budgets of memory: how many bytes the requests of one kind may hold together.

A request takes bytes before it stores them and gives all of them back when it ends, so that clients cannot
exhaust the service's memory together. Each kind of request has a budget of its own
(`loghub.service.http.app`), and a flood of one kind does not stop the others.
"""

from types import TracebackType
from typing import Self

from loghub.service.api_errors import failure
from loghub.wire.errors import Code


class MemoryBudget:
    """At most ``limit`` bytes in use, not counting the first ``free_bytes`` of each request.

    These are never refused: the bound on connections limits how many requests there are.
    """

    def __init__(self, name: str, *, limit: int, free_bytes: int = 0) -> None:
        self.name = name
        self.limit = limit
        self.used = 0
        self._free_bytes = free_bytes

    def reservation(self) -> "Reservation":
        """What one request holds; a context manager that gives it back."""
        return Reservation(self, self._free_bytes)


class Reservation:
    """The bytes that one request has taken from a budget."""

    def __init__(self, budget: MemoryBudget, free_bytes: int) -> None:
        self._budget = budget
        self._free_bytes = free_bytes
        self._taken = 0

    def take(self, size: int) -> None:
        """Take bytes before they are stored. Raises LogHubError ServerBusy if the budget is used up."""
        free = min(size, self._free_bytes)
        counted = size - free
        if self._budget.used + counted > self._budget.limit:
            raise failure(Code.SERVER_BUSY, f"the memory budget {self._budget.name!r} is used up")
        self._free_bytes -= free
        self._taken += counted
        self._budget.used += counted

    def release(self) -> None:
        """Give everything back before the request ends, because it is counted elsewhere from now on."""
        self._budget.used -= self._taken
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
