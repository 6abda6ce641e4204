"""What all groups hold together: the metadata and the assignments of members, and the committed offsets.

Each group has bounds of its own, but a client may create thousands of groups. What they hold is in memory
and in the database, also after a restart, so together they have one bound. What adds to it is refused once
it is reached. A member that joins again with the same metadata adds nothing, nor does a commit that only
moves an offset.
"""

from collections.abc import Hashable, Iterable

from loghub.kafka.coordinator.events import Event, JoinGroup, OffsetCommit, SyncGroup
from loghub.kafka.coordinator.facts import Offsets
from loghub.kafka.coordinator.group import Group, Member, Protocol

DEFAULT_GROUP_BYTES = 128 << 20
# Besides the bytes that a client has chosen: names, times and the objects that have them.
MEMBER_BYTES = 1024
OFFSET_BYTES = 256


class GroupMemory:
    """At most ``limit`` bytes, which ``used`` may exceed only by what was restored."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._held: dict[Hashable, int] = {}
        self._offsets: dict[Hashable, tuple[Offsets, int]] = {}  # the table as it was last, and its size

    def fits(self, group: Group, event: Event) -> bool:
        """Whether there is room for what the event may add to its group."""
        added = _added(group, event)
        return added <= 0 or self.used + added <= self.limit

    def hold(self, key: Hashable, group: Group | None) -> None:
        """The group is now like this; None: it is gone."""
        size = 0 if group is None else _size_of_members(group) + self._size_of_offsets(key, group.offsets)
        if group is None:
            self._offsets.pop(key, None)
        self.used += size - self._held.pop(key, 0)
        if size:
            self._held[key] = size

    def _size_of_offsets(self, key: Hashable, offsets: Offsets) -> int:
        """Most steps leave the table as it is, and others replace it."""
        known = self._offsets.get(key)
        if known is not None and known[0] is offsets:
            return known[1]
        size = OFFSET_BYTES * len(offsets)
        size += sum(len(one.metadata.encode()) for one in offsets.values() if one.metadata)
        self._offsets[key] = (offsets, size)
        return size


def _size_of_members(group: Group) -> int:
    members = sum(_metadata(m.info.protocols) + len(m.info.assignment) for m in group.members.values())
    return members + MEMBER_BYTES * (len(group.members) + len(group.pending))


def _added(group: Group, event: Event) -> int:
    match event:
        case JoinGroup():
            known = _known(group, event)
            had = 0 if known is None else MEMBER_BYTES + _metadata(known.info.protocols)
            if known is None and event.member_id in group.pending:
                had = MEMBER_BYTES
            return MEMBER_BYTES + _metadata(event.protocols) - had
        case SyncGroup():
            had = sum(len(member.info.assignment) for member in group.members.values())
            return sum(len(assignment) for _, assignment in event.assignments) - had
        case OffsetCommit():
            added = 0
            for partition, _, metadata in event.offsets:
                known_offset = group.offsets.get(partition)
                had = 0 if known_offset is None else OFFSET_BYTES + len(known_offset.metadata.encode())
                added += OFFSET_BYTES + len(metadata.encode()) - had
            return added
        case _:
            return 0


def _known(group: Group, event: JoinGroup) -> Member | None:
    """The member that joins again, or that a static one replaces."""
    if event.member_id or event.group_instance_id is None:
        return group.members.get(event.member_id)
    of_instance = (m for m in group.members.values() if m.info.group_instance_id == event.group_instance_id)
    return next(of_instance, None)


def _metadata(protocols: Iterable[Protocol]) -> int:
    return sum(len(protocol.metadata) for protocol in protocols)
