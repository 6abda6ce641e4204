"""Writing to a logstore that a client of Kafka or Pulsar knows as a topic, with a shard as its partition."""

from loghub.domain.shards import ShardMap
from loghub.wire.errors import Code
from loghub_service.api.logs import log_to_write
from loghub_service.catalog import Logstore
from loghub_service.engine import Engine
from loghub_service.errors import failure
from loghub_service.storage.shardlog import ShardLog


async def partition_to_write(
    engine: Engine, store: Logstore, number: int, *, is_remembered: bool
) -> ShardLog:
    """The log of a partition, or of the shard that has taken its place. ``is_remembered``: the journal of
    producers has to know what follows, so that a restart recognizes what is sent again.

    The caller must not await anything between this and the append. Raises `LogHubError`.
    """

    def current() -> Logstore:
        """The same logstore at present: its shards may be split while a write waits."""
        found = engine.catalog.logstores_by_id.get(store.saved.id)
        if found is None:
            raise failure(Code.LOG_STORE_NOT_EXIST, f"logstore {store.saved.name} was deleted")
        return found

    def in_place_of(shards: ShardMap) -> int:
        return shards.in_place_of(number)

    log = await log_to_write(engine, current, in_place_of)
    while is_remembered and not engine.producers.begin(log):
        await engine.producers.mark(log)
        log = await log_to_write(engine, current, in_place_of)  # it may have been split meanwhile
    return log
