"""A file is replaced whole, and a failed replacement leaves what was there."""

import os
from pathlib import Path

import pytest

from loghub.atomic_file import replace_file


def test_the_old_content_is_replaced_and_no_other_file_remains(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    replace_file(path, b"old")
    replace_file(path, b"new", private=True)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o077 == 0
    assert os.listdir(tmp_path) == ["status.json"]


def test_a_failed_write_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "status.json"
    replace_file(path, b"old")

    def full(_: Path, __: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["status.json"]
