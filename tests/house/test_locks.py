"""The lock files: exact, hashed, without any registry's address, and in step with what is required."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.distributions import IMAGES, names

ROOT = Path(__file__).parents[2]
JARS = (
    "jars",
    "kafka-broker",
    "compat-java",
    "spark-delta",
    "compat-pulsar",
    "pulsar-broker",
)  # not of Python: tests/loghub_worker/test_spark_jars.py
LOCKS = sorted(path for path in (ROOT / "locks").glob("*.txt") if path.stem not in JARS)
PINNED = re.compile(r"^(?P<name>[A-Za-z0-9_.\-]+)==(?P<version>[^ ;\\]+)", re.MULTILINE)


def pins(lock: str) -> dict[str, str]:
    """Package name to version, as one lock file has them."""
    text = (ROOT / "locks" / f"{lock}.txt").read_text()
    return {result["name"].lower(): result["version"] for result in PINNED.finditer(text)}


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


@pytest.mark.parametrize("part", IMAGES)
def test_an_image_lock_has_its_distribution_at_the_tested_versions(part: str) -> None:
    locked, tested = pins(part), pins("dev")
    assert names(IMAGES[part]) <= locked.keys()
    assert {name: version for name, version in locked.items() if tested.get(name) != version} == {}


def test_the_workers_lock_with_the_sdk_is_the_workers_and_more_at_the_tested_versions() -> None:
    locked = pins("worker-sdk")
    assert names("loghub-worker", "loghub-core[sdk]") <= locked.keys()
    assert pins("worker").items() <= locked.items() <= pins("dev").items()


def test_the_workers_lock_with_pandas_is_the_workers_and_more() -> None:
    locked, plain = pins("worker-pandas"), pins("worker")
    assert names("loghub-worker[pandas]") <= locked.keys()
    assert plain.items() <= locked.items()
    assert "pandas" not in pins("dev"), "the tests cover a worker without pandas too"


def test_the_lock_of_spark_connect_has_its_extra_and_but_for_what_connect_needs_the_tested_versions() -> None:
    locked, tested = pins("connect"), pins("dev")
    assert names("loghub-spark[connect]") <= locked.keys()
    assert {name for name, version in locked.items() if tested.get(name, version) != version} == {
        "grpcio",
        "protobuf",
    }
    assert "aliyun-log-python-sdk" not in locked


def test_the_dev_lock_has_every_package() -> None:
    everything = names("loghub-spark", "loghub-operator[controller]", "loghub-cli[local]")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert everything | {Requirement(line).name for line in groups["dev"]} <= pins("dev").keys()
