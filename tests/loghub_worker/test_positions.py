"""The cursors that a worker tells `kubectl loghub reset`."""

from pathlib import Path

import pytest

from loghub.wire import cursor as wire_cursor
from loghub_worker.positions import FAILED, MISUSED, main, positions
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.harness import ONE_GROUP


def test_each_shard_has_its_ends_and_the_position() -> None:
    client = MemoryServer().client("demo")
    client.create_project()
    client.create_logstore("access", shards=2)
    for _ in range(3):
        client.put_logs("access", ONE_GROUP, hash_key="0" * 32)
    found = positions(client, "access", "end", ())
    assert [one["shard"] for one in found] == [0, 1]
    sizes = [wire_cursor.decode(str(one["end"])) - wire_cursor.decode(str(one["begin"])) for one in found]
    assert sizes == [3, 0]
    assert [one["target"] for one in found] == [one["end"] for one in found]
    assert [one["shard"] for one in positions(client, "access", 0, (1,))] == [1]


@pytest.mark.parametrize("arguments", [[], ["yesterday"], ["begin", "x"]])
def test_other_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments, {}) == MISUSED
    assert "usage" in capsys.readouterr().err


def test_outside_a_worker_it_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["begin"], {}) == FAILED
    assert "LOGHUB_WORKER_CONFIG is not set" in capsys.readouterr().err
