"""The command line in tests: called in this process, or as a process of its own where signals and pipes are
tested. Both go to a real service process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loghub.client.http import HttpLogHub
from loghub_cli.main import main
from tests.support import ROOT, START_GUARD_S, ServiceProcess

COMMAND = [sys.executable, "-m", "loghub_cli"]
STORE = "access"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        """Its output, which is JSON."""
        assert self.status == 0, self.err
        return json.loads(self.out)


class Cli:
    """Runs commands at one service, in one project, with one client adapter."""

    def __init__(
        self, service: ServiceProcess, project: str, adapter: str, folder: Path, capsys: Any
    ) -> None:
        self.service = service
        self.project = project
        self.folder = folder
        self._capsys = capsys
        self.environment = {
            "LOGHUB_ENDPOINT": service.endpoint,
            "LOGHUB_PROJECT": project,
            "LOGHUB_ACCESS_KEY_ID": service.credentials.access_key_id,
            "LOGHUB_ACCESS_KEY_SECRET": service.credentials.access_key_secret,
            "LOGHUB_CONFIG": str(folder / "config.toml"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        (folder / "config.toml").write_text(f'default = "test"\n[profiles.test]\nclient = "{adapter}"\n')
        (folder / "config.toml").chmod(0o600)
        self.client = HttpLogHub(service.endpoint, project, credentials=service.credentials)

    def __call__(self, *arguments: object) -> Result:
        """Runs a command in this process."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            self._capsys.readouterr()
            try:
                status = main([str(argument) for argument in arguments])
            except SystemExit as ended:
                status = int(ended.code or 0)
        output = self._capsys.readouterr()
        assert "Traceback" not in output.err
        return Result(status=status, out=output.out, err=output.err)

    def json(self, *arguments: object) -> Any:
        """Runs a command that must succeed, and gives its output."""
        return self(*arguments, "-o", "json").value

    def lines(self, shards: int) -> list[str]:
        """The field ``line`` of every log in the first shards."""
        return [
            line
            for shard in range(shards)
            for line in self("pull", STORE, shard, "--field", "line").out.splitlines()
        ]

    def run(self, *arguments: object, text: str | None = None) -> Result:
        """Runs a command as a process with this standard input."""
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=START_GUARD_S,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Result(status=done.returncode, out=done.stdout, err=done.stderr)

    @contextmanager
    def started(self, *arguments: object, stdin: int = subprocess.DEVNULL) -> Iterator["Running"]:
        """A command that runs until the test ends it; killed in any case."""
        running = Running(self, [str(argument) for argument in arguments], stdin)
        try:
            yield running
        finally:
            running.kill()


class Running:
    """A command as a process, whose output goes to files."""

    def __init__(self, cli: Cli, arguments: list[str], stdin: int) -> None:
        number = len(list(cli.folder.glob("out*")))
        self._out, self._err = cli.folder / f"out{number}", cli.folder / f"err{number}"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments],
                cwd=ROOT,
                env={**os.environ, **cli.environment},
                stdin=stdin,
                stdout=out,
                stderr=err,
            )

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def interrupt(self, number: int) -> int:
        """Sends a signal and gives the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(START_GUARD_S)
        assert "Traceback" not in self.err, self.err
        return status

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(START_GUARD_S)
