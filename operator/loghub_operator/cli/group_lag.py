"""How far a consumer group is behind, by what its log service reports.

The embedded service reports it. For the real SLS it is worked out from the checkpoints and the cursors of
each shard, by the same rules (`loghub.domain.lag`); there the number of logs is not known, and is None.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from loghub.client.port import CheckpointInfo, LogHub, Position, ShardInfo, ShardStatus
from loghub.domain.lag import NONE_LEFT, Lag, ShardMarks, shard_lag
from loghub.wire import cursor as wire_cursor
from loghub_operator.cli.output import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLag:
    """One shard of a group; ``checkpoint`` is a cursor, "" if none is saved."""

    shard: int
    consumer: str
    checkpoint: str
    lag: Lag


def lag_record(lag: Lag) -> Record:
    """Milliseconds are enough for an age."""
    seconds = None if lag.seconds is None else round(lag.seconds, 3)
    return {"lagGroups": lag.groups, "lagLogs": lag.logs, "lagSeconds": seconds}


def group_lag(client: LogHub, logstore: str, group: str, *, now_unix_s: float) -> tuple[ShardLag, ...]:
    """The lag of each shard, in the order of their numbers."""
    if client.has_extensions():
        return tuple(_reported(one) for one in client.group_status(logstore, group).shards)
    saved = {one.shard: one for one in client.get_checkpoints(logstore, group)}
    shards = sorted(client.list_shards(logstore), key=lambda one: one.shard)
    return tuple(_measured(client, logstore, one, saved.get(one.shard), now_unix_s) for one in shards)


def total(lags: Iterable[Lag]) -> Lag:
    """Of all shards: sums, and the greatest age. None where it is not known of one of them."""
    every = tuple(lags)
    seconds = [lag.seconds for lag in every]
    return Lag(
        groups=_sum([lag.groups for lag in every]),
        logs=_sum([lag.logs for lag in every]),
        seconds=None if None in seconds else max((one for one in seconds if one is not None), default=0.0),
    )


def _sum(values: list[int | None]) -> int | None:
    return None if None in values else sum(value for value in values if value is not None)


def _reported(status: ShardStatus) -> ShardLag:
    return ShardLag(
        shard=status.shard,
        consumer=status.holder,
        checkpoint=status.checkpoint,
        lag=Lag(groups=status.lag_groups, logs=status.lag_logs, seconds=status.lag_s),
    )


def _measured(
    client: LogHub, logstore: str, info: ShardInfo, saved: CheckpointInfo | None, now_unix_s: float
) -> ShardLag:
    def cursor(where: Position) -> int:
        return wire_cursor.decode(client.get_cursor(logstore, info.shard, where))

    checkpoint = saved.cursor if saved else ""
    position = wire_cursor.decode(checkpoint) if checkpoint else None
    begin, end = cursor("begin"), cursor("end")
    lag = Lag()
    if position is not None:
        received = None
        if position < end:
            at = wire_cursor.encode(max(position, begin))
            received = float(client.get_cursor_time(logstore, info.shard, at))
        marks = ShardMarks(
            position=position, begin_cursor=begin, end_cursor=end, next_received_unix_s=received
        )
        lag = shard_lag(marks, now_unix_s=now_unix_s)
    elif begin == end:
        lag = NONE_LEFT  # wherever a consumer would begin
    return ShardLag(
        shard=info.shard, consumer=saved.consumer if saved else "", checkpoint=checkpoint, lag=lag
    )
