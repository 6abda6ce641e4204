"""The built wheels in a fresh virtual environment, with the lines of docs/data-source.md 1, at a service."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from loghub_spark.options import ENV_KEY_ID, ENV_KEY_SECRET
from tests.distributions import FOLDERS, build_wheel, build_wheels, installed_with
from tests.loghub_spark.support import Writes, client_of
from tests.spark_cluster import SPARK
from tests.spark_settings import INTERPRETED, jvm_options
from tests.support import ROOT, running_service

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

GUARD_S = 600
DISTRIBUTION = "loghub-spark"
# As on the page, but with the key as options: what Spark records of it must not have the key.
WITH_KEY = """
options = dict(endpoint={endpoint!r}, project="demo", logstore="access")
options |= dict(accessKeyId={id!r}, accessKeySecret={secret!r})
rows = spark.readStream.format("loghub").options(**options, startingOffsets="earliest").load()
rows = rows.selectExpr("contents['id'] AS id")
query = rows.writeStream.format("csv").trigger(availableNow=True).option("checkpointLocation", {checkpoint!r})
query.start({output!r}).awaitTermination()
spark.read.format("loghub").options(**options).load().createOrReplaceTempView("logs")
print("counted", spark.sql("SELECT count(*) FROM logs").first()[0])
spark.stop()
"""


# For each package, lines that use it, and what a type checker knows then.
TYPED = {
    "loghub": ("from loghub.wire.cursor import decode", "decode('')", "int"),
    "loghub_service": (
        "from loghub_service.access_keys import Right",
        "Right('read')",
        "loghub_service.access_keys.Right",
    ),
    "loghub_consumer": (
        "from loghub_consumer import Consumer",
        "Consumer.assignment",
        "def (self: loghub_consumer.consumer.Consumer) -> tuple[int, ...]",
    ),
    "loghub_worker": ("from loghub_worker.sink.batch_sink import TIMES", "TIMES", "typing.Mapping[str, str]"),
    "loghub_spark": ("from loghub_spark import LogHubDataSource", "LogHubDataSource.name()", "str"),
    "loghub_operator": ("from loghub_operator.api.fields import amount", "amount('1')", "float"),
    "loghub_cli": ("from loghub_cli.main import main", "main()", "int"),
}


@pytest.mark.deep
def test_a_type_checker_sees_the_annotations_of_every_package(tmp_path: Path) -> None:
    place = tmp_path / "venv"
    venv.create(place)
    (site,) = place.glob("lib/python3*/site-packages")
    for wheel in build_wheels(tmp_path / "wheels").iterdir():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    assert {path.name for path in site.iterdir() if path.suffix != ".dist-info"} == TYPED.keys()
    lines = [f"{imported}\nreveal_type({used})\n" for imported, used, _ in TYPED.values()]
    (tmp_path / "uses.py").write_text("".join(lines))
    command = [sys.executable, "-m", "mypy", "--python-executable", str(place / "bin" / "python")]
    # Other packages are not installed there.
    options = ["--config-file", os.devnull, "--cache-dir", str(tmp_path / "cache"), "uses.py"]
    checked = subprocess.run(
        command + options, cwd=tmp_path, capture_output=True, text=True, timeout=GUARD_S, check=False
    )
    wanted = [known for _, _, known in TYPED.values()]
    assert re.findall(r'Revealed type is "(.*)"', checked.stdout) == wanted, checked.stdout + checked.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the wheels that a data source needs."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("loghub-core", "loghub-consumer", DISTRIBUTION):
        build_wheel(name, folder)
    return folder


def test_a_wheel_has_its_package_says_that_it_has_annotations_and_brings_its_licence(wheels: Path) -> None:
    (wheel,) = wheels.glob("loghub_spark-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    (described,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    assert {name.partition("/")[0] for name in names} == {"loghub_spark", described}
    assert {"loghub_spark/py.typed", f"{described}/licenses/LICENSE"} <= names
    assert not {"loghub_spark/pyproject.toml", "loghub_spark/LICENSE"} & names


def top_level(of: Distribution) -> Iterator[Path]:
    """What a distribution has in site-packages."""
    names = {file.parts[0] for file in of.files or ()} - {"..", "__pycache__"}
    yield from (Path(str(of.locate_file(name))) for name in sorted(names))


def installed(wheels: Path, folder: Path) -> dict[str, str]:
    """The environment of a new virtual environment in this folder that has the data source."""
    place = folder / "venv"
    venv.create(place)
    (site,) = place.glob("lib/python3*/site-packages")
    needed = {name: of for name, of in installed_with(DISTRIBUTION).items() if name not in FOLDERS}
    # Installing them would download half a gigabyte. pip still checks that nothing is missing.
    for path in {one for found in needed.values() for one in top_level(found)}:
        (site / path.name).symlink_to(path)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))
    }
    # Not activated, so that `python3` is another Python, which knows nothing of the wheels.
    own = str(Path(sys.prefix) / "bin")
    environment["PATH"] = os.pathsep.join(one for one in environment["PATH"].split(os.pathsep) if one != own)
    install = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install"]
    install += ["--no-index", "--quiet", "--find-links", str(wheels), DISTRIBUTION]
    subprocess.run(install, env=environment, cwd=folder, check=True, timeout=GUARD_S)
    return environment


def test_the_lines_of_the_page_read_from_a_service(wheels: Path, tmp_path: Path) -> None:
    environment = installed(wheels, tmp_path)
    with running_service(tmp_path / "service") as service:
        client = client_of(service)
        client.create_project()
        client.create_logstore("access", shards=2)
        writes = Writes(client)
        writes.put(10)
        client.close()
        key = service.credentials
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/data-source.md").read_text(), re.DOTALL)
        (lines,) = (block for block in blocks if "SparkSession.builder.getOrCreate()" in block)
        shown = "http://127.0.0.1:8080"
        assert shown in lines
        more = WITH_KEY.format(
            endpoint=service.endpoint,
            id=key.access_key_id,
            secret=key.access_key_secret,
            checkpoint=str(tmp_path / "checkpoint"),
            output=str(tmp_path / "rows"),
        )
        environment |= {
            ENV_KEY_ID: key.access_key_id,
            ENV_KEY_SECRET: key.access_key_secret,
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {spark_settings(tmp_path)} pyspark-shell",
            # The JVM ignores the archive of classes unless its jars have the path that they had there.
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        run = subprocess.run(
            [tmp_path / "venv" / "bin" / "python", "-c", lines.replace(shown, service.endpoint) + more],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=GUARD_S,
            check=False,
        )
    assert run.returncode == 0, run.stderr[-4000:]
    assert "|           __time__|line|" in run.stdout
    assert run.stdout.count("2023-11-14") == 20
    assert "counted 20" in run.stdout
    copied = [line for file in (tmp_path / "rows").glob("*.csv") for line in file.read_text().split()]
    assert sorted(copied) == sorted(writes.sent)
    kept = [path for folder in ("events", "checkpoint") for path in (tmp_path / folder).rglob("*")]
    recorded = "".join(path.read_text(errors="replace") for path in kept if path.is_file())
    assert "BatchScan loghub" in recorded
    for part in (key.access_key_id, key.access_key_secret):
        assert part not in recorded + run.stdout + run.stderr


def spark_settings(folder: Path) -> Path:
    """A file with Spark's settings: the event log, from which its history UI is made, is on."""
    (folder / "events").mkdir()
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.driver.extraJavaOptions": jvm_options(),
        **INTERPRETED,
    }
    lines = (f"{name} {value}\n" for name, value in settings.items())
    file = folder / "settings.conf"
    file.write_text("".join(lines))
    return file
