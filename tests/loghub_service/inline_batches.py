"""In place of `loghub_service.storage.group_commit.ThreadedBatches`, for simulators and tests."""

import asyncio
from collections.abc import Callable
from typing import Generic

from loghub.clock import Clock
from loghub_service.storage.group_commit import Commit, CommitMonitor, StorageFailed, T


class InlineBatches(Generic[T]):
    """Commits each item immediately, in the caller's thread, without a thread."""

    def __init__(
        self,
        *,
        name: str,
        commit: Commit[T],
        on_failed: Callable[[BaseException], None],
        clock: Clock,
        **_: object,  # the bound of a batch, which has one item here
    ) -> None:
        self.monitor = CommitMonitor(clock)
        self.name = name
        self._commit = commit
        self._on_failed = on_failed

    def submit(self, item: T) -> "asyncio.Future[object]":
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        try:
            outcomes = self._commit([item])
        except Exception as error:  # noqa: BLE001 - reported to the waiter and to the owner
            self._on_failed(error)
            outcomes = [StorageFailed(f"storage failed: {error}")]
        if isinstance(outcomes[0], BaseException):
            future.set_exception(outcomes[0])
        else:
            future.set_result(outcomes[0])
        return future

    def close(self) -> None:
        """Do nothing: no item ever waits."""
