"""The supervisor with real processes (`fake_worker`): names, restarts, drains, settings, termination."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from loghub.clock import SystemClock
from loghub.contract.worker import DRAIN_REQUESTED, SqlPipeline, WorkerConfig
from loghub_cli.up.backend import revision_of
from loghub_cli.up.paths import GroupFolder
from loghub_cli.up.supervisor import Supervisor, WorkerView, end_orphans, find_orphans
from loghub_cli.up.worker_process import WorkerProgram
from loghub_operator.model.observed import Placement, WorkerPhase
from loghub_operator.model.revision import WorkerSpec
from loghub_operator.resources.worker_config import worker_config
from tests.loghub_operator.support.examples import resource
from tests.support import ROOT, wait_until

pytestmark = pytest.mark.long

GUARD_S = 120.0
FAKE = (sys.executable, "-m", "tests.loghub_cli.up.fake_worker")
CONFIG = worker_config(
    resource(), Placement(endpoint="http://127.0.0.1:1", sink_root="/sink", needs_project_address=False)
)


class Theatre:
    """A supervisor over fake workers; every process is ended at the end."""

    def __init__(self, folder: Path, grace_s: float = 30.0) -> None:
        self.folder = GroupFolder(folder / "group")
        self.supervisor = Supervisor(
            name="w",
            folder=self.folder,
            program=WorkerProgram(
                command=FAKE, environment={**os.environ, "PYTHONPATH": str(ROOT)}, grace_s=grace_s
            ),
            clock=SystemClock(),
            on_change=lambda: None,
        )

    def apply(self, replicas: int, how: str = "serve", *, stateful: bool = False, **variables: str) -> None:
        config = msgspec.structs.replace(with_sql(f"{how}: SELECT 1"), stateful=stateful)
        self.supervisor.apply(
            WorkerSpec(revision=revision_of(config, variables, generation=1), config=config),
            replicas=replicas,
            variables=variables,
        )

    def view(self, ordinal: int) -> WorkerView | None:
        views = self.supervisor.views()
        return next((one for one in views if one.observed.ordinal == ordinal), None)

    def starts(self, ordinal: int) -> int:
        result = self.view(ordinal)
        return result.starts if result else 0

    def pid(self, ordinal: int) -> int | None:
        result = self.view(ordinal)
        return result.pid if result else None

    def phases(self) -> list[WorkerPhase]:
        self.supervisor.tick()
        return [one.observed.phase for one in self.supervisor.views()]

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(GUARD_S):
                while not holds():
                    await asyncio.sleep(0.02)
                    self.supervisor.tick()
        except TimeoutError:
            pytest.fail(f"not seen: {what}; {self.supervisor.observed()}")

    async def until_ready(self, replicas: int) -> None:
        await self.until(lambda: self.phases() == [WorkerPhase.RUNNING] * replicas, f"{replicas} ready")


def with_sql(sql: str) -> WorkerConfig:
    return msgspec.structs.replace(CONFIG, pipeline=SqlPipeline(text=sql))


def play(folder: Path, story: Callable[[Theatre], Awaitable[None]], *, grace_s: float = 30.0) -> None:
    async def whole() -> None:
        theatre = Theatre(folder, grace_s)
        try:
            await story(theatre)
        finally:
            theatre.supervisor.kill()
            await theatre.supervisor.end()

    asyncio.run(whole())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def test_a_restarted_worker_finds_what_its_last_process_left_unless_its_settings_changed(
    tmp_path: Path,
) -> None:
    """As in a pod: a restarted container has the same volumes, and a new pod has none of the old one's."""

    async def story(on: Theatre) -> None:
        on.apply(1)
        await on.until_ready(1)
        left = on.folder.worker("w-0").state / "left"
        left.touch()
        pid = on.pid(0)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await on.until(lambda: on.starts(0) == 2, "a restart")
        assert left.exists()
        await on.until_ready(1)
        on.apply(1, SETTING="changed")
        await on.until(lambda: on.starts(0) == 3, "a worker with other settings")
        assert not left.exists()

    play(tmp_path, story)


