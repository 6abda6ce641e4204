"""Log groups of a shard with their cursors, read from the log service.

The cursors of consecutive log groups are consecutive integers, so the groups of an answer are numbered back
from the cursor after it (docs/sls-protocol.md 2.1).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from loghub.client.port import LogHub, Pulled
from loghub.wire import cursor as wire_cursor
from loghub.wire import loggroup
from loghub.wire.loggroup import LogGroup

PULL_COUNT = 200  # log groups of one answer


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A log group and its place."""

    shard: int
    cursor: str
    group: LogGroup
    size: int  # bytes


def groups_of(pulled: Pulled, shard: int) -> Iterator[StoredGroup]:
    """The log groups of an answer."""
    first = wire_cursor.decode(pulled.next_cursor) - pulled.count
    for number, body in enumerate(loggroup.split(pulled.body)):
        yield StoredGroup(
            shard=shard,
            cursor=wire_cursor.encode(first + number),
            group=loggroup.decode(body),
            size=len(body),
        )


def read_range(client: LogHub, logstore: str, shard: int, *, cursor: str, end: str) -> Iterator[StoredGroup]:
    """What one shard has from ``cursor`` up to, not including, ``end``."""
    last = wire_cursor.decode(end)
    while wire_cursor.decode(cursor) < last:
        pulled = client.pull_logs(logstore, shard, cursor=cursor, count=PULL_COUNT, end_cursor=end)
        yield from groups_of(pulled, shard)
        if pulled.next_cursor == cursor:
            return  # no service has more than its end
        cursor = pulled.next_cursor
