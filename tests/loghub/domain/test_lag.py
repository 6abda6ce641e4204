"""Unknown is None, never 0."""

from loghub.domain.lag import NONE_LEFT, UNKNOWN, Lag, ShardMarks, shard_lag

NOW = 1_700_000_100.0


def test_everything_known() -> None:
    marks = ShardMarks(
        position=12,
        begin_cursor=3,
        end_cursor=20,
        logs_before_position=100,
        logs_before_end=180,
        next_received_unix_s=NOW - 40,
    )
    assert shard_lag(marks, now_unix_s=NOW) == Lag(groups=8, logs=80, seconds=40.0)


def test_at_the_end_nothing_is_left_even_where_logs_are_not_counted() -> None:
    assert shard_lag(ShardMarks(position=20, end_cursor=20), now_unix_s=NOW) == NONE_LEFT


def test_nothing_known_is_unknown() -> None:
    assert shard_lag(ShardMarks(), now_unix_s=NOW) == UNKNOWN


def test_no_position_is_unknown_not_zero() -> None:
    assert shard_lag(ShardMarks(begin_cursor=5, end_cursor=5), now_unix_s=NOW).groups is None


def test_no_end_is_unknown_not_zero() -> None:
    assert shard_lag(ShardMarks(position=5, begin_cursor=5), now_unix_s=NOW).groups is None


def test_logs_and_seconds_stay_unknown_where_only_cursors_are_known() -> None:
    assert shard_lag(ShardMarks(position=5, end_cursor=7), now_unix_s=NOW) == Lag(groups=2)


def test_what_retention_took_does_not_count() -> None:
    marks = ShardMarks(position=2, begin_cursor=15, end_cursor=20)
    assert shard_lag(marks, now_unix_s=NOW).groups == 5


def test_a_position_past_the_end_counts_as_the_end() -> None:
    assert shard_lag(ShardMarks(position=30, end_cursor=20), now_unix_s=NOW) == NONE_LEFT


def test_a_clock_set_back_gives_no_negative_age() -> None:
    marks = ShardMarks(position=1, end_cursor=2, next_received_unix_s=NOW + 9)
    assert shard_lag(marks, now_unix_s=NOW).seconds == 0.0
