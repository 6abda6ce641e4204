"""The benchmark of the Kafka endpoint measures every row on both sides, so that it does not rot unnoticed."""

from pathlib import Path

import pytest

from tests import kafka
from tests.cluster import require
from tests.loghub_service.kafka import bench_broker


@pytest.mark.long
@pytest.mark.parametrize("peer", ["service", pytest.param("broker", marks=pytest.mark.deep)])
def test_every_row_is_measured_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: str
) -> None:
    """A second service takes the place of the broker, whose start costs more than all of the rest."""
    if peer == "service":
        monkeypatch.setattr(bench_broker, "a_broker", bench_broker.a_service)
    elif reason := kafka.missing():
        require.absent(reason)
    for size, value in (("ROUNDS", 1), ("LOGS", 400), ("ALONE", 20)):
        monkeypatch.setattr(bench_broker, size, value)
    (rows,) = bench_broker.measure(tmp_path, [])
    assert len(rows) == 7
    for service, broker in rows.values():
        assert service.records == broker.records
        assert service.mb == broker.mb
