"""What the service remembers besides log data: one frozen value for each thing saved.

What for: an operation answers with the facts to persist; the same values fill the memory at
a restart, so that running and restarted service cannot differ. What it must not know: SQL,
HTTP. Read next: `storage.database` (facts to rows), `catalog` (facts to memory).
"""

from dataclasses import dataclass

from loghub.domain.group import Fact as GroupFact
from loghub.domain.shards import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSaved:
    name: str
    description: str
    created_s: int  # unix seconds
    modified_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectDeleted:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreSaved:
    """``id`` is never used again: data of a deleted logstore cannot come back under its name."""

    id: int
    project: str
    name: str
    ttl_days: int
    next_shard: int  # the number of the next new shard; none is given twice
    options: str  # JSON object: what the clients set and read back, without effect here
    created_s: int
    modified_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreDeleted:
    id: int
    project: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSaved:
    """A shard, and where its log begins."""

    logstore: int
    spec: Shard
    born_us: int  # unix microseconds
    first_cursor: int

    @property
    def shard(self) -> int:
        return self.spec.shard


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDeleted:
    logstore: int
    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStepped:
    """What one step of a group's coordinator wants persisted, all in one transaction."""

    logstore: int
    group: str
    facts: tuple[GroupFact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted:
    logstore: int
    group: str


CatalogFact = ProjectSaved | ProjectDeleted | LogstoreSaved | LogstoreDeleted | ShardSaved | ShardDeleted
Fact = CatalogFact | GroupStepped | GroupDeleted
