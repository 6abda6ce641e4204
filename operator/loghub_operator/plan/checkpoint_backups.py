"""Decides which backups of checkpoint resets are kept while their object exists.

Each reset leaves one, for undo. Without a bound an object that is reset every hour would fill the store of
the API server, or the disk.
"""

from collections.abc import Collection, Mapping

MOST_BACKUPS = 5


def needed_backups(name: str, source: str | None) -> frozenset[str]:
    """The backups that a reset in progress uses: its own, and the one that it restores."""
    return frozenset(one for one in (name, source) if one is not None)


def superseded(requested_at: Mapping[str, str], *, needed: Collection[str]) -> tuple[str, ...]:
    """The names of the backups to remove: all but the last `MOST_BACKUPS` and the ``needed`` ones, the oldest
    first. ``requested_at`` has for each name the time of its reset (RFC 3339, UTC).
    """
    oldest_first = sorted(requested_at, key=lambda name: (requested_at[name], name))
    return tuple(name for name in oldest_first[:-MOST_BACKUPS] if name not in needed)
