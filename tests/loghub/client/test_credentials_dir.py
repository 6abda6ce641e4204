"""The files of a Secret become one access key."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from loghub.client.credentials_dir import read_key
from loghub.client.port import Credentials


def test_the_files_of_a_folder_become_a_key(tmp_path: Path) -> None:
    (tmp_path / "accessKeyId").write_text("id\n")
    with pytest.raises(FileNotFoundError, match="accessKeySecret"):
        read_key(tmp_path)
    (tmp_path / "accessKeySecret").write_text("secret\n")
    assert read_key(tmp_path) == Credentials(access_key_id="id", access_key_secret="secret")
    (tmp_path / "securityToken").write_text("token\n")
    assert read_key(tmp_path).security_token == "token"


def mount(folder: Path, version: str, secret: str) -> None:
    """As the kubelet mounts a Secret, and replaces it."""
    old = folder / (folder / "..data").readlink() if (folder / "..data").is_symlink() else None
    real = folder / version
    real.mkdir()
    for name, text in (("accessKeyId", f"id of {secret}"), ("accessKeySecret", secret)):
        (real / name).write_text(text)
        if old is None:
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "fresh").symlink_to(version)
    (folder / "fresh").rename(folder / "..data")
    if old is not None:
        shutil.rmtree(old)


def test_a_secret_that_is_replaced_while_it_is_read_gives_no_mixed_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount(tmp_path, "..first", "old")
    real, replaced = Path.read_text, []

    def replacing(path: Path, *args: Any, **kwargs: Any) -> str:
        text = real(path, *args, **kwargs)
        if not replaced:
            replaced.append(path)
            mount(tmp_path, "..second", "new")
        return text

    monkeypatch.setattr(Path, "read_text", replacing)
    assert read_key(tmp_path) == Credentials(access_key_id="id of new", access_key_secret="new")
    assert replaced


def test_a_key_that_is_not_text_is_read_as_a_wrong_key(tmp_path: Path) -> None:
    (tmp_path / "accessKeyId").write_bytes(b"id")
    (tmp_path / "accessKeySecret").write_bytes(b"\xff\xfe secret")
    assert read_key(tmp_path).access_key_id == "id"
