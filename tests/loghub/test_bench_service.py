"""The benchmark of the service measures every figure that has a goal, so that it does not rot unnoticed."""

from pathlib import Path

import pytest

from tests.loghub import bench_service


@pytest.mark.long
def test_every_goal_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("ROUNDS", "PUTS", "SMALL", "PULLS", "SYNCS"):
        monkeypatch.setattr(bench_service, size, 1)
    (rows,) = bench_service.measure(tmp_path, ["put", "small", "pull", "shards"])
    with_broker = bench_service.with_ratio(rows | {bench_service.BROKER: 2.0})
    assert bench_service.GOALS.keys() <= with_broker.keys()
    assert with_broker[bench_service.RATIO] == rows[bench_service.PUT] / 2
