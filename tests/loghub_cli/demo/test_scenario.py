"""The demo's scenario without processes: it edits the file, kills the right worker, waits for the moves."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loghub_cli.demo.scenario import ScenarioContext, add_worker, first_row, play
from loghub_cli.up.snapshot import GroupSnapshot
from loghub_cli.up.supervisor import WorkerView
from loghub_operator.api import ShardStatus, Status
from loghub_operator.model.observed import WorkerObserved, WorkerPhase
from loghub_operator.model.revision import UNKNOWN
from tests.support import ROOT

EXAMPLE = ROOT / "deploy" / "examples" / "access-log.yaml"


def snapshot(pids: dict[str, int], holders: list[str]) -> GroupSnapshot:
    workers = tuple(
        WorkerView(
            observed=WorkerObserved(
                name=name,
                ordinal=number,
                phase=WorkerPhase.RUNNING,
                ready=True,
                revision=UNKNOWN,
                drain_requested=False,
            ),
            pid=pid,
            starts=1,
            status=None,
        )
        for number, (name, pid) in enumerate(pids.items())
    )
    shards = tuple(ShardStatus(id=n, state="already_alloc", consumer=who) for n, who in enumerate(holders))
    return GroupSnapshot(at_unix_s=0.0, status=Status(shards=shards), workers=workers)


def test_adding_a_worker_changes_the_number_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "cr.yaml"
    before = EXAMPLE.read_text()
    file.write_text(before)
    assert add_worker(file) == 3
    assert file.read_text() == before.replace("\n  replicas: 2\n", "\n  replicas: 3\n")


@pytest.mark.long
@pytest.mark.parametrize("is_fast", [False, True], ids=["its shards move", "back within the timeout"])
def test_the_scenario_waits_for_what_it_announces(tmp_path: Path, is_fast: bool) -> None:
    file = tmp_path / "cr.yaml"
    file.write_text(EXAMPLE.read_text())
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    reported: list[str] = []
    rows = 0
    shown = snapshot({"w-0": victim.pid, "w-1": 1}, ["w-0", "w-0", "w-1", "w-1"])
    context = ScenarioContext(
        name="w",
        cr_file=file,
        latest_snapshot=lambda: shown,
        rows=lambda: rows,
        clock_s=lambda: 1.0,
        say=reported.append,
    )

    async def until_reported(message: str) -> None:
        async with asyncio.timeout(180):
            while not any(message in one for one in reported):
                await asyncio.sleep(0.01)

    async def run() -> None:
        nonlocal rows, shown

        async def whole() -> None:
            assert await first_row(context, bound_s=60)
            await play(context, pause_s=0.01, bound_s=60)

        story = asyncio.create_task(whole())
        await asyncio.sleep(0.3)
        assert reported == []
        rows = 1
        await until_reported("adds a worker")
        assert victim.poll() is None
        shown = snapshot({"w-0": victim.pid, "w-1": 1, "w-2": 2}, ["w-0", "w-0", "w-1", "w-2"])
        await until_reported("kills w-0")
        assert await asyncio.to_thread(victim.wait, 60) == -signal.SIGKILL
        assert "shard 0, 1" in reported[-1]
        if not is_fast:
            shown = snapshot({"w-1": 1, "w-2": 2}, ["w-1", "w-2", "w-1", "w-2"])
        await asyncio.sleep(0.3)
        assert not story.done(), "the killed one is waited for"
        kept = ["w-0", "w-0" if is_fast else "w-2", "w-1", "w-2"]
        shown = snapshot({"w-0": 9, "w-1": 1, "w-2": 2}, kept)
        await asyncio.wait_for(story, 60)
        assert any("kept its shards" in one for one in reported) == is_fast

    try:
        asyncio.run(run())
    finally:
        victim.kill()
        victim.wait()


def test_an_expectation_that_is_not_met_is_reported_and_the_scenario_continues(tmp_path: Path) -> None:
    reported: list[str] = []
    context = ScenarioContext(
        name="w",
        cr_file=tmp_path / "cr.yaml",
        latest_snapshot=lambda: None,
        rows=lambda: 0,
        clock_s=lambda: 1.0,
        say=reported.append,
    )
    assert not asyncio.run(context.until(lambda: False, "a miracle", bound_s=0.01))
    assert "a miracle" in reported[0]
