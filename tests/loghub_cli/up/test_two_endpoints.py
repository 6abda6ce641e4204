"""One state directory, two log services: what is recorded of a group at one says nothing about the other.
And two objects that name one consumer group."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials, GroupInfo
from loghub_cli.main import main
from loghub_cli.up.credentials import write_folder
from loghub_cli.up.embedded_service import KEYS
from loghub_cli.up.service_options import address_file
from tests.loghub_operator.support.examples import document
from tests.support import running_service

pytestmark = pytest.mark.long

KEY = Credentials(access_key_id="testKeyId", access_key_secret="testKeySecret")
SUSPENDED = {"suspend": True, "deletionPolicy": "Delete", "consumerGroup": "shared"}


@pytest.fixture
def endpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Two log services with one key."""
    with running_service(tmp_path / "one") as one, running_service(tmp_path / "two") as two:
        assert one.credentials == two.credentials == KEY
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", KEY.access_key_id)
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", KEY.access_key_secret)
        yield one.endpoint, two.endpoint


def groups(endpoint: str) -> list[str]:
    return [one.name for one in HttpLogHub(endpoint, "demo", credentials=KEY).list_groups("access")]


def test_down_deletes_no_group_of_another_log_service(
    tmp_path: Path, endpoints: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = endpoints
    file = tmp_path / "cr.yaml"
    file.write_text(yaml.safe_dump(document(SUSPENDED)))

    def loghub(command: str, *more: str) -> tuple[int, str]:
        status = main([command, "-f", str(file), "--state-dir", str(tmp_path / "state"), *more])
        reported = capsys.readouterr()
        return status, reported.out + reported.err

    up = ("--wait-for", "ready", "--plain", "--endpoint")
    assert loghub("up", "--create-logstore", *up, first)[0] == 0
    others = HttpLogHub(second, "demo", credentials=KEY)
    others.create_project()
    others.create_logstore("access", shards=1)
    others.create_group("access", GroupInfo(name="shared", timeout_s=30, order=False))
    status, reported = loghub("up", *up, second)
    assert status == 0
    assert f"left behind at endpoint {first}" in reported
    status, reported = loghub("down", "--endpoint", first)
    assert (status, f"is up at {second}, not at {first}" in reported) == (1, True)
    assert loghub("down")[0] == 0
    assert (groups(first), groups(second)) == (["shared"], ["shared"])


def test_down_deletes_the_group_where_it_was_up(tmp_path: Path, endpoints: tuple[str, str]) -> None:
    file = tmp_path / "cr.yaml"
    file.write_text(yaml.safe_dump(document(SUSPENDED)))
    where = ["-f", str(file), "--state-dir", str(tmp_path / "state")]
    without_scheme = endpoints[0].removeprefix("http://")
    up = ["--create-logstore", "--wait-for", "ready", "--plain", "--endpoint", without_scheme]
    assert main(["up", *where, *up]) == 0
    assert groups(endpoints[0]) == ["shared"]
    assert main(["down", *where]) == 0
    assert groups(endpoints[0]) == []


def test_of_two_objects_that_name_one_consumer_group_the_first_has_it_until_it_is_taken_down(
    tmp_path: Path, endpoints: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    def loghub(command: str, name: str, *more: str) -> tuple[int, str]:
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document(SUSPENDED, name=name)))
        status = main([command, "-f", str(file), "--state-dir", str(tmp_path / "state"), *more])
        reported = capsys.readouterr()
        return status, reported.out + reported.err

    address = endpoints[0].removeprefix("http://")
    service = tmp_path / "state" / "service"  # `endpoint: embedded` is the first of the two
    write_folder(service / KEYS, os.environ)
    address_file(service).write_text(address)
    embedded = ("--create-logstore", "--wait-for", "ready", "--plain")
    up = (*embedded, "--endpoint", f"http://{address.replace('127.0.0.1', 'LocalHost')}/")
    assert loghub("up", "first", *embedded)[0] == 0
    for _ in range(2):  # also with a record of its own
        status, reported = loghub("up", "second", *up)
        assert status == 1
        assert "OwnershipConflict" in reported
        assert "LogHubConsumerGroup first" in reported
    status = main(["status", "second", "--state-dir", str(tmp_path / "state")])
    assert (status, "OwnershipConflict" in capsys.readouterr().out) == (0, True)
    assert loghub("down", "second")[0] == 0
    assert groups(endpoints[0]) == ["shared"], "the first has it still"
    assert loghub("up", "second", *up)[0] == 1
    assert loghub("down", "first", "--endpoint", endpoints[0])[0] == 0
    assert groups(endpoints[0]) == ["shared"], "the second refers to it too"
    assert loghub("up", "second", *up)[0] == 0, "and has it now"
