"""The benchmark of the service measures every figure that has a goal, so that it does not rot unnoticed."""

from pathlib import Path

import pytest

from tests.loghub import bench_service


@pytest.mark.long
def test_every_goal_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("ROUNDS", "SMALL", "PULLS", "SYNCS"):
        monkeypatch.setattr(bench_service, size, 1)
    monkeypatch.setattr(
        bench_service, "SIZES", {size: (logs, 1) for size, (logs, _) in bench_service.SIZES.items()}
    )
    (rows,) = bench_service.measure(tmp_path, ["put", "small", "pull", "shards"])
    others = {f"{bench_service.BARE} of 64 times {size}, MB/s": 4.0 for size in bench_service.SIZES}
    with_others = bench_service.with_ratio(rows | others | {bench_service.BROKER: 2.0})
    assert bench_service.GOALS.keys() <= with_others.keys()
    assert with_others[bench_service.RATIO] == rows[bench_service.PUT] / 2
    assert with_others[bench_service.ratio_of("1 MB")] == rows["PutLogs of 1 MB, MB/s"] / 4
