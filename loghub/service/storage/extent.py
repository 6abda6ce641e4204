"""What a reader learns of a shard's log: how far it reaches, what was read, and how much is left to read."""

from dataclasses import dataclass, field

from loghub.service.storage.segment import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The readable part of a shard: the cursors in [oldest_cursor, end_cursor)."""

    oldest_cursor: int
    end_cursor: int  # the cursor of the next write
    logs_total: int  # in all groups since the shard's birth, including dropped groups
    received_us: int  # of the newest group, or the shard's birth
    # Numbers of logs: of the newest group, if it was written since the start; and of the group before the
    # oldest one, if it is known. What is read does not depend on them.
    newest_logs: int | None = field(default=None, compare=False)
    expired_logs: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Log groups in order, and the cursor after the last of them."""

    entries: tuple[Entry, ...]
    next_cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The groups and logs between a cursor and the end, and the receive time at the cursor."""

    groups_left: int
    logs_left: int
    received_us: int | None  # of the group at the cursor; None at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest group of a log that ends at ``end_cursor``.

    ``next_cursor`` is the cursor after it, which is less than the end if cursors were skipped there after a
    loss; ``logs`` the number of its logs, None if it is not known any more.
    """

    end_cursor: int
    next_cursor: int
    logs: int | None
