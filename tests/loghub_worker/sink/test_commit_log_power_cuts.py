"""The machine that has the folder of a sink loses power at any step: no line is lost or comes twice."""

import shutil
from pathlib import Path

import pytest

from loghub_worker.sink import exclusive_files, folder_storage
from tests.loghub_worker.sink.commit_log_child import END, LineWorker, delivered, everything
from tests.loghub_worker.sink.power_cuts import Disk


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


def test_a_power_cut_at_any_step_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, ends = tmp_path / "site", tmp_path / "ends"
    site.mkdir()
    ends.mkdir()
    cuts = Cuts(site, ends)
    worker = LineWorker(site, "first", at_step=cuts.at_step)
    with cuts.disk.watched():
        worker.run()
    assert delivered(site) == everything()
    assert cuts.steps >= {"range claimed", "openings checked", "decided", "file moved", "files flushed"}
    for module in (exclusive_files, folder_storage):
        monkeypatch.setattr(module, "sync", lambda path: None)
    for end in cuts.ends:
        LineWorker(end, "second").run()
        assert delivered(end) == everything(), end.name
    assert len(cuts.ends) > 3 * (END - 100) // 10, "no state but those of the steps was tried"