def test_the_state_of_a_pipeline_outlives_changes_and_the_workers_themselves(tmp_path: Path) -> None:
    """As in a cluster, where it is on a volume of each pod's name."""

    async def story(on: Theatre) -> None:
        on.apply(2, stateful=True)
        await on.until_ready(2)
        left = [on.folder.worker(f"w-{n}").state / "left" for n in range(2)]
        for one in left:
            one.touch()
        on.apply(1, stateful=True, SETTING="changed")
        await on.until(lambda: on.starts(0) == 2 and on.pid(1) is None, "one worker with other settings")
        assert all(one.exists() for one in left)

    play(tmp_path, story)


def test_workers_are_named_like_pods_and_get_ready(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        on.apply(2)
        await on.until_ready(2)
        assert [one.name for one in on.supervisor.observed()] == ["w-0", "w-1"]
        assert on.supervisor.worker_set is not None
        assert on.supervisor.worker_set.replicas == 2

    play(tmp_path, story)


def test_a_killed_worker_comes_back_under_its_name(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        on.apply(2)
        await on.until_ready(2)
        first, other = on.pid(0), on.pid(1)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await on.until(lambda: on.view(0).observed.phase is WorkerPhase.FAILED, "failed")  # type: ignore[union-attr]
        events = on.view(0)
        assert events is not None
        assert events.observed.message == "killed by SIGKILL"
        await on.until_ready(2)
        assert on.pid(0) not in (None, first)
        assert on.pid(1) == other
        assert on.starts(0) == 2

    play(tmp_path, story)


def test_the_termination_message_is_kept_until_the_settings_change(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        on.apply(1, "die")
        await on.until(lambda: on.starts(0) >= 2, "a second try")
        await on.until(lambda: on.phases() == [WorkerPhase.FAILED], "failed again")
        (worker,) = on.supervisor.observed()
        assert (worker.reason, worker.message) == ("InvalidPipeline", "no such column")
        on.apply(1, "serve")
        await on.until_ready(1)

    play(tmp_path, story)


def test_a_worker_without_a_message_is_reported_by_its_exit_status(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        on.apply(1, "silent-death")
        await on.until(lambda: on.phases() == [WorkerPhase.FAILED], "failed")
        assert on.supervisor.observed()[0].message == "exit status 3"

    play(tmp_path, story)


def test_a_drain_is_requested_once_and_removal_stops_the_worker(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        on.apply(2)
        await on.until_ready(2)
        on.supervisor.ask_leave("w-1")
        since = on.supervisor.observed()[1].drain_requested_at_unix_s
        on.supervisor.ask_leave("w-1")
        assert on.folder.worker("w-1").drain.read_text() == DRAIN_REQUESTED
        assert on.supervisor.observed()[1].drain_requested_at_unix_s == since
        await on.until(lambda: on.phases() == [WorkerPhase.RUNNING, WorkerPhase.LEFT], "left")
        pid = on.pid(1)
        assert pid is not None
        on.apply(1)
        await on.until_ready(1)
        assert not alive(pid)
        assert not on.folder.worker("w-1").state.exists()

    play(tmp_path, story)


def test_a_restart_cancels_the_drain_request(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        on.apply(1)
        await on.until_ready(1)
        on.supervisor.ask_leave("w-0")
        await on.until(lambda: on.phases() == [WorkerPhase.LEFT], "left")
        on.supervisor.restart("w-0")
        await on.until_ready(1)
        assert not on.supervisor.observed()[0].drain_requested

    play(tmp_path, story)


def test_a_crash_does_not_cancel_the_drain_request(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        on.apply(1)
        await on.until_ready(1)
        on.supervisor.ask_leave("w-0")
        pid = on.pid(0)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await on.until(lambda: on.pid(0) not in (None, pid) and on.phases() == [WorkerPhase.LEFT], "left")
        assert on.supervisor.observed()[0].drain_requested

    play(tmp_path, story)


def test_other_settings_replace_one_worker_at_a_time(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        on.apply(2)
        await on.until_ready(2)
        old = {on.pid(0), on.pid(1)}
        fewest = 2

        def both_new() -> bool:
            nonlocal fewest
            fewest = min(fewest, on.phases().count(WorkerPhase.RUNNING))
            return not old & {on.pid(0), on.pid(1)} and on.phases() == [WorkerPhase.RUNNING] * 2

        on.apply(2, "serve-otherwise")
        await on.until(both_new, "both replaced")
        assert fewest == 1

    play(tmp_path, story)


def test_a_worker_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        on.apply(1, "deaf")
        await on.until_ready(1)
        pid = on.pid(0)
        assert pid is not None
        await on.supervisor.end()
        assert not alive(pid)

    play(tmp_path, story, grace_s=0.3)


def test_processes_that_a_worker_started_end_with_it(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        on.apply(1, "child")
        await on.until_ready(1)
        worker, child = on.pid(0), int((on.folder.worker("w-0").state / "child").read_text())
        assert worker is not None
        os.kill(worker, signal.SIGKILL)
        await on.until(lambda: not alive(child), "the child's end")

    play(tmp_path, story)


PARENT = """
import asyncio, sys
from pathlib import Path
from tests.loghub_cli.up.test_supervisor import Theatre

async def main():
    theatre = Theatre(Path(sys.argv[1]))
    theatre.apply(2)
    await theatre.until_ready(2)
    print(theatre.pid(0), theatre.pid(1), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal at a parent's death is Linux's")
def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    try:
        assert parent.stdout is not None
        pids = [int(part) for part in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
    finally:
        parent.kill()
        parent.wait(GUARD_S)
    wait_until(lambda: not any(alive(pid) for pid in pids), "the workers' end", guard_s=GUARD_S)


@pytest.mark.skipif(sys.platform != "linux", reason="leftovers are known by /proc")
def test_leftovers_of_a_killed_run_are_found_and_ended(tmp_path: Path) -> None:
    workers = tmp_path / "group" / "workers"
    state = workers / "w-0" / "state"
    mine = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, "LOGHUB_STATE_DIR": str(state)},
    )
    other = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, "LOGHUB_STATE_DIR": str(tmp_path / "group2" / "workers" / "w-0" / "state")},
    )
    try:
        wait_until(lambda: find_orphans(workers) == (mine.pid,), "the leftover's environment")
        assert end_orphans(workers) == 1
        assert mine.wait(GUARD_S) == -signal.SIGKILL
        assert other.poll() is None
        assert find_orphans(workers) == ()
    finally:
        for process in (mine, other):
            process.kill()
            process.wait(GUARD_S)


def test_a_worker_whose_folder_cannot_be_created_is_reported_and_retried(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        in_the_way = on.folder.worker("w-0").state
        in_the_way.parent.mkdir(parents=True)
        in_the_way.touch()
        on.apply(1)
        assert on.phases() == [WorkerPhase.FAILED]
        (errors,) = on.supervisor.observed()
        assert errors.reason == "StartFailed"
        assert str(in_the_way) in errors.message
        in_the_way.unlink()
        await on.until_ready(1)

    play(tmp_path, story)


def test_a_drain_request_that_could_not_be_written_is_repeated(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        on.apply(1)
        await on.until_ready(1)
        in_the_way = on.folder.worker("w-0").drain
        in_the_way.mkdir()
        with pytest.raises(IsADirectoryError):
            on.supervisor.ask_leave("w-0")
        assert not on.supervisor.observed()[0].drain_requested
        in_the_way.rmdir()
        on.supervisor.ask_leave("w-0")
        await on.until(lambda: on.phases() == [WorkerPhase.LEFT], "left")

    play(tmp_path, story)
