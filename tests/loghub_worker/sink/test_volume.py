"""Who is at fault for an error of Spark: the volume of the target, or anything else."""

import errno
import secrets
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from loghub_worker.sink.files.storage import writing_to

FAILED = PySparkException("[TASK_WRITE_FAILED] Task failed while writing rows")


def test_an_error_of_spark_stays_if_the_volume_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(PySparkException), writing_to(tmp_path):
        raise FAILED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "number"), [("sink", errno.ENOTDIR), ("gone", errno.ENOENT)], ids=["a-file", "gone"]
)
def test_it_becomes_the_error_of_a_volume_that_cannot(tmp_path: Path, place: str, number: int) -> None:
    (tmp_path / "sink").write_text("a file, as where a volume is not mounted any more")
    with pytest.raises(OSError, match=place) as raised, writing_to(tmp_path / place / "stage"):
        raise FAILED
    assert raised.value.errno == number
    assert raised.value.__context__ is FAILED


def test_what_a_full_disk_has_no_room_for_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "part")
    (tmp_path / "part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=str(tmp_path / "part")) as raised, writing_to(tmp_path):
        raise FAILED
    assert raised.value.errno == errno.ENOSPC


def test_a_jvm_that_exited_and_a_target_elsewhere_are_no_matter_of_a_volume(tmp_path: Path) -> None:
    with pytest.raises(Py4JNetworkError), writing_to(tmp_path / "gone"):
        raise Py4JNetworkError("Answer from Java side is empty")
    with pytest.raises(PySparkException), writing_to(None):
        raise FAILED
