"""What is done with a batch that Spark hands over, and how a batch is forgotten in Spark's checkpoint folder.

After a loss of power so much of its files is forgotten that Spark can continue, and no more.

`tests/loghub_worker/query/test_state_cut_short.py` has the loss of power with a real Spark.
"""

from pathlib import Path

import pytest

from loghub_consumer.batch_plan import Range
from loghub_worker.state.checkpoint_folder import forget_cut_off, last_commit, pending_batch, roll_back
from loghub_worker.state.pending_batch import PendingStep, next_step


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batch 2 is planned; 0 and 1 have ended."""
    for name in ("metadata", *(f"offsets/{n}" for n in range(3)), *(f"commits/{n}" for n in range(2))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('v1\n{"id": 1}')
    return tmp_path


def cut(checkpoint: Path, name: str) -> None:
    (checkpoint / name).write_bytes(b"")


def test_nothing_is_forgotten_of_what_is_whole(checkpoint: Path) -> None:
    assert forget_cut_off(checkpoint, delivered=1, publishing=2)
    assert (last_commit(checkpoint), pending_batch(checkpoint)) == (1, 2)


def test_the_end_of_a_batch_that_the_sink_has_is_forgotten_with_the_plan_of_the_next(
    checkpoint: Path,
) -> None:
    cut(checkpoint, "commits/1")
    assert forget_cut_off(checkpoint, delivered=1, publishing=1)
    assert (last_commit(checkpoint), pending_batch(checkpoint)) == (0, 1)


def test_the_plan_of_a_batch_that_the_sink_cannot_have_is_forgotten(checkpoint: Path) -> None:
    cut(checkpoint, "offsets/2")
    assert forget_cut_off(checkpoint, delivered=1, publishing=1)
    assert (last_commit(checkpoint), pending_batch(checkpoint)) == (1, None)


@pytest.mark.parametrize(
    ("name", "delivered", "publishing"),
    [
        ("commits/1", 0, 0),  # the sink does not have its batch
        ("commits/1", 1, 2),  # the sink may have the next batch, which needs the state
        ("offsets/2", 1, 2),  # the sink may have it
        ("offsets/2", 2, 1),
        ("offsets/0", 1, 1),
        ("commits/0", 1, 1),
        ("metadata", 1, 1),
    ],
)
def test_whatever_else_is_cut_off_is_too_much(
    checkpoint: Path, name: str, delivered: int, publishing: int
) -> None:
    cut(checkpoint, name)
    assert not forget_cut_off(checkpoint, delivered=delivered, publishing=publishing)


def test_a_file_that_is_not_that_of_its_sums_is_too_much(checkpoint: Path) -> None:
    (checkpoint / ".metadata.crc").write_bytes(b"crc\x00")
    assert not forget_cut_off(checkpoint, delivered=1, publishing=2)


BOTH = (Range(0, 0, 10), Range(1, 5, 8))


@pytest.mark.parametrize(
    ("positions", "may_be_delivered", "step"),
    [
        ({}, False, PendingStep.WAIT),  # no member, or no shard yet
        ({0: 0, 1: None}, False, PendingStep.WAIT),  # one is being opened
        ({0: 0, 1: 5}, False, PendingStep.DELIVER),
        ({0: 0, 1: 5}, True, PendingStep.DELIVER),  # the sink did not get it
        ({0: 0, 1: 5, 2: None}, False, PendingStep.DELIVER),  # another shard does not matter
        ({0: 10, 1: 8}, True, PendingStep.REPLAY),
        ({0: 10}, True, PendingStep.REPLAY),  # the other shard moved away after that
        ({0: 10, 1: 8}, False, PendingStep.ROLL_BACK),  # other workers delivered the same ranges
        ({0: 0}, False, PendingStep.ROLL_BACK),  # the other shard moved away before that
        ({0: 0}, True, PendingStep.ROLL_BACK),
        ({0: 0, 1: 7}, True, PendingStep.ROLL_BACK),  # another worker has read a part
        ({2: 0}, True, PendingStep.ROLL_BACK),  # both moved away
    ],
)
def test_the_step_follows_from_the_positions(
    positions: dict[int, int | None], may_be_delivered: bool, step: PendingStep
) -> None:
    assert next_step(BOTH, positions, is_delivered=False, may_be_delivered=may_be_delivered) is step


@pytest.mark.parametrize("positions", [{}, {0: 0, 1: 5}, {0: 10, 1: 8}, {2: None}])
def test_what_the_sink_is_known_to_have_is_only_computed(positions: dict[int, int | None]) -> None:
    assert next_step(BOTH, positions, is_delivered=True, may_be_delivered=True) is PendingStep.REPLAY


def test_a_batch_that_has_not_ended_is_forgotten_with_the_state_that_it_left(tmp_path: Path) -> None:
    kept = ("offsets/3", "commits/3", "state/0/0/4.delta", "state/0/0/.4.delta.crc", "state/0/0/3.snapshot",
            "state/0/_metadata/metadata", "state/0/1/4.zip", "metadata")  # fmt: skip
    gone = ("offsets/4", "offsets/.4.crc", "state/0/0/5.delta", "state/0/0/.5.delta.crc",
            "state/0/1/5.snapshot", "state/0/1/5_a-b.zip", "state/0/1/5.changelog")  # fmt: skip
    for name in (*kept, *gone):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert (last_commit(tmp_path), pending_batch(tmp_path)) == (3, 4)
    roll_back(tmp_path)
    left = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert left == set(kept)
    assert pending_batch(tmp_path) is None


def test_an_empty_folder_has_no_batch(tmp_path: Path) -> None:
    assert (last_commit(tmp_path), pending_batch(tmp_path)) == (-1, None)
    roll_back(tmp_path)
