"""Projects, logstores and shards in memory, so that lookups never access the disk.

The catalog changes only through `Catalog.apply`, on the event loop: a creation is applied after its
commit, a deletion before it.
"""

from dataclasses import dataclass, field

from loghub.domain.shards import ShardMap
from loghub_service.facts import (
    CatalogFact,
    LogstoreDeleted,
    LogstoreSaved,
    ProjectDeleted,
    ProjectSaved,
    ShardDeleted,
    ShardSaved,
)
from loghub_service.storage.rows import MAX_DELETED_NAMES


@dataclass(slots=True)
class Logstore:
    """A logstore with its shards by id, ascending. ``final_offsets`` has the end of each deleted shard."""

    saved: LogstoreSaved
    shards: dict[int, ShardSaved] = field(default_factory=dict)
    final_offsets: dict[int, int] = field(default_factory=dict)
    _shard_map: ShardMap | None = None  # every PutLogs needs it; None after a change

    def shard_map(self) -> ShardMap:
        """The shards in the form that `loghub.domain.shards` uses."""
        if self._shard_map is None:
            specs = {number: saved.spec for number, saved in sorted(self.shards.items())}
            self._shard_map = ShardMap(shards=specs, next_shard=self.saved.next_shard)
        return self._shard_map

    def save(self, saved: LogstoreSaved) -> None:
        self.saved, self._shard_map = saved, None

    def save_shard(self, shard: ShardSaved) -> None:
        self.shards[shard.shard], self._shard_map = shard, None

    def delete_shard(self, shard: int, *, final_offset: int) -> None:
        del self.shards[shard]
        self.final_offsets[shard], self._shard_map = final_offset, None


@dataclass(slots=True)
class Project:
    """A project with its logstores by name."""

    saved: ProjectSaved
    logstores: dict[str, Logstore] = field(default_factory=dict)


class Catalog:
    """All projects, logstores and shards. ``next_logstore_id`` only grows, also across restarts.

    ``deleted_names`` has the next ordinals of deleted logstores by project and name, the oldest one first.
    """

    def __init__(self) -> None:
        self.projects: dict[str, Project] = {}
        self.logstores_by_id: dict[int, Logstore] = {}
        self.next_logstore_id = 1
        self.deleted_names: dict[tuple[str, str], int] = {}

    def apply(self, fact: CatalogFact) -> None:
        """Apply one fact. Facts must be applied in the order in which they were created."""
        match fact:
            case ProjectSaved():
                self._save_project(fact)
            case ProjectDeleted():
                del self.projects[fact.name]
            case LogstoreSaved():
                self._save_logstore(fact)
            case LogstoreDeleted():
                del self.projects[fact.project].logstores[fact.name]
                del self.logstores_by_id[fact.id]
                self._note_deleted(fact)
            case ShardSaved():
                self.logstores_by_id[fact.logstore].save_shard(fact)
            case ShardDeleted():
                logstore = self.logstores_by_id[fact.logstore]
                logstore.delete_shard(fact.shard, final_offset=fact.final_offset)

    def _note_deleted(self, fact: LogstoreDeleted) -> None:
        names, key = self.deleted_names, (fact.project, fact.name)
        names.pop(key, None)
        names[key] = fact.next_ordinal
        if len(names) > MAX_DELETED_NAMES:
            del names[next(iter(names))]

    def _save_project(self, fact: ProjectSaved) -> None:
        project = self.projects.get(fact.name)
        if project is None:
            self.projects[fact.name] = Project(saved=fact)
        else:
            project.saved = fact

    def _save_logstore(self, fact: LogstoreSaved) -> None:
        self.next_logstore_id = max(self.next_logstore_id, fact.id + 1)
        logstore = self.logstores_by_id.get(fact.id)
        if logstore is None:
            logstore = Logstore(saved=fact)
            self.logstores_by_id[fact.id] = logstore
            self.projects[fact.project].logstores[fact.name] = logstore
        else:
            logstore.save(fact)

    def named(self, logstore: int) -> dict[str, str]:
        """The names of a logstore and its project, for the log. Empty if the logstore was deleted
        meanwhile."""
        store = self.logstores_by_id.get(logstore)
        return {} if store is None else {"project": store.saved.project, "logstore": store.saved.name}
