"""All shards of a logstore as one stream, across splits and merges.

The shards that a split or merge makes are read from their first log, once their parents are read to the end:
so of any hash key the logs come in the order in which they were written.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from loghub.client.port import LogHub, Position, ShardInfo
from loghub.domain.hashrange import HashRange
from loghub.domain.shards import Shard, infer_parents
from loghub.wire.errors import Code, LogHubError
from loghub_operator.cli.stored_groups import PULL_COUNT, StoredGroup, groups_of


@dataclass(slots=True, kw_only=True)
class _Reading:
    """A shard that is read, or will be once its parents are over. ``cursor`` None: at its position."""

    position: Position
    parents: frozenset[int]
    read_only: bool
    cursor: str | None = None


@dataclass(slots=True)
class LogstoreTail:
    """Call `refresh` now and then, and `read` all the time. ``only``: these shards and no others."""

    client: LogHub
    logstore: str
    position: Position
    only: Collection[int] = ()
    _readings: dict[int, _Reading] = field(default_factory=dict)
    _known: set[int] = field(default_factory=set)

    def refresh(self) -> None:
        """Looks for new shards, and for those that became read-only. Raises LogHubError ShardNotExist if one
        of ``only`` is missing at the beginning."""
        infos = self.client.list_shards(self.logstore)
        position = "begin" if self._known else self.position
        if missing := sorted(set(self.only) - {info.shard for info in infos} - self._known):
            raise LogHubError.of(Code.SHARD_NOT_EXIST, f"logstore {self.logstore} has no shard {missing[0]}")
        parents = infer_parents(as_shard(info) for info in infos)
        for info in infos:
            reading = self._readings.get(info.shard)
            if reading is not None:
                reading.read_only = info.read_only
            elif info.shard not in self._known and (not self.only or info.shard in self.only):
                self._readings[info.shard] = _Reading(
                    position=position, parents=frozenset(parents[info.shard]), read_only=info.read_only
                )
            self._known.add(info.shard)
        for gone in self._readings.keys() - {info.shard for info in infos}:
            del self._readings[gone]

    def read(self) -> Iterator[StoredGroup]:
        """What has arrived, at most one answer of each shard."""
        for shard, reading in sorted(self._readings.items()):
            if reading.parents & self._readings.keys():
                continue
            if reading.cursor is None:
                reading.cursor = self.client.get_cursor(self.logstore, shard, reading.position)
            # A shard that was read-only before this answer gets no more logs after its end.
            pulled = self.client.pull_logs(self.logstore, shard, cursor=reading.cursor, count=PULL_COUNT)
            yield from groups_of(pulled, shard)
            reading.cursor = pulled.next_cursor
            if reading.read_only and pulled.end_of_shard:
                del self._readings[shard]

    def begin(self) -> None:
        """Fixes the position of every shard now, so that nothing is missed that arrives from now on."""
        self.refresh()
        for shard, reading in self._readings.items():
            reading.cursor = self.client.get_cursor(self.logstore, shard, reading.position)


def as_shard(info: ShardInfo) -> Shard:
    keys = HashRange.parse(begin_key=info.begin_key, end_key=info.end_key)
    return Shard(shard=info.shard, keys=keys, read_only=info.read_only)
