"""A copy of a state folder acts on nothing of the original."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from loghub_cli.connection import ConnectionOptions, Misconfigured, connection
from loghub_cli.main import main
from loghub_cli.up import folder_identity
from loghub_cli.up.embedded_service import EmbeddedService, known_endpoint
from loghub_cli.up.folder_identity import Ownership
from loghub_cli.up.object_store import LocalObject
from loghub_cli.up.paths import Root
from loghub_cli.up.service_options import ServiceOptions, address_file
from tests.loghub_operator.support.examples import document


def moved(folder: Path) -> Path:
    return folder.rename(folder.with_name("moved"))


def copied(folder: Path) -> Path:
    return Path(shutil.copytree(folder, folder.with_name("copied"), symlinks=True))


def of_an_older_release(folder: Path) -> Path:
    Ownership(folder).note.unlink()
    return folder


@pytest.mark.parametrize(
    ("change", "believed"),
    [(lambda folder: folder, True), (moved, True), (of_an_older_release, True), (copied, False)],
)
def test_the_address_of_a_copied_folder_is_not_believed(change: Any, believed: bool, tmp_path: Path) -> None:
    service = tmp_path / "service"
    service.mkdir()
    ServiceOptions().write(service)
    address_file(service).write_text("127.0.0.1:4711\n")
    folder = change(service)
    assert known_endpoint(folder) == ("http://127.0.0.1:4711" if believed else "")
    ServiceOptions().write(folder)  # a start makes it an original with an address of its own
    address_file(folder).write_text("127.0.0.1:4712\n")
    assert known_endpoint(folder) == "http://127.0.0.1:4712"


def test_a_folder_of_another_machine_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ownership(tmp_path).claim()
    (tmp_path / "id").write_text("another machine")
    monkeypatch.setattr(folder_identity, "_MACHINE_ID", tmp_path / "id")
    assert Ownership(tmp_path).copied_from() == str(tmp_path)


@pytest.mark.parametrize("content", ["", "127.0.0.1", "nonsense:x", "\0"])
def test_a_damaged_address_is_no_address(content: str, tmp_path: Path) -> None:
    address_file(tmp_path).write_text(content)
    assert known_endpoint(tmp_path) == ""


def test_the_commands_do_not_reach_the_original_through_a_copy(tmp_path: Path) -> None:
    root = Root(tmp_path / "state")
    (root.service / "data" / "credentials").mkdir(parents=True)
    for name in ("accessKeyId", "accessKeySecret"):
        (root.service / "data" / "credentials" / name).write_text("key")
    ServiceOptions().write(root.service)
    address_file(root.service).write_text("127.0.0.1:4711\n")
    assert (
        connection(ConnectionOptions(state_dir=root.folder), {"HOME": str(tmp_path)}).endpoint
        == "http://127.0.0.1:4711"
    )
    copy = copied(root.folder)
    with pytest.raises(Misconfigured, match="none has run in"):
        connection(ConnectionOptions(state_dir=copy), {"HOME": str(tmp_path)})


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_copied_group_of_another_log_service_is_refused_until_it_is_the_only_one(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = document({"endpoint": "https://cn-hangzhou.log.aliyuncs.com"})
    root = Root(tmp_path / "state")
    name = written["metadata"]["name"]
    LocalObject.accept(root.group(name), written)
    (tmp_path / "cr.yaml").write_text(yaml.safe_dump(written))
    for variable in ("LOGHUB_ACCESS_KEY_ID", "LOGHUB_ACCESS_KEY_SECRET"):
        monkeypatch.delenv(variable, raising=False)  # the next refusal
    copy = copied(root.folder)

    def refusal(folder: Path) -> str:
        assert main([command, "-f", str(tmp_path / "cr.yaml"), "--state-dir", str(folder)]) == 1
        return capsys.readouterr().err

    assert f"is a copy of {root.group(name).folder}" in refusal(copy)
    assert "needs an access key" in refusal(root.folder)
    Ownership(Root(copy).group(name).folder).note.unlink()
    assert "needs an access key" in refusal(copy)


@pytest.mark.long
def test_the_service_of_a_copy_is_another_one(tmp_path: Path) -> None:
    async def story() -> None:
        first = EmbeddedService(Root(tmp_path / "state"), say=print)
        second: EmbeddedService | None = None
        try:
            await first.ensure()
            second = EmbeddedService(Root(copied(tmp_path / "state")), say=print)
            await second.ensure()
            assert second.ours
            assert second.endpoint != first.endpoint
        finally:
            for one in (first, second):
                if one is not None:
                    await one.end()

    asyncio.run(story())
