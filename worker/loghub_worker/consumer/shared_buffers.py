"""What the consumers of one program share: the lock of their tables, the bound on what they hold, priorities.

`loghub_worker.consumer.shard_table.ShardTable` is a member. Everything but the lock is used under it.
"""

import threading
from typing import Protocol


class Member(Protocol):
    """The shards of one consumer."""

    is_short: bool  # something could be pulled if there were more room

    @property
    def shard_count(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def priorities(self) -> frozenset[int]: ...
    def top_backlog(self) -> int | None: ...
    def notify_pulls(self) -> None: ...
    def notify_below(self, priority: int) -> None: ...


class SharedBuffers:
    """All shards of the members together hold about `max_bytes`. Shards wait while one with a higher priority
    has a backlog."""

    def __init__(self, max_bytes: int) -> None:
        self.lock = threading.Lock()
        self.max_bytes = max_bytes
        self._members: list[Member] = []

    def join(self, member: Member) -> None:
        self._members.append(member)

    def leave(self, member: Member) -> None:
        """Its shards count no longer, also if they were abandoned."""
        if member in self._members:
            self._members.remove(member)
            self.freed()
            for other in self._members:
                other.notify_below(max(other.priorities, default=0) + 1)

    @property
    def shard_count(self) -> int:
        return sum(member.shard_count for member in self._members)

    @property
    def used_bytes(self) -> int:
        return sum(member.used_bytes for member in self._members)

    def freed(self) -> None:
        """There may be more room: wake those that wait for it."""
        for member in self._members:
            if member.is_short:
                member.notify_pulls()

    @property
    def has_priorities(self) -> bool:
        """Whether any shard has another priority than the others."""
        return len(frozenset().union(*(member.priorities for member in self._members))) > 1

    def must_wait(self, priority: int) -> bool:
        """Whether a shard with a higher priority has a backlog."""
        if not self.has_priorities:
            return False
        tops = (member.top_backlog() for member in self._members)
        return any(top is not None and top > priority for top in tops)

    def backlog_ended(self, priority: int) -> None:
        """A shard of this priority has none any more: wake those that may wait for it."""
        for member in self._members:
            member.notify_below(priority)
