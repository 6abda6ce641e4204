"""`loghub`: rejections with the apiserver's messages, and the life of a group with a real service.

The workers are `tests.loghub_cli.up.fake_worker` processes; the demo's test covers what
they do with logs.
"""

import contextlib
import copy
import errno
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from loghub_cli.main import main
from loghub_cli.up import commands as up_module
from loghub_cli.up import object_store
from loghub_cli.up.credentials import remove_folder, write_folder
from loghub_cli.up.object_store import LocalObject
from loghub_cli.up.paths import Root, is_locked, locked
from loghub_cli.up.runner import LocalGroup
from tests.loghub_cli.up.test_supervisor import FAKE, alive
from tests.loghub_operator.support.examples import MINIMAL, document
from tests.support import ROOT, get, running_service, wait_until

pytestmark = pytest.mark.long

GUARD_S = 120.0
# The packages of this tree, wherever another one is installed.
OWN = os.pathsep.join(str(ROOT / part) for part in ("", "operator", "worker"))
DRIVER = """
import functools, sys
from loghub_cli.up import commands as up
from loghub_cli.main import main
from loghub_cli.up.runner import LocalGroup
from tests.loghub_cli.up.test_supervisor import FAKE
up.LocalGroup = functools.partial(LocalGroup, command=FAKE)
sys.exit(main())
"""


def write(path: Path, *documents: Any) -> Path:
    path.write_text(yaml.safe_dump_all(documents))
    return path


def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGHUB_ACCESS_KEY_ID", "LOGHUB_ACCESS_KEY_SECRET", "LOGHUB_SECURITY_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def refused(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["up", "--state-dir", str(folder / "state"), *arguments])
    reported = capsys.readouterr()
    assert reported.out == ""
    return status, reported.err


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"replicaz": 2}, '* spec.replicaz: unknown field "spec.replicaz"'),
        (
            {"scaling": {"minReplicas": 3, "maxReplicas": 1}},
            "* spec.scaling: minReplicas must not be greater than maxReplicas",
        ),
        ({"project": None}, "* spec.project: Required value"),
        ({"pipeline": {"sink": {"logstore": {"name": "other"}}}}, "exactly one sink must be set"),
    ],
)
def test_what_the_apiserver_rejects_is_rejected_with_the_same_message(
    spec: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "cr.yaml", document(spec))
    status, reported = refused(tmp_path, capsys, "-f", str(file))
    assert status == 2
    assert reported.startswith('The LogHubConsumerGroup "access" is invalid:\n')
    assert message in reported
    assert not (tmp_path / "state").exists(), "nothing was begun"


def test_an_invalid_manifest_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def reported(content: str, *more: str) -> str:
        path = tmp_path / "cr.yaml"
        path.write_text(content)
        status, message = refused(tmp_path, capsys, "-f", str(path), *more)
        assert status == 2
        return message

    assert "No such file" in refused(tmp_path, capsys, "-f", str(tmp_path / "absent.yaml"))[1]
    assert "not YAML" in reported("{")
    assert "has no LogHubConsumerGroup" in reported("kind: Pod\napiVersion: v1\n")
    other = document(name="other")
    assert "has 2; choose one with --name: access, other" in reported(yaml.safe_dump_all([MINIMAL, other]))
    assert "has no LogHubConsumerGroup third" in reported(
        yaml.safe_dump_all([MINIMAL, other]), "--name", "third"
    )


@pytest.mark.parametrize("given", ["in the file", "by --endpoint"])
def test_http_to_a_public_host_is_refused_unless_it_is_allowed(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_keys(monkeypatch)
    url = "http://logs.example.com"
    file = write(tmp_path / "cr.yaml", document({"endpoint": url} if given == "in the file" else {}))
    arguments = ["-f", str(file), *(() if given == "in the file" else ("--endpoint", url))]
    status, reported = refused(tmp_path, capsys, *arguments)
    assert status == 1
    assert "http://logs.example.com is not encrypted, and its host is neither inside the cluster" in reported
    assert "--allow-http logs.example.com" in reported
    # The next thing that is missing.
    assert "needs an access key" in refused(tmp_path, capsys, *arguments, "--allow-http", "*.example.com")[1]


def test_a_real_endpoint_needs_keys_in_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_keys(monkeypatch)
    file = write(tmp_path / "cr.yaml", document({"endpoint": "https://cn-hangzhou.log.aliyuncs.com"}))
    status, reported = refused(tmp_path, capsys, "-f", str(file))
    assert status == 1
    assert "LOGHUB_ACCESS_KEY_ID and LOGHUB_ACCESS_KEY_SECRET must be set in the environment" in reported


def test_a_bad_endpoint_is_reported_by_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["up", "-f", "cr.yaml", "--endpoint", "ftp://x"])
    assert ended.value.code == 2
    assert "is not of the form" in capsys.readouterr().err


