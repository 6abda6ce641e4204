"""Where a shard is split when nobody says where: in its middle.

What for: the real SLS wants a key, so the adapters work it out from ListShards. What it must
not know: how shards are listed. Read next: `loghub.domain.hashrange`.
"""

from collections.abc import Iterable

from loghub.client.port import ShardInfo
from loghub.domain.hashrange import BadHashKey, HashRange, format_key
from loghub.wire.errors import Code, LogHubError


def split_key(shards: Iterable[ShardInfo], shard: int) -> str:
    """32 hex digits. Raises LogHubError ShardNotExist, or ParameterInvalid for too small a shard."""
    for info in shards:
        if info.shard == shard:
            try:
                keys = HashRange.parse(begin_key=info.begin_key, end_key=info.end_key)
                return format_key(keys.midpoint())
            except BadHashKey as error:
                raise LogHubError.of(Code.PARAMETER_INVALID, str(error)) from error
    raise LogHubError.of(Code.SHARD_NOT_EXIST, f"shard {shard} does not exist")
