"""What the membership's threads need of the program around them.

Two programs use them: the worker on Spark, whose source is in other processes and whose sink may keep a
record of its own (`loghub_worker.sink.shard_record`), and the consumers of `loghub_worker.api`.
"""

from collections.abc import Callable, Collection, Hashable, Set
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from loghub_worker.exchange_files import Positions, Report
from loghub_worker.sink.range_claims import ShardIncarnation


class Exchange(Protocol):
    """How the shards reach what reads them, and how that reports."""

    def write_positions(self, positions: Positions) -> None:
        """What may be read from now on. Raises `OSError`; the next change writes again."""

    def report(self) -> Report:
        """What was observed last. A version of -1 says nothing of the batches that have ended."""


class ShardTasks(Protocol):
    """Runs tasks that wait for requests, of each key one at a time. Thread-safe."""

    def start(self, key: Hashable, task: Callable[[], None]) -> bool:
        """Run the task now or soon. False if another one of this key has not ended; it is then not run."""

    def start_together(
        self, keys: Collection[Hashable], task: Callable[[frozenset[Hashable]], None]
    ) -> frozenset[Hashable]:
        """Run one task now or soon for those of the keys of which no other task runs; these are returned."""

    def alone(self, key: Hashable) -> AbstractContextManager[None]:
        """Wait until no task of this key runs, and let none begin meanwhile."""

    def wait_for(self, keys: Set[Hashable]) -> None:
        """Until no task of these keys runs."""

    def stop(self, timeout_s: float) -> None:
        """Begin no other task, and wait for those that run, but at most so long."""


class ShardSettings(Protocol):
    """The settings of the shard manager; `loghub.worker_contract.WorkerConfig` explains them."""

    @property
    def start_position(self) -> Literal["begin", "end"] | int: ...
    @property
    def last_initial_shard(self) -> int | None: ...
    @property
    def checkpoint_interval_s(self) -> float: ...


class ShardHistory(Protocol):
    """What a pipeline keeps of the logs of a shard that it has read (`loghub_worker.state.ledger`)."""

    def continue_at(
        self, incarnation: ShardIncarnation, position: int, *, is_first: bool, moved: bool
    ) -> int:
        """Where a shard continues that was opened at this position, never before it. `is_first`: nobody has
        read the shard before, nor what it was made of; `moved`: its checkpoint was moved on purpose."""
