"""Which shard receives a log group, also while shards are being split or merged.

PutLogs chooses by hash key or at random; the Kafka endpoint has an addressed shard.
"""

from collections.abc import Callable

from loghub.domain.shards import ShardMap
from loghub.service.api_errors import failure
from loghub.service.catalog import Logstore
from loghub.service.engine import Engine
from loghub.service.storage.shardlog import ShardLog
from loghub.wire.errors import Code

_MAX_RESHARDS = 8


async def log_to_write(
    engine: Engine, find: Callable[[], Logstore], choose: Callable[[ShardMap], int]
) -> ShardLog:
    """The log of the shard that ``choose`` returns from the shards of the logstore, some of which accept
    writes. Waits while that shard is being split or merged, and chooses again.

    The caller must not await anything between this and the append: the shard could be closed meanwhile.
    """
    for _ in range(_MAX_RESHARDS):
        store = find()
        shards = store.shard_map()
        if not shards.writable():
            raise failure(
                Code.LOG_STORE_WITHOUT_SHARD, f"logstore {store.saved.name} has no shard that accepts writes"
            )
        shard = choose(shards)
        sealing = engine.sealing.get((store.saved.id, shard))
        if sealing is None:
            return engine.logs[store.saved.id, shard]
        await sealing.wait()
    raise failure(Code.SERVER_BUSY, "the shards are being split or merged")
