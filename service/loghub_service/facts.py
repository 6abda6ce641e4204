"""Facts: the frozen values in which the service persists everything except log data.

An operation returns the facts to persist. `loghub_service.storage.database` stores them as rows, and
`loghub_service.catalog` applies the same values to memory, at runtime and at startup, so a restarted
service has the same state as a running one.
"""

from dataclasses import dataclass

import msgspec

from loghub.domain.group import Fact as GroupFact
from loghub.domain.shards import Shard
from loghub.domain.subscription import SubscriptionType
from loghub_service.kafka.coordinator.facts import Fact as KafkaGroupFact
from loghub_service.kafka.producers import ProducerKey, SavedProducer
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.sequences import NamedProducer, SavedSequence

# In the options of a logstore: the form of its records for Kafka clients. It never changes; SLS has no such
# option.
FORM_OPTION = "kafkaForm"


def form_of(options: str) -> RecordForm:
    """The form of the records of a logstore with these options, for clients of Kafka and of Pulsar."""
    try:
        return RecordForm(msgspec.json.decode(options).get(FORM_OPTION, RecordForm.PLAIN))
    except ValueError:  # written by another release
        return RecordForm.PLAIN


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
    """``id`` is never reused, so data of a deleted logstore cannot reappear under its name. Offsets are never
    reused either: ``first_ordinal`` is the ordinal of the first log group of each shard, above the ordinals
    of an earlier logstore of that name (docs/kafka.md 2)."""

    id: int
    project: str
    name: str
    ttl_days: int
    next_shard: int  # the id of the next new shard; ids are never reused
    options: str  # JSON object: `FORM_OPTION`, and settings without effect that clients store and read back
    created_s: int
    modified_s: int
    first_ordinal: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreDeleted:
    """``next_ordinal`` is above the ordinals of all its log groups."""

    id: int
    project: str
    name: str
    next_ordinal: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSaved:
    """A shard, and the cursor at which its log begins."""

    logstore: int
    spec: Shard
    born_us: int  # unix microseconds
    first_cursor: int

    @property
    def shard(self) -> int:
        return self.spec.shard


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDeleted:
    """``final_offset`` is the end that the shard had for Kafka clients, which its partition keeps."""

    logstore: int
    shard: int
    final_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStepped:
    """The facts of one step of a group's coordinator, persisted in one transaction."""

    logstore: int
    group: str
    facts: tuple[GroupFact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeleted:
    logstore: int
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaGroupStepped:
    """The facts of one step of a Kafka group's coordinator, persisted in one transaction."""

    project: str
    group: str
    facts: tuple[KafkaGroupFact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLogMarked:
    """The next start reads the batches of producers in this log from the cursor on."""

    logstore: int
    shard: int
    cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducersSaved:
    """The changed state of what idempotent producers of Kafka and producers of Pulsar with a name have sent.
    ``marks`` replaces all marks before."""

    saved: tuple[SavedProducer, ...]
    forgotten: tuple[ProducerKey, ...]
    marks: tuple[ProducerLogMarked, ...]
    sequences: tuple[SavedSequence, ...] = ()
    forgotten_sequences: tuple[NamedProducer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSaved:
    """A schema of a Pulsar topic, as its producer has sent it (`loghub_service.pulsar.wire.values`)."""

    logstore: int
    version: int
    schema: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEpochSaved:
    """An exclusive producer of Pulsar has taken over a partition: those with a lower epoch are fenced."""

    logstore: int
    partition: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderRemoved:
    """The log data of a deleted shard or, without ``shard``, of a whole deleted logstore is gone.

    A deletion is recorded together with `LogstoreDeleted` or `ShardDeleted`, and forgotten with this fact.
    """

    logstore: int
    shard: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEnd:
    """The cursors below ``end_cursor``, and perhaps more, were given out; the cursors below ``oldest_cursor``
    have expired. ``expired_logs`` is the number of logs in the last expired group, or None if it is not
    known."""

    logstore: int
    shard: int
    oldest_cursor: int
    end_cursor: int
    expired_logs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsKnown:
    """The extents of some shards. Extents of shards that were deleted meanwhile are ignored."""

    ends: tuple[KnownEnd, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderStarted:
    """The service has started on its data folder, for the ``starts``-th time.

    `loghub_service.diagnosis` compares both with what the log data says.
    """

    folder: str
    starts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryReached:
    """Retention has dropped the log groups that expired before ``unix_us``, when the wall clock showed
    ``wall_us``; both in unix microseconds. The times differ while a jump of the wall clock is not believed.
    ``behind_us`` is the time of the wall clock when it was found to be behind ``unix_us``; 0: it is not
    behind."""

    unix_us: int
    wall_us: int
    behind_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorsUsed:
    """No log that is created from now on may begin below this cursor."""

    end_cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSaved:
    """The settings of a subscription of a logstore, which is new, has changed or was set to a position. What
    a consumer was given in another ``generation`` is wanted again."""

    logstore: int
    name: str
    type: SubscriptionType
    in_order: bool
    key: tuple[str, ...] = ()
    generation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionDeleted:
    logstore: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorSaved:
    """The whole cursor of a shard, as `loghub_service.subscription.cursor_format` packs it. It replaces
    everything that was saved of the cursor before."""

    logstore: int
    name: str
    shard: int
    packed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorAdvanced:
    """What was acknowledged since the last fact of the cursor, packed as well."""

    logstore: int
    name: str
    shard: int
    packed: bytes


CatalogFact = ProjectSaved | ProjectDeleted | LogstoreSaved | LogstoreDeleted | ShardSaved | ShardDeleted
LogFact = FolderRemoved | EndsKnown | FolderStarted | ExpiryReached | CursorsUsed
KafkaFact = KafkaGroupStepped | ProducerLogMarked | ProducersSaved
PulsarFact = SchemaSaved | ProducerEpochSaved
SubscriptionFact = SubscriptionSaved | SubscriptionDeleted | CursorSaved | CursorAdvanced
ServiceFact = CatalogFact | LogFact | GroupStepped | GroupDeleted | KafkaFact | PulsarFact | SubscriptionFact