def test_status_and_down_without_a_running_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--state-dir", str(tmp_path)]) == 1
    assert main(["down", "--state-dir", str(tmp_path), "--name", "access"]) == 1
    assert "access is not up" in capsys.readouterr().err
    assert main(["down", "--state-dir", str(tmp_path)]) == 1
    assert "specify the group" in capsys.readouterr().err


def test_up_runs_and_then_rejects_a_change_of_an_immutable_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up_module, "LocalGroup", functools.partial(LocalGroup, command=FAKE))
    monkeypatch.setenv("PYTHONPATH", OWN)
    file = write(tmp_path / "cr.yaml", document({"replicas": 2}))
    where = ["--state-dir", str(tmp_path / "state")]
    assert main(["up", "-f", str(file), *where, "--create-logstore", "--wait-for", "ready"]) == 0
    reported = capsys.readouterr().out
    for message in (
        "created project demo",
        "created logstore access with 4 shards",
        "access-1 is ready",
        "stay members",
    ):
        assert message in reported
    assert main(["status", "--json", "access", *where]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["up"], result["status"]["phase"], result["status"]["workers"]) == (False, "Running", "2/2")
    assert main(["status", "access", *where]) == 0
    shown = capsys.readouterr().out
    assert "Stopped" in shown
    assert "not_alloc" in shown

    write(file, document({"logstore": "other"}))
    assert main(["up", "-f", str(file), *where]) == 2
    assert "logstore is immutable; create another LogHubConsumerGroup" in capsys.readouterr().err


@pytest.mark.parametrize("is_up", [False, True])
def test_down_on_a_full_disk_says_that_nothing_was_done_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_up: bool
) -> None:
    folder = Root(tmp_path).group("access")
    LocalObject.accept(folder, document())
    before = folder.object.read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with contextlib.ExitStack() as held:
        if is_up:
            held.enter_context(locked(folder.lock))
            monkeypatch.setattr(Path, "touch", full)
        else:
            monkeypatch.setattr(object_store, "replace_file", full)
        assert main(["down", "--name", "access", "--state-dir", str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert message.startswith("loghub: access is not taken down, and nothing of it is changed: ")
    assert "(No space left on device); make room there and run `loghub down` again" in message
    assert folder.object.read_bytes() == before


class Up:
    """`loghub up` in a process of its own, with fake workers."""

    def __init__(self, folder: Path, file: Path, *more: str) -> None:
        self.root = Root(folder / "state")
        self.log = folder / "up.log"
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, "up", "-f", str(file), *self.where, "--plain", *more],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": OWN},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def where(self) -> list[str]:
        return ["--state-dir", str(self.root.folder)]

    def reported(self) -> str:
        return self.log.read_text()

    def until(self, message: str) -> None:
        def holds() -> bool:
            assert self.process.poll() is None or message in self.reported(), self.reported()
            return message in self.reported()

        wait_until(holds, f"{message!r} in:\n{self.reported()}", guard_s=GUARD_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(GUARD_S)


def test_a_valid_change_is_applied_an_invalid_one_is_not_and_down_ends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "cr.yaml", document({"replicas": 1, "deletionPolicy": "Delete"}))
    run = Up(tmp_path, file, "--create-logstore")
    try:
        run.until("access-0 is ready")
        group = run.root.group("access")
        for path in (group.object, group.worker("access-0").log, group.worker("access-0").config):
            assert path.stat().st_mode & 0o077 == 0, f"{path} is the user's alone"
        write(file, document({"replicas": 2, "deletionPolicy": "Delete"}))
        run.until("access-1 is ready")
        elsewhere = document({"replicas": 3, "endpoint": "http://127.0.0.1:1"})
        write(file, elsewhere)
        run.until("* spec.endpoint: cannot be changed while the group is up")
        bad = copy.deepcopy(document({"replicas": 3}))
        bad["spec"]["replicas"] = -1
        write(file, bad)
        run.until("* spec.replicas")
        assert main(["up", "-f", str(file), *run.where]) == 2, "a wrong file is refused before anything else"
        write(file, document({"replicas": 2}))
        assert main(["up", "-f", str(file), *run.where]) == 1
        assert "in use by another process" in capsys.readouterr().err

        write(file, document({"replicas": 2, "deletionPolicy": "Delete"}))
        assert main(["down", *run.where, "--name", "access"]) == 0
        assert capsys.readouterr().out == "access is taken down\n"
        assert run.process.wait(GUARD_S) == 0
        assert (
            "consumer group access is deleted once the workers have terminated (deletionPolicy Delete)"
            in run.reported()
        )
        # The fakes are no members of the group, so nothing is left to be waited for.
        for message in ("taking the group down", "access-0 is gone", "access-1 is gone", "taken down"):
            assert message in run.reported()
        assert not run.root.group("access").object.exists()
    finally:
        run.end()


def test_a_missing_logstore_is_a_condition_that_clears_once_it_exists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "cr.yaml", document())
    run = Up(tmp_path, file)
    try:
        run.until("ProjectNotFound: project demo does not exist")
        other = write(tmp_path / "other.yaml", document({"replicas": 0}, name="other"))
        until_caught_up = ("--create-logstore", "--wait-for", "caught-up", "--plain")
        assert main(["up", "-f", str(other), *run.where, *until_caught_up]) == 0
        assert "created project demo" in capsys.readouterr().out
        run.until("access-0 is ready")
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(GUARD_S) == 0
        assert "the workers stay members of the group" in run.reported()
    finally:
        run.end()


