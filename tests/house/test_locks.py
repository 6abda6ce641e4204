"""The lock files: exact, hashed, without any registry's address, and in step with pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JARS = (
    "jars",
    "kafka-broker",
    "compat-java",
    "spark-delta",
)  # not of Python: tests/loghub_worker/test_spark_jars.py
LOCKS = sorted(path for path in (ROOT / "locks").glob("*.txt") if path.stem not in JARS)
PINNED = re.compile(r"^(?P<name>[A-Za-z0-9_.\-]+)==(?P<version>[^ ;\\]+)", re.MULTILINE)


def pins(lock: str) -> dict[str, str]:
    """Package name to version, as one lock file has them."""
    text = (ROOT / "locks" / f"{lock}.txt").read_text()
    return {result["name"].lower(): result["version"] for result in PINNED.finditer(text)}


def wanted(*groups: str) -> set[str]:
    """Names that pyproject.toml requires in its main list and the given extras or groups."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = {**project["project"]["optional-dependencies"], **project["dependency-groups"]}
    lines = [*project["project"]["dependencies"], *(line for group in groups for line in lists[group])]
    lines = [line for line in lines if not line.startswith(f"{project['project']['name']}[")]
    return {re.split(r"[ <>=!~;\[]", line, maxsplit=1)[0].lower() for line in lines}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_a_lock_names_no_index_and_hashes_every_package(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    assert "index-url" not in text
    blocks = re.split(r"\n(?=[a-z])", text.strip())
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []


@pytest.mark.parametrize("name", JARS)
def test_a_lock_of_jars_names_no_repository(name: str) -> None:
    assert "://" not in (ROOT / "locks" / f"{name}.txt").read_text()


@pytest.mark.parametrize("part", ["service", "worker", "operator"])
def test_an_image_lock_has_its_extra_at_the_tested_versions(part: str) -> None:
    locked, tested = pins(part), pins("dev")
    assert wanted(part) <= locked.keys()
    assert {name: version for name, version in locked.items() if tested.get(name) != version} == {}


def test_the_workers_lock_with_the_sdk_is_the_workers_and_more_at_the_tested_versions() -> None:
    locked = pins("worker-sdk")
    assert wanted("worker", "sdk") <= locked.keys()
    assert pins("worker").items() <= locked.items() <= pins("dev").items()


def test_the_workers_lock_with_pandas_is_the_workers_and_more() -> None:
    locked, plain = pins("worker-pandas"), pins("worker")
    assert wanted("worker", "pandas") <= locked.keys()
    assert plain.items() <= locked.items()
    assert "pandas" not in pins("dev"), "the tests cover a worker without pandas too"


def test_the_lock_of_spark_connect_has_its_extra_and_but_for_what_connect_needs_the_tested_versions() -> None:
    locked, tested = pins("connect"), pins("dev")
    assert wanted("connect") <= locked.keys()
    assert wanted("spark") <= wanted("connect"), "it has everything that the data source imports"
    assert {name for name, version in locked.items() if tested.get(name, version) != version} == {
        "grpcio",
        "protobuf",
    }
    assert "aliyun-log-python-sdk" not in locked


def test_the_dev_lock_has_every_package() -> None:
    assert wanted("service", "worker", "operator", "cli", "local", "spark", "dev") <= pins("dev").keys()
