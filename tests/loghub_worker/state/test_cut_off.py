"""What is forgotten of Spark's files after a loss of power, so that Spark can continue, and what is too much.

`tests/loghub_worker/query/test_state_cut_short.py` has the same with a real Spark."""

from pathlib import Path

import pytest

from loghub_worker.state.checkpoint_folder import forget_cut_off, last_commit, pending_batch


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
