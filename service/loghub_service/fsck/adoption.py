"""Plans how unknown log data becomes shards of the catalog again: values in, facts out.

The description in each shard's folder says what it belonged to. Where the described shards that accept writes
do not cover the key space, or where there are no descriptions, the adopted shards become read-only, so that
consumers read them to their end, and new shards take the writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from loghub.domain.shards import TOP, WHOLE, HashRange, Shard, ShardMap, even_ranges
from loghub.wire import names
from loghub_service.diagnosis import CatalogState
from loghub_service.facts import (
    FORM_OPTION,
    CatalogFact,
    EndsKnown,
    KnownEnd,
    LogstoreSaved,
    ProjectSaved,
    ShardSaved,
)
from loghub_service.settings import KEEP_FOREVER_DAYS
from loghub_service.storage.data_folder import ShardDescription
from loghub_service.storage.log_inspection import LogInspection


class CannotRepair(Exception):  # noqa: N818 - says what is wrong
    """The request cannot be carried out; the message says why, and nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundShard:
    """A shard that the catalog lacks."""

    logstore: int
    shard: int
    description: ShardDescription | None
    inspection: LogInspection

    @property
    def born_us(self) -> int:
        return (
            self.description.born_us if self.description else self.inspection.segments[0].header.received_us
        )

    @property
    def first_cursor(self) -> int:
        return (
            self.description.first_cursor
            if self.description
            else self.inspection.segments[0].header.first_cursor
        )

    @property
    def extent(self) -> KnownEnd:
        segments = self.inspection.segments
        return KnownEnd(
            logstore=self.logstore,
            shard=self.shard,
            oldest_cursor=segments[0].header.first_cursor if segments else self.first_cursor,
            end_cursor=segments[-1].totals.next_cursor if segments else self.first_cursor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionPlan:
    """The facts to persist, and the shards that they create without log data."""

    facts: tuple[CatalogFact | EndsKnown, ...]
    store: LogstoreSaved
    adopted: tuple[ShardSaved, ...]
    created: tuple[ShardSaved, ...]


def plan_adoption(
    catalog: CatalogState, found_shards: Sequence[FoundShard], *, name: str | None, now_s: int
) -> AdoptionPlan:
    """Adopt all these shards, which are of one logstore.

    ``name`` is ``PROJECT/LOGSTORE``; None: as described. Raises CannotRepair, MalformedName.
    """
    if name is not None:
        in_project, slash, logstore = name.partition("/")
        name = f"{in_project.lower()}{slash}{logstore}"  # as requests name it (docs/sls-protocol.md 2.5)
    store = catalog.logstores.get(found_shards[0].logstore)
    facts: list[CatalogFact | EndsKnown] = []
    if store is None:
        store = _new_store(catalog.logstores, found_shards, name, now_s)
        if store.project not in catalog.projects:
            project = ProjectSaved(name=store.project, description="", created_s=now_s, modified_s=now_s)
            facts.append(project)
    elif name is not None and name != f"{store.project}/{store.name}":
        raise CannotRepair(f"logstore {store.id} is {store.project}/{store.name} in the catalog, not {name}")
    saved_shards = {saved.shard: saved for saved in catalog.shards.values() if saved.logstore == store.id}
    shards = {number: saved.spec for number, saved in saved_shards.items()}
    adopted, closed = _as_described(shards, found_shards) or _read_only(found_shards)
    shards |= {shard.shard: shard for shard in (*adopted, *closed)}
    next_shard = max((*shards, store.next_shard - 1)) + 1
    created = [] if _covers(shards) else _writable(next_shard, len(found_shards))
    store = replace(store, next_shard=next_shard + len(created))
    saved = tuple(_saved(one, spec) for one, spec in zip(found_shards, adopted, strict=True))
    fresh = tuple(_fresh(store.id, spec, found_shards) for spec in created)
    facts += [store, *saved, *(replace(saved_shards[spec.shard], spec=spec) for spec in closed), *fresh]
    facts.append(EndsKnown(ends=tuple(one.extent for one in found_shards)))
    return AdoptionPlan(facts=tuple(facts), store=store, adopted=saved, created=fresh)


def _new_store(
    logstores: Mapping[int, LogstoreSaved], shards: Sequence[FoundShard], name: str | None, now_s: int
) -> LogstoreSaved:
    described = {f"{one.description.project}/{one.description.logstore}" for one in shards if one.description}
    if name is None and len(described) != 1:
        raise CannotRepair(
            f"it is not known how logstore {shards[0].logstore} was named; adopt it as ID=PROJECT/LOGSTORE"
        )
    project, _, logstore = (name or described.pop()).partition("/")
    names.PROJECT.check(project)
    names.LOGSTORE.check(logstore)
    if any((saved.project, saved.name) == (project, logstore) for saved in logstores.values()):
        raise CannotRepair(
            f"the catalog has another logstore {project}/{logstore}; adopt it under another name"
        )
    return LogstoreSaved(
        id=shards[0].logstore,
        project=project,
        name=logstore,
        ttl_days=KEEP_FOREVER_DAYS,  # nothing may expire before an operator has looked at the logs
        next_shard=0,
        options=_options(shards),
        created_s=now_s,
        modified_s=now_s,
        first_ordinal=max((one.description.first_ordinal for one in shards if one.description), default=0),
    )


def _options(shards: Sequence[FoundShard]) -> str:
    """The options of the new logstore. They keep the form of the records, which never changes: without it,
    records of Kafka clients would lose their keys."""
    form = next((one.description.form for one in shards if one.description and one.description.form), "")
    return msgspec.json.encode({FORM_OPTION: form} if form else {}).decode()


def _as_described(
    known_shards: Mapping[int, Shard], found_shards: Sequence[FoundShard]
) -> tuple[list[Shard], list[Shard]] | None:
    """The found shards as their descriptions say, and the known shards that they replaced; None if these do
    not fit together."""
    described = [one.description for one in found_shards if one.description is not None]
    if len(described) != len(found_shards):
        return None
    parents = {parent for description in described for parent in description.parents}
    adopted = [
        Shard(
            shard=description.shard,
            keys=HashRange.parse(begin_key=description.begin_key, end_key=description.end_key),
            read_only=description.shard in parents,
            parents=description.parents,
        )
        for description in described
    ]
    closed = [
        replace(known_shards[number], read_only=True) for number in sorted(parents & known_shards.keys())
    ]
    together = {**known_shards, **{shard.shard: shard for shard in (*adopted, *closed)}}
    return (adopted, closed) if _covers(together) else None


def _read_only(shards: Sequence[FoundShard]) -> tuple[list[Shard], list[Shard]]:
    return [Shard(shard=one.shard, keys=WHOLE, read_only=True) for one in shards], []


def _covers(shards: Mapping[int, Shard]) -> bool:
    """Whether the shards that accept writes cover the key space without overlap."""
    end = 0
    for shard in ShardMap(shards=shards).writable():
        if shard.keys.begin != end:
            return False
        end = shard.keys.end
    return end == TOP


def _writable(first: int, count: int) -> list[Shard]:
    return [Shard(shard=number, keys=keys) for number, keys in enumerate(even_ranges(max(count, 1)), first)]


def _saved(shard: FoundShard, spec: Shard) -> ShardSaved:
    return ShardSaved(
        logstore=shard.logstore, spec=spec, born_us=shard.born_us, first_cursor=shard.first_cursor
    )


def _fresh(logstore: int, spec: Shard, shards: Sequence[FoundShard]) -> ShardSaved:
    """A new shard, whose cursors begin above all found shards."""
    born_us = max(one.born_us for one in shards)
    first_cursor = max(one.extent.end_cursor for one in shards)
    return ShardSaved(logstore=logstore, spec=spec, born_us=born_us, first_cursor=first_cursor)
