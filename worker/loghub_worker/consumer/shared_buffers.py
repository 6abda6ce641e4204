"""What the consumers of one program share: the lock of their tables, the bound on what they hold, priorities.

`loghub_worker.consumer.shard_table.ShardTable` is a member. Everything but the lock is used under it.
"""

import threading
from typing import Protocol

from loghub_worker.consumer.shard_flow import ShardFlow, share_bytes


class Member(Protocol):
    """The shards of one consumer."""

    is_short: bool  # something could be pulled if there were more room

    @property
    def shard_count(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def priorities(self) -> frozenset[int]: ...
    def note_backlogs(self) -> None:
        """Find out which shards have a backlog: so far nobody needed to know."""

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
        self.shard_count = 0
        self.has_priorities = False  # some shard has another priority than the others

    def join(self, member: Member) -> None:
        self._members.append(member)
        self.members_changed()

    def members_changed(self) -> None:
        """The members have other shards, or these have other priorities."""
        self.shard_count = sum(member.shard_count for member in self._members)
        priorities = frozenset[int]().union(*(member.priorities for member in self._members))
        had_priorities, self.has_priorities = self.has_priorities, len(priorities) > 1
        if self.has_priorities and not had_priorities:
            for member in self._members:
                member.note_backlogs()

    def leave(self, member: Member) -> None:
        """Its shards count no longer, also if they were abandoned."""
        if member in self._members:
            self._members.remove(member)
            self.members_changed()
            self.freed()
            for other in self._members:
                other.notify_below(max(other.priorities, default=0) + 1)

    @property
    def used_bytes(self) -> int:
        return sum(member.used_bytes for member in self._members)

    def share_bytes(self, flow: ShardFlow) -> int:
        """What the shard of this flow may hold now."""
        return share_bytes(
            flow, max_bytes=self.max_bytes, shards=self.shard_count, used_bytes=self.used_bytes
        )

    def freed(self) -> None:
        """There may be more room: wake those that wait for it."""
        for member in self._members:
            if member.is_short:
                member.notify_pulls()

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
