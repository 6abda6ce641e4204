"""The bound on the bytes that all shards of a program hold together, and the priorities of its shards.

The shard tables of the consumers of one program are its members. What a shard of one table may do depends on
the shards of the others, so all of them have one lock.
"""

import threading
from typing import Protocol

from loghub_consumer.held_shard import HeldShardState, share_bytes


class ShardMember(Protocol):
    """The shards of one consumer, which shares its memory with others. Used under the lock."""

    is_short: bool  # a shard is not pulled because it is full

    @property
    def shard_count(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def priorities(self) -> frozenset[int]: ...
    def note_backlogs(self) -> None:
        """Bring `HeldShardEntry.has_backlog` up to date, once shards have different priorities."""

    def top_backlog(self) -> int | None:
        """The highest priority of a shard with a backlog; None if no shard has one."""

    def notify_pulls(self) -> None: ...
    def notify_below(self, priority: int) -> None:
        """Wake the shards with a lower priority."""


class SharedBuffers:
    """All shards of the members together hold about `max_bytes`: each shard may exceed its share by one log
    group. A shard waits while a shard with a higher priority has a backlog. Everything but `lock` is used
    under the lock."""

    def __init__(self, max_bytes: int) -> None:
        self.lock = threading.Lock()
        self.max_bytes = max_bytes
        self._members: list[ShardMember] = []
        self.shard_count = 0
        self.has_priorities = False  # not all shards have the same priority

    def join(self, member: ShardMember) -> None:
        self._members.append(member)
        self.members_changed()

    def members_changed(self) -> None:
        """The shards of a member, or their priorities, have changed."""
        self.shard_count = sum(member.shard_count for member in self._members)
        priorities = frozenset[int]().union(*(member.priorities for member in self._members))
        had_priorities, self.has_priorities = self.has_priorities, len(priorities) > 1
        if self.has_priorities and not had_priorities:
            for member in self._members:
                member.note_backlogs()

    def leave(self, member: ShardMember) -> None:
        """The shards of the member no longer count, even if they were abandoned with logs in memory."""
        if member in self._members:
            self._members.remove(member)
            self.members_changed()
            self.freed()
            for other in self._members:
                other.notify_below(max(other.priorities, default=0) + 1)

    @property
    def used_bytes(self) -> int:
        return sum(member.used_bytes for member in self._members)

    def share_bytes(self, state: HeldShardState) -> int:
        """How many bytes the shard of this state may hold now."""
        return share_bytes(
            state, max_bytes=self.max_bytes, shards=self.shard_count, used_bytes=self.used_bytes
        )

    def freed(self) -> None:
        """A shard holds less than before: wake the pulls of the members that wait for room."""
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
        """A shard of this priority has no backlog any more: wake the shards that may have waited for it."""
        for member in self._members:
            member.notify_below(priority)
