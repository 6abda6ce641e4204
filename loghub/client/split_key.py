"""The query of a split: its key, which is the middle of the shard by default, or the number of parts.

The real SLS requires a key for a split into two, so the adapters compute it from ListShards
(docs/sls-protocol.md 2.3).
"""

from collections.abc import Callable, Iterable

from loghub.client.port import ShardInfo
from loghub.domain.hashrange import BadHashKey, HashRange
from loghub.wire.errors import Code, LogHubError


def split_key(shards: Iterable[ShardInfo], shard: int) -> str:
    """32 hex digits. Raises LogHubError ShardNotExist, or ParameterInvalid for a shard that is too small."""
    for info in shards:
        if info.shard == shard:
            try:
                keys = HashRange.parse(begin_key=info.begin_key, end_key=info.end_key)
                return keys.parts(2)[1].begin_key
            except BadHashKey as error:
                raise LogHubError.of(Code.PARAMETER_INVALID, str(error)) from error
    raise LogHubError.of(Code.SHARD_NOT_EXIST, f"shard {shard} does not exist")


def split_query(
    list_shards: Callable[[], Iterable[ShardInfo]], shard: int, *, key: str | None, parts: int
) -> dict[str, str]:
    """Of SplitShard: at ``key``, else into ``parts`` equal ranges. Raises the errors of `split_key`, and
    LogHubError ParameterInvalid for a key of more than two parts."""
    if parts < 2:
        raise LogHubError.of(
            Code.PARAMETER_INVALID, f"a shard is split into 2 parts or more, not into {parts}"
        )
    if parts == 2:
        return {"action": "split", "key": split_key(list_shards(), shard) if key is None else key}
    if key is not None:
        raise LogHubError.of(Code.PARAMETER_INVALID, f"a key splits a shard into 2, not into {parts}")
    return {"action": "split", "shardCount": str(parts)}
