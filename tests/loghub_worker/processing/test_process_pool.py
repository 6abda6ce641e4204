"""Which process a shard gets, and how processes start and end."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub_consumer.processes.child_process import (
    ChildProcess,
    ProcessPool,
    ProcessSettings,
    ProcessUnavailableError,
    choose,
)
from loghub_consumer.processes.messages import Load
from loghub_worker.processing.processor_worker import available_cores
from tests.support import wait_until


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


@given(st.lists(st.integers(0, 500), unique=True, min_size=1, max_size=20), st.integers(1, 5), st.randoms())
def test_shards_that_remain_are_spread_again_whichever_others_have_left(
    shards: list[int], count: int, random: Random
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChildProcess, "start", lambda _: None)
        pool = ProcessPool(count, settings_of("mine:Mine", None))
        for shard in shards:
            pool.take(shard, shard)
        remaining = random.sample(shards, random.randint(1, len(shards)))
        for shard in set(shards) - set(remaining):
            pool.give_back(shard)
        for shard in remaining:  # each has its next batch
            pool.move(shard, shard)
        loads = [len(one.shards) for one in pool.progress()]
        assert sum(loads) == len(remaining)
        assert max(loads) - (min(loads) if len(loads) == count else 0) <= 1
        assert [pool.move(shard, shard) for shard in remaining] == [None] * len(remaining)


def test_a_limit_of_cpu_bounds_the_cores(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    unlimited = available_cores(tmp_path / "missing")
    limit.write_text("max 100000\n")
    assert available_cores(limit) == unlimited >= 1
    limit.write_text("20000 100000\n")
    assert available_cores(limit) == 1
    limit.write_text(f"{(unlimited + 1) * 100_000} 100000\n")
    assert available_cores(limit) == unlimited


MINE = """
from loghub_consumer import Processor
class Mine(Processor):
    def process(self, logs, tracker): ...
"""


def settings_of(factory: str, folder: str | None, *, load_timeout_s: float = 60.0) -> ProcessSettings:
    return ProcessSettings(
        load=Load(factory, folder),
        load_timeout_s=load_timeout_s,
        load_setting="pipeline.processor.loadTimeoutSeconds",
        environment=os.environ,
        send_timeout_s=60.0,
        random=random.random,
    )


@contextmanager
def started(
    folder: Path, code: str, *, load_timeout_s: float = 60.0
) -> Iterator[tuple[ProcessPool, ChildProcess]]:
    """A process with a processor of these lines."""
    code_folder = folder / "code"
    code_folder.mkdir()
    (code_folder / "mine.py").write_text(code)
    pool = ProcessPool(1, settings_of("mine:Mine", str(code_folder), load_timeout_s=load_timeout_s))
    try:
        yield pool, pool.start_first()
    finally:
        pool.close()


@pytest.mark.long
def test_code_that_takes_too_long_to_load_is_ended_with_words_that_say_so(tmp_path: Path) -> None:
    endless = "import signal; signal.pause()"
    with started(tmp_path, endless, load_timeout_s=0.5) as (pool, process):
        with pytest.raises(ProcessUnavailableError, match=r"^process 0 is being started$"):
            process.await_loaded(lambda: False)  # as for a shard that is given up
        wait_until(lambda: pool.progress()[0].message != "", "the end")
        why = "its code was not loaded within 0.5 s; raise pipeline.processor.loadTimeoutSeconds"
        assert pool.progress()[0].message == f"killed by the worker: {why}"
        with pytest.raises(ProcessUnavailableError, match=f"it ended before: killed by the worker: {why}"):
            process.await_loaded(lambda: False)


@pytest.mark.long
def test_files_of_the_current_folder_replace_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("select", "msgspec", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    with started(tmp_path, MINE) as (pool, process):
        process.await_loaded(lambda: pool.progress()[0].message == "")
