"""The shards as the log service reports them: their numbers, their begins and ends, and the sizes of their
next log groups."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from loghub.client.port import LogHub, Position
from loghub.domain.shards import HashRange, Shard, infer_parents
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.loggroup import split
from loghub_consumer.log_groups import number_of_logs
from loghub_spark.offsets import ShardSample, ShardView
from loghub_spark.options import EARLIEST, LATEST, Bound, LogstoreError, OptionError

T = TypeVar("T")

REQUESTS_AT_ONCE = 8  # 256 shards are read in 32 rounds of milliseconds, without a quota of SLS being used up
SAMPLE_GROUPS = 100  # from which the size of a shard's next log groups is estimated: one small pull
_NAMES: Mapping[int, Position] = {EARLIEST: "begin", LATEST: "end"}


class LogstoreShards:
    """The shards of one logstore, or only the shards in `only`."""

    def __init__(self, client: LogHub, logstore: str, *, only: frozenset[int] | None) -> None:
        self._client = client
        self._logstore = logstore
        self._only = only
        self.final_ends: dict[int, int] = {}  # of read-only shards, even after they are deleted

    def views(self) -> dict[int, ShardView]:
        """All shards as they are now. Raises `OptionError` if one that is named has never existed."""
        listed = {info.shard: info for info in self._client.list_shards(self._logstore)}
        parents = infer_parents(
            Shard(
                shard=info.shard,
                keys=HashRange.parse(begin_key=info.begin_key, end_key=info.end_key),
                read_only=info.read_only,
            )
            for info in listed.values()
        )
        unknown = sorted((self._only or frozenset()) - listed.keys())
        if unknown and unknown[-1] > max(listed, default=-1):
            raise OptionError(f"option shards: the logstore has no shard {unknown[-1]}, but {sorted(listed)}")
        wanted = [shard for shard in sorted(listed) if self._only is None or shard in self._only]
        # The end of a read-only shard is final only if it was requested after the shard became read-only.
        ends = self.cursors({s: "end" for s in wanted if s not in self.final_ends})
        self.final_ends |= {shard: end for shard, end in ends.items() if listed[shard].read_only}
        ends |= {shard: self.final_ends[shard] for shard in wanted if listed[shard].read_only}
        return {
            shard: ShardView(
                shard=shard, end=ends[shard], read_only=listed[shard].read_only, parents=parents[shard]
            )
            for shard in wanted
        }

    def cursors(self, positions: Mapping[int, Position]) -> dict[int, int]:
        """The cursor of a position in each shard; for a time, the cursor of the first log group that was
        received then or later."""
        return _at_once(
            positions,
            lambda shard: decode_cursor(self._client.get_cursor(self._logstore, shard, positions[shard])),
        )

    def resolve(self, bound: Bound, shards: Iterable[int]) -> dict[int, int]:
        """The cursors of a bound. Raises `OptionError` unless it has a cursor for each shard."""
        wanted = sorted(shards)
        if bound.unix_s is not None:
            return self.cursors(dict.fromkeys(wanted, bound.unix_s))
        bounds = dict(bound.by_shard or dict.fromkeys(wanted, bound.everywhere or EARLIEST))
        if bounds.keys() != set(wanted):
            raise OptionError(
                f"startingOffsets and endingOffsets must name each shard that is read, which are {wanted},"
                f" and no other, but name {sorted(bounds)}"
            )
        named = {shard: _NAMES[value] for shard, value in bounds.items() if value in _NAMES}
        return bounds | self.cursors(named)

    def samples(self, positions: Mapping[int, int], groups: Mapping[int, int]) -> dict[int, ShardSample]:
        """The sizes of the next log groups of shards, at most `SAMPLE_GROUPS` of each."""
        return _at_once(groups, lambda shard: self._sample(shard, positions[shard], groups[shard]))

    def _sample(self, shard: int, cursor: int, groups: int) -> ShardSample:
        pulled = self._client.pull_logs(
            self._logstore,
            shard,
            cursor=encode_cursor(cursor),
            count=min(groups, SAMPLE_GROUPS),
            end_cursor=encode_cursor(cursor + groups),
        )
        log_groups = list(split(pulled.body))
        return ShardSample(logs=tuple(map(number_of_logs, log_groups)), bytes=tuple(map(len, log_groups)))


def check_inside(cursors: Mapping[int, int], views: Mapping[int, ShardView], option: str) -> None:
    """Raise `LogstoreError` for a cursor after the end of its shard."""
    for shard, cursor in sorted(cursors.items()):
        if cursor > views[shard].end:
            raise LogstoreError(
                f"option {option}: cursor {cursor} of shard {shard} lies after its end {views[shard].end}"
            )


def _at_once(shards: Iterable[int], ask: Callable[[int], T]) -> dict[int, T]:
    wanted = sorted(shards)
    if len(wanted) < 2:
        return {shard: ask(shard) for shard in wanted}
    with ThreadPoolExecutor(min(REQUESTS_AT_ONCE, len(wanted))) as pool:
        return dict(zip(wanted, pool.map(ask, wanted), strict=True))
