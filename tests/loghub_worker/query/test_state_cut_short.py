"""Spark's files of a state after a loss of power: they are there, and some without their content.

Spark flushes none of them. What the worker has flushed must be enough to continue exactly; what a disk has
lost all the same must be neither in the way of the shards for good, nor silently missing."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from loghub_worker.state import checkpoint_folder
from loghub_worker.state.checkpoint_folder import last_commit
from loghub_worker.state.ledger import Why
from tests.loghub_worker.query.stateful_stage import Stage, put
from tests.loghub_worker.support import GUARD_S, delivered, prepare
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path / "service") as process:
        yield process


def cut(*files: Path) -> None:
    assert files
    for file in files:
        assert file.with_name(f".{file.name}.crc").exists(), "a state has sums by which a cut is seen"
        file.write_bytes(b"")


def cut_metadata(checkpoint: Path) -> None:
    cut(checkpoint / "metadata")


def cut_plan(checkpoint: Path) -> None:
    cut(checkpoint / "offsets" / str(last_commit(checkpoint)))


def cut_state(checkpoint: Path) -> None:
    cut(*(checkpoint / "state").rglob(f"{last_commit(checkpoint) + 1}.delta"))


def remove_state(checkpoint: Path) -> None:
    version = last_commit(checkpoint) + 1
    for file in (checkpoint / "state").rglob(f"{version}.delta"):
        file.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(cut_metadata, marks=pytest.mark.deep),
        pytest.param(cut_plan, marks=pytest.mark.deep),
        cut_state,
        pytest.param(remove_state, marks=pytest.mark.deep),
    ],
)
def test_a_state_that_cannot_be_read_begins_empty_and_says_so(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    client = prepare(service, shards=1)
    stage = Stage(spark, service, tmp_path)
    threads = stage.start()
    try:
        for number, one in enumerate("ab"):
            put(client, [one])
            stage.wait_for(Counter("ab"[: number + 1]))
        stage.wait_until_ended()
    finally:
        threads.stop()
    damage(stage.ledger.checkpoint)
    threads = stage.start()
    try:
        put(client, ["a", "c"])
        stage.wait_for(Counter("aabc"))
        assert [one.why for one in stage.ledger.incomplete({0}).values()] == [Why.UNUSABLE]
    finally:
        threads.stop()


class Power:
    """Notes what is flushed; `fail` cuts everything else in a folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._flushed: set[tuple[Path, int]] = set()
        self._sync_all = checkpoint_folder.sync_all
        monkeypatch.setattr(checkpoint_folder, "sync_all", self._note)

    def _note(self, paths: list[Path]) -> None:
        self._sync_all(paths)
        self._flushed |= {(path, path.stat().st_ino) for path in paths}

    def fail(self, folder: Path) -> int:
        """The number of files that lost their content."""
        lost = [
            path
            for path in folder.rglob("*")
            if path.is_file() and (path, path.stat().st_ino) not in self._flushed
        ]
        for path in lost:
            path.write_bytes(b"")
        return len(lost)


@pytest.mark.deep
@pytest.mark.parametrize("moment", ["published", "written", "ended"])
def test_a_loss_of_power_at_any_moment_takes_nothing_that_the_state_needs(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    client = prepare(service, shards=1)
    stage, power = Stage(spark, service, tmp_path), Power(monkeypatch)
    threads = stage.start()
    sent: Counter[str] = Counter()
    for one in "ab":
        put(client, [one])
        sent.update(one)
        stage.wait_for(sent)
    stage.wait_until_ended()
    if moment == "ended":
        threads.stop()
    else:
        stage.moments.wanted = moment
        put(client, ["a", "late"])
        sent.update(["late"])
        stage.kill(threads)
    assert power.fail(stage.ledger.checkpoint) > 0 or moment == "published", "what is published was flushed"
    threads = stage.start()
    try:
        put(client, [*sent, "last"])
        sent.update(["last"])
        stage.wait_for(sent)
        assert stage.ledger.incomplete({0}) == {}
        wait_until(lambda: delivered(tmp_path / "sink") == sent, "each once", guard_s=GUARD_S)
    finally:
        threads.stop()
