"""How far a group is behind, in log groups, logs and seconds.

The service's group status, the operator's status and the autoscaler use the same calculation. A value
that is not known is None, never 0: a zero means "nothing is left" and would scale a group down.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The part of one shard, or of many, that has no checkpoint yet; None where a value is not known.

    ``groups`` and ``logs`` are counts. ``seconds`` is the age of the oldest log group after the
    checkpoint, 0.0 when none is left.
    """

    groups: int | None = None
    logs: int | None = None
    seconds: float | None = None


UNKNOWN = Lag()
NONE_LEFT = Lag(groups=0, logs=0, seconds=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMarks:
    """The positions known of one shard; None where a value is not known.

    ``position`` is the checkpoint or, without one, the position where consumption would begin.
    ``begin_cursor`` is the oldest retained log group, ``end_cursor`` the cursor of the next write.
    ``logs_before_position`` and ``logs_before_end`` count logs from the creation of the shard.
    ``next_received_unix_s`` is the time at which the log group at the position was received.
    """

    position: int | None = None
    begin_cursor: int | None = None
    end_cursor: int | None = None
    logs_before_position: int | None = None
    logs_before_end: int | None = None
    next_received_unix_s: float | None = None


def shard_lag(marks: ShardMarks, *, now_unix_s: float) -> Lag:
    """The lag of one shard at a wall-clock time.

    A position before the oldest retained log group counts from that log group, because expired logs can
    no longer be read. A position past the end, which only a restored logstore can have, counts as the
    end.
    """
    groups = _groups(marks)
    if groups == 0:
        return NONE_LEFT
    return Lag(groups=groups, logs=_logs(marks), seconds=_age(marks.next_received_unix_s, now_unix_s))


def _groups(marks: ShardMarks) -> int | None:
    if marks.position is None or marks.end_cursor is None:
        return None
    begin = marks.position if marks.begin_cursor is None else marks.begin_cursor
    return max(0, marks.end_cursor - max(marks.position, begin))


def _logs(marks: ShardMarks) -> int | None:
    if marks.logs_before_position is None or marks.logs_before_end is None:
        return None
    return max(0, marks.logs_before_end - marks.logs_before_position)


def _age(received_unix_s: float | None, now_unix_s: float) -> float | None:
    # The wall clock can be set back; an age is never negative.
    return None if received_unix_s is None else max(0.0, now_unix_s - received_unix_s)
