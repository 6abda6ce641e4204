"""The files of a Secret become one access key."""

from pathlib import Path

import pytest

from loghub.client.keyfolder import read_key
from loghub.client.port import Credentials


def test_files_to_key(tmp_path: Path) -> None:
    (tmp_path / "accessKeyId").write_text("id\n")
    with pytest.raises(FileNotFoundError, match="accessKeySecret"):
        read_key(tmp_path)
    (tmp_path / "accessKeySecret").write_text("secret\n")
    assert read_key(tmp_path) == Credentials(access_key_id="id", access_key_secret="secret")
    (tmp_path / "securityToken").write_text("token\n")
    assert read_key(tmp_path).security_token == "token"
