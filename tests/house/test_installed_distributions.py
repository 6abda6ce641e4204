"""Each distribution is installed alone, at the locked versions, and does what its page promises.

uv resolves the wheels' own requirements, so a package that a distribution lacks is missing here as it is for
users. tests/house/test_distributions.py says the same of the packages of the tests.
"""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.distributions import FOLDERS, build_wheels
from tests.support import ROOT, ServiceProcess, running_service

pytestmark = [pytest.mark.deep(minutes=15), pytest.mark.long, pytest.mark.timeout(1800)]

GUARD_S = 900
# The others are in the lock of everything.
LOCKS = {"loghub-spark[connect]": "connect", "loghub-worker[pandas]": "worker-pandas"}
IMPORTS = {
    "loghub-service": "import loghub_service.__main__, loghub_service.fsck.__main__",
    "loghub-worker": "import loghub_worker.__main__, loghub_consumer",
    "loghub-worker[pandas]": "import loghub_worker.__main__, pandas",
    "loghub-operator": "import loghub_operator.api, loghub_operator.plan",
    "loghub-operator[controller]": "import loghub_operator.__main__",
    "loghub-spark": "from loghub_spark import LogHubDataSource; LogHubDataSource.name()",
    "loghub-spark[connect]": "import loghub_spark, pyspark.sql.connect.session",
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
    """A virtual environment with one distribution; nothing of this machine's user is seen."""

    def __init__(self, wheels: Path, distribution: str, folder: Path) -> None:
        self.folder = folder
        self._bin = folder / "venv" / "bin"
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYSPARK", "LOGHUB_", "XDG_STATE", "XDG_CONFIG"))
        }
        uv = Path(sys.executable).with_name("uv")
        lock = ROOT / "locks" / f"{LOCKS.get(distribution, 'dev')}.txt"
        self._must([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"])
        python = ["--python", self._bin / "python"]
        locked = ["--constraints", lock, "--find-links", wheels]
        self._must([uv, "pip", "install", "--quiet", *python, *locked, distribution])
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

    def has(self, *packages: str) -> list[str]:
        """Which of these packages are installed."""
        (site,) = self.folder.glob("venv/lib/python3*/site-packages")
        return [name for name in packages if (site / name).exists()]

    def names(self, distribution: str, *command: str) -> None:
        """The command fails with one line, which says what to install."""
        done = self.run(*command)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.endswith(f"pip install {distribution}\n")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheels(tmp_path_factory.mktemp("wheels"))


def use(service: ServiceProcess, installed: Installed) -> None:
    installed.environment |= {
        "LOGHUB_ENDPOINT": service.endpoint,
        "LOGHUB_PROJECT": "demo",
        "LOGHUB_ACCESS_KEY_ID": service.credentials.access_key_id,
        "LOGHUB_ACCESS_KEY_SECRET": service.credentials.access_key_secret,
    }


@pytest.mark.parametrize("distribution", IMPORTS)
def test_what_a_distribution_is_for_can_be_imported(distribution: str, wheels: Path, tmp_path: Path) -> None:
    installed = Installed(wheels, distribution, tmp_path)
    installed.says("python", "-c", IMPORTS[distribution])


def test_the_command_is_enough_for_any_log_service(wheels: Path, tmp_path: Path) -> None:
    installed = Installed(wheels, "loghub-cli", tmp_path)
    assert not installed.has("pyspark", "kopf", "pyarrow", "pydantic")
    with running_service(tmp_path / "service") as service:
        use(service, installed)
        installed.says("loghub", "project", "create", "demo")
        installed.says("loghub", "logstore", "create", "access", "--shards", "1")
        installed.says("loghub", "put", "access", text="one\ntwo\n")
        pulled = installed.says("loghub", "pull", "access", "0", "--from", "begin")
        assert [line.split()[-1] for line in pulled.splitlines()] == ["one", "two"]
        assert "no consumer group" in installed.says("loghub", "lag", "access")
    for command in ("up", "down", "status", "serve", "fsck"):
        installed.names("'loghub-cli[local]'", "loghub", command)


def test_the_library_alone_is_enough_for_a_program(wheels: Path, tmp_path: Path) -> None:
    reader = Installed(wheels, "loghub-consumer", tmp_path / "reader")
    assert not reader.has("pyarrow", "pyspark", "kopf", "click", "aliyun")
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


def test_the_command_with_its_extra_runs_service_and_workers(wheels: Path, tmp_path: Path) -> None:
    installed = Installed(wheels, "loghub-cli[local]", tmp_path)
    assert not installed.has("kopf", "kubernetes")
    file = str(ROOT / "deploy" / "examples" / "processor.yaml")
    said = installed.says("loghub", "up", "-f", file, "--create-logstore", "--wait-for", "ready", "--plain")
    assert "is ready" in said
    assert "count-by-status" in installed.says("loghub", "status")
    assert installed.says("loghub", "down", "-f", file)
    assert "Usage" in installed.says("loghub", "fsck", "--help")


@pytest.mark.parametrize("distribution", FOLDERS)
def test_a_wheel_made_of_the_archive_of_the_sources_is_the_same(
    distribution: str, wheels: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t"]
    subprocess.run(
        [*command, "sdist", "-d", tmp_path], cwd=FOLDERS[distribution], check=True, timeout=GUARD_S
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    subprocess.run([*command, "wheel", "-d", tmp_path], cwd=folder, check=True, timeout=GUARD_S)
    (again,) = tmp_path.glob("*.whl")
    assert contents(again) == contents(wheels / again.name)


def contents(wheel: Path) -> dict[str, int]:
    """The files of a wheel, with their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: one.CRC for one in archive.infolist()}


TEST_OF_A_USER = """
def test_logs_are_written_and_read(loghub_service):
    loghub_service.create_logstore("access")
    loghub_service.put("access", ["a line"])
    assert loghub_service.read("access") == [{"line": "a line"}]
"""


def test_the_fixture_of_pytest_is_there_without_a_line_in_conftest(wheels: Path, tmp_path: Path) -> None:
    installed = Installed(wheels, "loghub-consumer[testing]", tmp_path)
    assert not installed.has("pyspark", "pyarrow")
    file = tmp_path / "test_of_a_user.py"
    file.write_text(TEST_OF_A_USER)
    assert "1 passed" in installed.says("python", "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(file))
