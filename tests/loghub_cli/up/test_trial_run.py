"""Changed settings are tried before a worker that runs is stopped for them, with real processes."""

from functools import partial
from pathlib import Path

import pytest

from loghub_cli.up import supervisor
from loghub_cli.up.snapshot import changes
from loghub_operator.api import Status
from loghub_operator.api.conditions import LocalReason
from loghub_operator.model.observed import WorkerPhase
from tests.loghub_cli.up.test_supervisor import Theatre, alive, play

pytestmark = pytest.mark.long


GIVEN_UP = (LocalReason.TRIAL_TIMED_OUT, "the change is not applied: it takes longer than 0 s")


def has_ended(pid: int) -> bool:
    return not alive(pid)


def shown(on: Theatre) -> list[tuple[str, str]]:
    """The reason and the message of each worker that has one."""
    workers = [view.observed for view in on.supervisor.views()]
    return [(one.reason, one.message) for one in workers if one.reason]


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_a_broken_change_leaves_the_workers_running_and_a_corrected_one_replaces_them(
    tmp_path: Path, replicas: int
) -> None:
    async def story(on: Theatre) -> None:
        on.apply(replicas)
        await on.until_ready(replicas)
        pids = [on.pid(ordinal) for ordinal in range(replicas)]
        before = on.supervisor.views()
        on.apply(replicas, "die")
        tried = on.supervisor.views()
        said = list(changes(Status(), Status(), before, tried))
        assert said == ["the change is tried, and the workers run on meanwhile"]
        refused = ("InvalidPipeline", "the change is not applied: no such column")
        await on.until(lambda: shown(on) == [refused], "the failure, once")
        said = list(changes(Status(), Status(), tried, on.supervisor.views()))
        assert said == [
            "the change is not applied, and the workers run on as before: InvalidPipeline: no such column"
        ]
        await on.until(lambda: on.supervisor.trials == 2, "one more trial, after its back-off")
        assert on.phases() == [WorkerPhase.RUNNING] * replicas
        assert [on.pid(ordinal) for ordinal in range(replicas)] == pids
        on.apply(replicas, "serve-otherwise")
        await on.until(
            lambda: (
                on.phases() == [WorkerPhase.RUNNING] * replicas
                and all(on.pid(ordinal) not in pids for ordinal in range(replicas))
            ),
            "workers with the corrected change",
        )
        assert shown(on) == []
        assert on.supervisor.trials == 3, "one for all workers"

    play(tmp_path, story)


def test_a_change_that_is_taken_back_or_stopped_leaves_no_trial(tmp_path: Path) -> None:
    async def story(on: Theatre) -> None:
        def trial() -> int | None:
            found = [int(path.name) for path in Path("/proc").glob("[0-9]*") if is_trial(path)]
            return found[0] if found else None

        def is_trial(path: Path) -> bool:
            try:
                return f"{on.folder.worker('w-trial').state}".encode() in (path / "environ").read_bytes()
            except OSError:
                return False

        on.apply(1)
        await on.until_ready(1)
        pid = on.pid(0)
        for ends in (lambda: on.apply(1), on.supervisor.kill):
            on.apply(1, "hang")
            await on.until(lambda: trial() is not None, "a trial")
            tried = trial()
            assert tried is not None
            ends()
            await on.until(partial(has_ended, tried), "the end of the trial")
        assert on.pid(0) in (pid, None)

    play(tmp_path, story)


def test_a_trial_that_hangs_is_given_up_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MAX_S", 0.2)

    async def story(on: Theatre) -> None:
        on.apply(1)
        await on.until_ready(1)
        on.apply(1, "hang")
        await on.until(lambda: shown(on)[:1] == [GIVEN_UP], "the end of patience")
        assert on.phases() == [WorkerPhase.RUNNING]

    play(tmp_path, story)
