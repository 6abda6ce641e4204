"""The service's access key: it is read from a folder or generated, and read again after a rotation."""

import os
from pathlib import Path

import pytest

from loghub.service.credentials import AccessKey, CredentialsFolder, CredentialsMissing, own_folder
from loghub.service.disk import OsDice


def _write(folder: Path, key_id: str, secret: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, value in (("accessKeyId", key_id), ("accessKeySecret", secret)):
        (folder / f"{name}.new").write_text(value)
        os.replace(folder / f"{name}.new", folder / name)


def test_a_trailing_newline_does_not_count(tmp_path: Path) -> None:
    _write(tmp_path, "id\n", "secret\n")
    assert CredentialsFolder(str(tmp_path)).current == AccessKey(key_id="id", secret="secret")


def test_an_unchanged_folder_is_not_read_again(tmp_path: Path) -> None:
    _write(tmp_path, "id", "secret")
    folder = CredentialsFolder(str(tmp_path))
    assert folder.refresh() is False
    _write(tmp_path, "id", "other")
    assert folder.refresh() is True
    assert folder.current.secret == "other"


def test_an_incomplete_rotation_keeps_the_old_key(tmp_path: Path) -> None:
    _write(tmp_path, "id", "secret")
    folder = CredentialsFolder(str(tmp_path))
    (tmp_path / "accessKeySecret").unlink()
    assert folder.refresh() is False
    assert folder.current.secret == "secret"
    _write(tmp_path, "id2", "secret2")
    assert folder.refresh() is True


def test_a_rotation_to_bytes_that_are_not_text_keeps_the_old_key(tmp_path: Path) -> None:
    _write(tmp_path, "id", "secret")
    folder = CredentialsFolder(str(tmp_path))
    (tmp_path / "accessKeySecret").write_bytes(b"\xff\xfe")
    assert folder.refresh() is False
    assert folder.current.secret == "secret"
    with pytest.raises(CredentialsMissing, match="accessKeySecret is not UTF-8 text"):
        CredentialsFolder(str(tmp_path))


@pytest.mark.parametrize("content", ["", " \n"])
def test_an_empty_file_is_named(tmp_path: Path, content: str) -> None:
    _write(tmp_path, "id", content)
    with pytest.raises(CredentialsMissing, match="accessKeySecret is empty"):
        CredentialsFolder(str(tmp_path))


def test_the_secret_is_not_shown() -> None:
    assert "hidden" not in repr(AccessKey(key_id="id", secret="hidden"))


def test_the_own_key_is_generated_once(tmp_path: Path) -> None:
    first = CredentialsFolder(own_folder(str(tmp_path), OsDice())).current
    assert CredentialsFolder(own_folder(str(tmp_path), OsDice())).current == first
