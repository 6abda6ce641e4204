"""The lag of a shard. A value that is not known is None, never 0."""

from loghub.domain.lag import NONE_LEFT, UNKNOWN, Lag, ShardMarks, shard_lag

NOW = 1_700_000_100.0


def test_the_lag_is_complete_if_all_positions_are_known() -> None:
    marks = ShardMarks(
        position=12,
        begin_cursor=3,
        end_cursor=20,
        logs_before_position=100,
        logs_before_end=180,
        next_received_unix_s=NOW - 40,
    )
    assert shard_lag(marks, now_unix_s=NOW) == Lag(groups=8, logs=80, seconds=40.0)


def test_no_lag_is_left_at_the_end_even_if_logs_are_not_counted() -> None:
    assert shard_lag(ShardMarks(position=20, end_cursor=20), now_unix_s=NOW) == NONE_LEFT


def test_the_lag_is_unknown_if_nothing_is_known() -> None:
    assert shard_lag(ShardMarks(), now_unix_s=NOW) == UNKNOWN


def test_the_lag_is_unknown_without_a_position() -> None:
    assert shard_lag(ShardMarks(begin_cursor=5, end_cursor=5), now_unix_s=NOW).groups is None


def test_the_lag_is_unknown_without_an_end() -> None:
    assert shard_lag(ShardMarks(position=5, begin_cursor=5), now_unix_s=NOW).groups is None


def test_logs_and_seconds_are_unknown_if_only_cursors_are_known() -> None:
    assert shard_lag(ShardMarks(position=5, end_cursor=7), now_unix_s=NOW) == Lag(groups=2)


def test_expired_logs_do_not_count() -> None:
    marks = ShardMarks(position=2, begin_cursor=15, end_cursor=20)
    assert shard_lag(marks, now_unix_s=NOW).groups == 5


def test_a_position_past_the_end_counts_as_the_end() -> None:
    assert shard_lag(ShardMarks(position=30, end_cursor=20), now_unix_s=NOW) == NONE_LEFT


def test_an_age_is_not_negative_after_the_clock_was_set_back() -> None:
    marks = ShardMarks(position=1, end_cursor=2, next_received_unix_s=NOW + 9)
    assert shard_lag(marks, now_unix_s=NOW).seconds == 0.0
