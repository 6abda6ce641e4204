"""The service's access keys: they are read from a folder or generated, and read again after a rotation."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from loghub_service.access_keys import AccessKey, CredentialsFolder, CredentialsMissing, Right, own_folder
from loghub_service.ports import OsRandom
from tests.support import ROOT


def _write(folder: Path, key_id: str, secret: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, value in (("accessKeyId", key_id), ("accessKeySecret", secret)):
        (folder / f"{name}.new").write_text(value)
        os.replace(folder / f"{name}.new", folder / name)


def _secret(folder: CredentialsFolder, key_id: str) -> str:
    key = folder.find(key_id)
    assert key is not None
    return key.secret


def test_a_trailing_newline_does_not_count(tmp_path: Path) -> None:
    _write(tmp_path, "id\n", "secret\n")
    assert CredentialsFolder(str(tmp_path)).find("id") == AccessKey(key_id="id", secret="secret")


def test_an_unchanged_folder_is_not_read_again(tmp_path: Path) -> None:
    _write(tmp_path, "id", "secret")
    folder = CredentialsFolder(str(tmp_path))
    assert folder.refresh() is False
    _write(tmp_path, "id", "other")
    assert folder.refresh() is True
    assert _secret(folder, "id") == "other"


def test_an_incomplete_rotation_keeps_the_old_key(tmp_path: Path) -> None:
    _write(tmp_path, "id", "secret")
    folder = CredentialsFolder(str(tmp_path))
    (tmp_path / "accessKeySecret").unlink()
    assert folder.refresh() is False
    assert _secret(folder, "id") == "secret"
    _write(tmp_path, "id2", "secret2")
    assert folder.refresh() is True


def test_a_rotation_to_bytes_that_are_not_text_keeps_the_old_key(tmp_path: Path) -> None:
    _write(tmp_path, "id", "secret")
    folder = CredentialsFolder(str(tmp_path))
    (tmp_path / "accessKeySecret").write_bytes(b"\xff\xfe")
    assert folder.refresh() is False
    assert _secret(folder, "id") == "secret"
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
    folder = tmp_path / "credentials"
    own_folder(str(tmp_path), OsRandom())
    key_id = (folder / "accessKeyId").read_text()
    first = CredentialsFolder(str(folder)).find(key_id)
    assert first is not None
    assert CredentialsFolder(own_folder(str(tmp_path), OsRandom())).find(key_id) == first


def _write_list(folder: Path, *entries: dict[str, Any]) -> None:
    (folder / "accessKeys.json.new").write_text(json.dumps(entries))
    os.replace(folder / "accessKeys.json.new", folder / "accessKeys.json")


ENTRY = {"accessKeyId": "w", "accessKeySecret": "ws", "projects": ["Demo"], "rights": ["read", "write"]}


def test_a_list_of_keys_has_their_projects_and_rights(tmp_path: Path) -> None:
    _write_list(
        tmp_path,
        ENTRY,
        ENTRY | {"accessKeyId": "s", "projects": ["*"], "securityToken": "t", "rights": ["admin"]},
    )
    folder = CredentialsFolder(str(tmp_path))
    assert folder.find("w") == AccessKey(
        key_id="w",
        secret="ws",
        projects=frozenset({"demo"}),
        rights=frozenset({Right.READ, Right.WRITE}),
    )
    assert folder.find("s") == AccessKey(
        key_id="s", secret="ws", security_token="t", rights=frozenset({Right.ADMIN})
    )
    assert folder.find("id") is None


def test_a_list_and_the_key_of_all_rights_are_combined(tmp_path: Path) -> None:
    _write(tmp_path, "id", "secret")
    (tmp_path / "securityToken").write_text("token\n")
    _write_list(tmp_path, ENTRY)
    folder = CredentialsFolder(str(tmp_path))
    assert folder.find("id") == AccessKey(key_id="id", secret="secret", security_token="token")
    assert folder.find("w") is not None


def test_a_key_that_is_taken_from_the_list_is_no_longer_valid(tmp_path: Path) -> None:
    _write_list(tmp_path, ENTRY, ENTRY | {"accessKeyId": "second"})
    folder = CredentialsFolder(str(tmp_path))
    _write_list(tmp_path, ENTRY)
    assert folder.refresh() is True
    assert (folder.find("w") is None, folder.find("second") is None) == (False, True)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (ENTRY | {"rights": ["delete"]}, "Invalid enum value 'delete'"),
        (ENTRY | {"rights": []}, "rights"),
        (ENTRY | {"projects": []}, "projects"),
        (ENTRY | {"projects": ["a*"]}, "'a\\*' is not a valid project name"),
        (ENTRY | {"accessKeyId": "a:b"}, "accessKeyId"),
        (ENTRY | {"accessKeyId": "a\n"}, "accessKeyId"),
        (ENTRY | {"accessKeySecret": ""}, "accessKeySecret"),
        (ENTRY | {"right": ["read"]}, "unknown field `right`"),
        ({"accessKeyId": "w"}, "accessKeySecret"),
    ],
)
def test_an_invalid_list_is_named_and_the_previous_keys_stay(
    tmp_path: Path, entry: dict[str, Any], expected: str
) -> None:
    _write(tmp_path, "id", "secret")
    folder = CredentialsFolder(str(tmp_path))
    _write_list(tmp_path, ENTRY, entry)
    assert folder.refresh() is False
    assert "accessKeys.json" in folder.problem
    assert folder.find("id") is not None
    with pytest.raises(CredentialsMissing, match=expected) as raised:
        CredentialsFolder(str(tmp_path))
    assert "ws" not in str(raised.value)
    _write_list(tmp_path, ENTRY)
    assert folder.refresh() is True
    assert (folder.problem, folder.find("w") is None) == ("", False)


def test_two_keys_of_the_same_id_are_refused(tmp_path: Path) -> None:
    _write(tmp_path, "w", "secret")
    _write_list(tmp_path, ENTRY)
    with pytest.raises(CredentialsMissing, match="same id"):
        CredentialsFolder(str(tmp_path))


def test_the_documented_list_is_accepted(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "access-keys.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (tmp_path / "accessKeys.json").write_text(example)
    key = CredentialsFolder(str(tmp_path)).find("access-log")
    assert key is not None
    assert key.rights == {Right.READ, Right.WRITE}
