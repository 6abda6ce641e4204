"""What the brokers of all protocols need of the service behind them: rights, and news of what arrives."""

from collections.abc import Hashable
from enum import StrEnum
from typing import Protocol


class Access(StrEnum):
    """What a login may do in its project. The values are those of the rights of access keys."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class Watch(Protocol):
    """What arrives in some shards, which come and go."""

    bytes: int  # that have come so far, as log groups; many more at once if there is an error to tell

    def add(self, key: object, label: Hashable) -> None:
        """Watch the shard with this key under a label, in place of the one that had the label."""

    def remove(self, label: Hashable) -> None: ...

    def take_marked(self) -> list[Hashable]:
        """The labels of shards in which something has arrived since the last call."""

    def expect(self, total: int) -> None:
        """`wait` until ``bytes`` is so much."""

    async def wait(self) -> object: ...

    def close(self) -> None: ...
