"""Which process a shard gets."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from loghub_worker.processing.cores import available_cores
from loghub_worker.processing.process_pool import choose


@given(st.lists(st.integers(0, 500), unique=True, min_size=1, max_size=40), st.integers(1, 9))
def test_no_process_has_two_shards_more_than_another(shards: list[int], processes: int) -> None:
    loads = [0] * processes
    for shard in shards:
        loads[choose(shard, loads)] += 1
    assert max(loads) - min(loads) <= 1


def test_among_processes_with_equal_loads_the_number_of_the_shard_decides() -> None:
    assert [choose(shard, [0, 0, 0]) for shard in range(6)] == [0, 1, 2, 0, 1, 2]
    assert choose(0, [1, 0, 0]) == 1
    assert choose(2, [1, 0, 1]) == 1


def test_a_limit_of_cpu_bounds_the_cores(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    unlimited = available_cores(tmp_path / "missing")
    limit.write_text("max 100000\n")
    assert available_cores(limit) == unlimited >= 1
    limit.write_text("20000 100000\n")
    assert available_cores(limit) == 1
    limit.write_text(f"{(unlimited + 1) * 100_000} 100000\n")
    assert available_cores(limit) == unlimited
