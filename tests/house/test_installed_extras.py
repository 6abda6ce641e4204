"""Each extra is installed alone, at the locked versions, and does what its pages promise.

uv resolves the wheel's own requirements and checks the hashes of the lock, so a package that an extra lacks
is missing here as it is for users. tests/house/test_extras.py says the same of the packages of the tests.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import build_wheel
from tests.support import ROOT, ServiceProcess, running_service

pytestmark = [pytest.mark.deep(minutes=15), pytest.mark.long, pytest.mark.timeout(1800)]

GUARD_S = 900
LOCKS = {"connect": "connect", "pandas": "worker-pandas"}  # the others are in the lock of everything
IMPORTS = {
    "service": "import loghub_service.__main__, loghub_service.fsck.__main__",
    "worker": "import loghub_worker.__main__, loghub_consumer",
    "operator": "import loghub_operator.__main__",
    "spark": "from loghub_spark import LogHubDataSource; LogHubDataSource.name()",
    "connect": "import loghub_spark, pyspark.sql.connect.session",
    "pandas": "import pandas",
    "sdk": "import loghub.client.aliyun",
}
CONSUMER = """
import sys
from loghub_consumer import Consumer, ConsumerSettings, Credentials, Processor

class Printing(Processor):
    def process(self, logs, tracker):
        for group in logs.groups:
            for log in group.logs:
                print(log.get("line"))
        tracker.save()
        consumer.wakeup()

settings = ConsumerSettings(
    endpoint=sys.argv[1],
    credentials=Credentials(access_key_id=sys.argv[2], access_key_secret=sys.argv[3]),
    project="demo", logstore="access", consumer_group="readers", consumer="one", create_group=True,
)
consumer = Consumer(settings, Printing)
consumer.run()
"""


class Installed:
    """A virtual environment with the wheel and one extra; nothing of this machine's user is seen."""

    def __init__(self, wheel: Path, extra: str, folder: Path) -> None:
        self.folder = folder
        self._bin = folder / "venv" / "bin"
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYSPARK", "LOGHUB_", "XDG_STATE", "XDG_CONFIG"))
        }
        uv = Path(sys.executable).with_name("uv")
        lock = ROOT / "locks" / f"{LOCKS.get(extra, 'dev')}.txt"
        self._must([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"])
        python = ["--python", self._bin / "python"]
        self._must([uv, "pip", "install", "--quiet", *python, "--constraints", lock, f"{wheel}[{extra}]"])
        self._must([uv, "pip", "check", "--quiet", *python])
        found = subprocess.run([uv, "pip", "freeze", *python], capture_output=True, text=True, check=True)
        pins = {line for line in found.stdout.splitlines() if "loghub" not in line}
        assert pins <= set(re.findall(r"^[^ ;]+==[^ ;\\]+", lock.read_text(), re.MULTILINE))
        self.environment |= {
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }

    def _must(self, command: list[str | Path]) -> None:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=GUARD_S)
        assert done.returncode == 0, done.stderr[-4000:]

    def run(self, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._bin / command[0], *command[1:]],
            env=self.environment,
            cwd=self.folder,
            input=text,
            capture_output=True,
            text=True,
            timeout=GUARD_S,
            check=False,
        )

    def says(self, *command: str, text: str = "") -> str:
        """The output of a command that succeeds."""
        done = self.run(*command, text=text)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    def names(self, extra: str, *command: str) -> None:
        """The command fails with one line, which names the extra that it needs."""
        done = self.run(*command)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert f"pip install 'loghub-operator[{extra}]'" in done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def use(service: ServiceProcess, installed: Installed) -> None:
    installed.environment |= {
        "LOGHUB_ENDPOINT": service.endpoint,
        "LOGHUB_PROJECT": "demo",
        "LOGHUB_ACCESS_KEY_ID": service.credentials.access_key_id,
        "LOGHUB_ACCESS_KEY_SECRET": service.credentials.access_key_secret,
    }


@pytest.mark.parametrize("extra", IMPORTS)
def test_what_an_extra_is_for_can_be_imported(extra: str, wheel: Path, tmp_path: Path) -> None:
    installed = Installed(wheel, extra, tmp_path)
    installed.says("python", "-c", IMPORTS[extra])
    if extra not in ("service", "operator"):  # they have what the list of commands needs
        installed.names("cli", "loghub", "--help")


def test_the_extra_cli_is_enough_for_any_log_service(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(wheel, "cli", tmp_path)
    with running_service(tmp_path / "service") as service:
        use(service, installed)
        installed.says("loghub", "project", "create", "demo")
        installed.says("loghub", "logstore", "create", "access", "--shards", "1")
        installed.says("loghub", "put", "access", text="one\ntwo\n")
        pulled = installed.says("loghub", "pull", "access", "0", "--from", "begin")
        assert [line.split()[-1] for line in pulled.splitlines()] == ["one", "two"]
        assert "no consumer group" in installed.says("loghub", "lag", "access")
    for command in ("up", "down", "status", "serve", "fsck"):
        installed.names("local", "loghub", command)


def test_the_extra_consumer_is_enough_for_a_program(wheel: Path, tmp_path: Path) -> None:
    reader = Installed(wheel, "consumer", tmp_path / "reader")
    with running_service(tmp_path / "service") as service:
        writer = [sys.executable, "-m", "loghub_cli"]
        use(service, reader)
        for arguments in (["project", "create", "demo"], ["logstore", "create", "access", "--shards", "1"]):
            subprocess.run([*writer, *arguments], env=reader.environment, check=True, timeout=GUARD_S)
        subprocess.run(
            [*writer, "put", "access"],
            env=reader.environment,
            input=b"one\ntwo\n",
            check=True,
            timeout=GUARD_S,
        )
        key = service.credentials
        arguments = [service.endpoint, key.access_key_id, key.access_key_secret]
        assert reader.says("python", "-c", CONSUMER, *arguments).split() == ["one", "two"]
    reader.names("cli", "loghub", "lag")


def test_the_extra_local_runs_service_and_workers(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(wheel, "local", tmp_path)
    file = str(ROOT / "deploy" / "examples" / "processor.yaml")
    said = installed.says("loghub", "up", "-f", file, "--create-logstore", "--wait-for", "ready", "--plain")
    assert "is ready" in said
    assert "count-by-status" in installed.says("loghub", "status")
    assert installed.says("loghub", "down", "-f", file)
    assert "Usage" in installed.says("loghub", "fsck", "--help")
