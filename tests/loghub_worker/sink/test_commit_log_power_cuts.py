"""The machine that has the folder of a sink loses power at any step: no line is lost or comes twice."""

import shutil
from pathlib import Path

import pytest

from loghub import atomic_file
from loghub_worker.sink.files import storage
from tests.loghub_worker.sink.commit_log_child import LineWorker, delivered, everything
from tests.loghub_worker.sink.power_cuts import Disk
from tests.loghub_worker.sink.test_commit_log_takeover import DiedError, die_at


class Cuts:
    """Cuts the power at each step of a worker, in each way that `Disk` knows. The log service, which is
    elsewhere, keeps its checkpoints."""

    def __init__(self, site: Path, ends: Path) -> None:
        self._site = site
        self._ends = ends
        self.disk = Disk(site / "sink")
        self.steps: set[str] = set()
        self.ends: list[Path] = []
        self._seen: set[object] = set()

    def at_step(self, step: str) -> None:
        self.steps.add(step)
        for kept in (None, *self.disk.unflushed()):
            end = self._ends / f"{len(self.ends)}-{step}-{kept.name if kept else 'nothing'}".replace(" ", "-")
            end.mkdir()
            self.disk.after_a_cut(end / "sink", kept=kept)
            shutil.copytree(self._site / "checkpoints", end / "checkpoints")
            files = {path.relative_to(end): path.read_bytes() for path in end.rglob("*") if path.is_file()}
            if (state := frozenset(files.items())) in self._seen:
                shutil.rmtree(end)
            else:
                self._seen.add(state)
                self.ends.append(end)


@pytest.mark.long
@pytest.mark.parametrize(
    ("killed_at", "folders"),
    [(None, ["", ""]), ("files moved", ["", ""]), (None, ["day=1/hour=1", "day=1/hour=2"])],
    ids=["files", "files of a worker that was killed", "partitions"],
)
def test_a_power_cut_at_any_step_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str | None, folders: list[str]
) -> None:
    """Also if the next worker has found the files moved, and if their folders are new."""
    site, ends = tmp_path / "site", tmp_path / "ends"
    site.mkdir()
    ends.mkdir()
    cuts = Cuts(site, ends)
    LineWorker(site, "any")  # makes the folders
    with cuts.disk.watched():
        if killed_at is not None:
            with pytest.raises(DiedError):
                LineWorker(site, "first", at_step=die_at(killed_at)).run()
        worker = LineWorker(site, "next", at_step=cuts.at_step)
        worker.folders = folders
        worker.run()
    assert delivered(site) == everything()
    assert cuts.steps >= {"range claimed", "openings checked", "decided", "file moved", "files flushed"}
    for module in (atomic_file, storage):
        monkeypatch.setattr(module, "sync", lambda path: None)
    for end in cuts.ends:
        LineWorker(end, "second").run()
        assert delivered(end) == everything(), end.name
    assert len(cuts.ends) > len(cuts.steps), "no state but those after a kill was tried"
