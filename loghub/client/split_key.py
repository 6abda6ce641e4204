"""The default key of a split: the middle of the shard.

The real SLS requires a key, so the adapters compute it from ListShards.
"""

from collections.abc import Iterable

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
