"""The lag of a group over a watch: unknown is not zero."""

import pytest

from loghub_cli.plugin.lag_trend import lag_rows, sparkline, trend
from tests.loghub_cli.plugin.objects import group, shard


@pytest.mark.parametrize(
    ("lags", "word", "bars"),
    [
        ([1.0], None, "█"),
        ([None, 0.0, 0.0], "steady", " ▁▁"),
        ([10.0, 40.0, 80.0], "rising", "▂▅█"),
        ([80.0, None, 10.0], "falling", "█ ▂"),
        ([100.0, 98.0], "steady", "██"),
        ([], None, ""),
    ],
)
def test_a_trend_is_a_word_and_a_picture(lags: list[float | None], word: str | None, bars: str) -> None:
    assert (trend(lags), sparkline(lags)) == (word, bars)


def test_what_is_unknown_comes_first_and_the_total_last() -> None:
    shards = [shard(1), shard(5), shard(2, lagSeconds=None, lagLogs=None), shard(9, state="over")]
    rows = lag_rows(group(shards=shards, lag={"seconds": 5, "logs": None}))
    assert [(row["shard"], row["lagSeconds"]) for row in rows] == [(2, None), (5, 5), (1, 1), ("total", 5)]
    assert rows[-1]["lagLogs"] is None
