"""The credentials of a sink: one file each, read whenever they are needed."""

from pathlib import Path

import pytest

from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.sink_start import NO_CREDENTIALS, CredentialFiles


def test_a_rotated_key_is_read(tmp_path: Path) -> None:
    credentials = CredentialFiles(tmp_path)
    for value in ("one", "two"):
        (tmp_path / "password").write_text(f"{value}\n")
        assert credentials.require("password") == value


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_an_absent_or_empty_value_is_refused_with_what_to_do(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "password").write_text(content)
    with pytest.raises(InvalidSinkError, match=r"needs 'password'.*credentialsSecret.*LOGHUB_SINK_CRED"):
        CredentialFiles(tmp_path).require("password")


def test_a_value_that_is_not_needed_may_be_absent(tmp_path: Path) -> None:
    assert CredentialFiles(tmp_path).get("token") is None
    assert NO_CREDENTIALS.get("token") is None


def test_a_value_that_cannot_be_read_is_an_outage(tmp_path: Path) -> None:
    (tmp_path / "password").mkdir()
    with pytest.raises(OSError, match="password"):
        CredentialFiles(tmp_path).get("password")


def test_all_values_of_a_mounted_secret_are_read_without_the_kubelets_folders(tmp_path: Path) -> None:
    data = tmp_path / "..2026_01_31"
    data.mkdir()
    (tmp_path / "..data").symlink_to(data.name)
    for name in ("user", "password"):
        (data / name).write_text(f"my-{name}\n")
        (tmp_path / name).symlink_to(f"..data/{name}")
    assert CredentialFiles(tmp_path).all() == {"user": "my-user", "password": "my-password"}
    assert NO_CREDENTIALS.all() == {}
