"""Where the shards of a consumer come from, and where their checkpoints go.

`loghub_worker.consumer.group_assignment` is the membership of a consumer group;
`loghub_worker.consumer.static_assignment` is a list of shards, without any group.
"""

from collections.abc import Callable
from typing import Protocol

from loghub_worker.log_service import ReportedError
from loghub_worker.membership.membership import HeldShard


class Checkpoints(Protocol):
    """Notes and saves the checkpoints of the held shards. Thread-safe."""

    def note(self, shard: int, *, epoch: int, position: int) -> None:
        """It is saved later, if there is a place for it. Raises `ShardLostError`."""

    def send(self, shard: int, *, epoch: int) -> None:
        """Save what was noted. Raises `ShardLostError` and `LogHubException`, and `ValueError` if there is no
        place for it."""

    @property
    def can_save(self) -> bool:
        """Whether checkpoints are saved anywhere."""

    def require_place(self) -> None:
        """Raises `ValueError` unless they are."""


class Assignment(Protocol):
    """The shards of one consumer. Thread-safe after `start`."""

    @property
    def checkpoints(self) -> Checkpoints:
        """After `start`."""

    def start(self) -> None:
        """Raises `LogHubException` if what is needed cannot be read."""

    def held(self) -> tuple[HeldShard, ...]:
        """The shards that this consumer has or is giving up."""

    def released(self, shard: int, *, epoch: int) -> None:
        """The processor of the shard has ended."""

    def fenced(self, shard: int, *, epoch: int) -> None:
        """The checkpoint store has given the shard to another owner."""

    def give_up(self, *, leaves: bool) -> None:
        """Begin to give up every shard; `leaves`: also what tells others that this consumer exists."""

    def abandon(self) -> None:
        """Every shard is lost, whatever its processor still does."""

    @property
    def has_joined(self) -> bool:
        """Whether it is known which shards this consumer has."""

    @property
    def is_drained(self) -> bool:
        """Whether every shard is given up and its checkpoint saved."""

    @property
    def has_left(self) -> bool:
        """Whether others know that this consumer has gone."""

    @property
    def failure(self) -> BaseException | None:
        """What ended a thread of this part unexpectedly."""

    def errors(self) -> tuple[ReportedError, ...]:
        """What does not work at the moment; those without a reason do not count."""

    def stop(self) -> None:
        """End the threads."""

    # -- changes

    @property
    def changes(self) -> int:
        """The number of changes so far, for `wait`."""

    def wait(self, since: int, timeout_s: float) -> None:
        """Until a change follows the change `since`, but at most so long."""

    def call_on_change(self, on_change: Callable[[], None]) -> None:
        """Call this after each change. It must not wait. Before `start`."""

    def wake(self) -> None:
        """End every `wait`."""
