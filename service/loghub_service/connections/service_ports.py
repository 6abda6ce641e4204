"""What the brokers of all protocols need of the service behind them: rights, and news of appends."""

from collections.abc import Hashable
from enum import StrEnum
from typing import Protocol


class Access(StrEnum):
    """What a login may do in its project. The values are the names of the rights of access keys."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class Watch(Protocol):
    """Notices appends to some shards. Shards can be added and removed."""

    bytes: int  # appended so far, as log groups; a very large number after an error or a deletion

    def add(self, key: object, label: Hashable) -> None:
        """Watch the shard with this key under a label, in place of the one that had the label."""

    def remove(self, label: Hashable) -> None: ...

    def take_marked(self) -> list[Hashable]:
        """The labels of the shards that have changed since the last call."""

    def expect(self, total: int) -> None:
        """Let `wait` return once ``bytes`` reaches this total."""

    async def wait(self) -> object: ...

    def close(self) -> None: ...
