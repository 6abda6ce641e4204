"""What the driver tells the source of the size of files."""

from pathlib import Path

import pytest

from loghub.contract.sinks import FileRoll
from loghub_consumer.reading.shard_reader import ReadCount
from tests.loghub_worker.query.open_shard import BEGIN, OpenShard
from tests.loghub_worker.query.test_streaming_query import no_space


def test_the_source_learns_how_large_the_files_of_a_batch_become(tmp_path: Path) -> None:
    """At once if they become larger, and by half of the difference if they become smaller."""
    open_shard = OpenShard(tmp_path, roll=FileRoll(target_bytes=1 << 20, max_delay_s=60))
    assert open_shard.exchange.file_share().bytes == 1.0
    shares = []
    for number, file_bytes in enumerate((250, 500, 0)):
        open_shard.sink.file_bytes = file_bytes
        open_shard.counts[0] = ReadCount(logs=20, bytes=500)
        open_shard.batch(BEGIN + 10 * number, BEGIN + 10 * number + 10)
        shares.append(open_shard.exchange.file_share().bytes)
    assert shares == [0.5, 1.0, 0.5]


def test_a_share_that_cannot_be_written_fails_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_shard = OpenShard(tmp_path, roll=FileRoll(target_bytes=1 << 20, max_delay_s=60))
    monkeypatch.setattr(open_shard.exchange, "write_file_share", no_space)
    open_shard.deliver(ReadCount(logs=20, bytes=500))