def test_unreachable_endpoint_and_wrong_key_are_conditions_and_the_key_stays_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", "someKeyId")
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", "someSecretThatNobodySees")
    file = write(tmp_path / "cr.yaml", document())
    with running_service(tmp_path / "service") as service:
        wrong = Up(tmp_path, file, "--endpoint", service.endpoint)
        try:
            wrong.until("AuthenticationFailed")
            keys = wrong.root.group("access").credentials
            assert (keys / "accessKeySecret").stat().st_mode & 0o077 == 0
            service.terminate()
            wrong.until("EndpointUnreachable")
            wrong.process.send_signal(signal.SIGTERM)
            assert wrong.process.wait(GUARD_S) == 0
        finally:
            wrong.end()
    assert list(keys.iterdir()) == [], "the key is taken off the disk"
    forgotten = wrong.root.group("killed").credentials
    write_folder(forgotten, os.environ)
    with locked(wrong.root.group("running").lock):
        write_folder(wrong.root.group("running").credentials, os.environ)
        monkeypatch.delenv("LOGHUB_ACCESS_KEY_ID")
        assert main(["up", "-f", str(file), *wrong.where, "--endpoint", service.endpoint]) == 1
        assert list(forgotten.iterdir()) == [], "nor does that of a group whose process was killed stay"
        assert len(list(wrong.root.group("running").credentials.iterdir())) == 2
    remove_folder(wrong.root.group("running").credentials)
    everything = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"someSecretThatNobodySees" in content for content in everything)


def test_after_a_kill_nothing_runs_and_the_next_up_continues(tmp_path: Path) -> None:
    file = write(tmp_path / "cr.yaml", document({"replicas": 1}))
    run = Up(tmp_path, file, "--create-logstore")
    try:
        run.until("access-0 is ready")
        pid = int(run.reported().split("access-0 started, process ")[1].split()[0])
        address = (run.root.service / "address").read_text()
        run.process.kill()
        run.process.wait(GUARD_S)
        wait_until(lambda: not alive(pid), "the worker's end", guard_s=GUARD_S)
        assert not is_locked(run.root.group("access").lock)
    finally:
        run.end()
    run.log.unlink()
    run = Up(tmp_path, file)
    try:
        run.until("access-0 is ready")
        assert "ProjectNotFound" not in run.reported(), "the service's data is durable"
        assert (run.root.service / "address").read_text() == address, "the endpoint stays good"
        service = _service_pid(run.root)
        if service is not None:
            os.kill(service, signal.SIGKILL)
            again = (None, service)
            wait_until(lambda: _service_pid(run.root) not in again, "another service", guard_s=GUARD_S)
            wait_until(lambda: get(address, "/healthz")[0] == 200, "its answer", guard_s=GUARD_S)
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(GUARD_S) == 0
    finally:
        run.end()


def _service_pid(root: Root) -> int | None:
    """Linux only: whose command line names the data folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            message = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"loghub_service" in message and str(root.service / "data").encode() in message:
            return int(path.parent.name)
    return None


def test_fsck_is_the_service_s_own_program(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with running_service(tmp_path) as service:
        assert main(["fsck", str(service.data)]) == 3
        assert f"in use by process {service.pid}" in capfd.readouterr().err
        service.terminate()
        assert main(["fsck", str(service.data), "-o", "json"]) == 0
        assert json.loads(capfd.readouterr().out)["findings"] == []
    assert main(["fsck", "-o", "text", str(tmp_path)]) == 2
    assert "Usage: loghub fsck" in capfd.readouterr().err
    with pytest.raises(SystemExit):
        main(["status", "--no-such-option"])
