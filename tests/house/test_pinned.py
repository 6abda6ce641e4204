"""What others make is pinned by its content, and something renews it: images, actions, crates, Go modules.

Python packages are in the lock files (tests/house/test_locks.py), jars too.
"""

import re
from typing import Any

import yaml

from tests.cluster import dockerfile
from tests.house.test_tree import ROOT, tracked_files

DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
COMMIT = re.compile(r"@[0-9a-f]{40}$")


def updates() -> dict[str, set[str]]:
    """Ecosystem -> folders, relative to the root."""
    read: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())
    return {
        one["package-ecosystem"]: {
            folder.strip("/") for folder in one.get("directories", [one.get("directory")])
        }
        for one in read["updates"]
    }


def folders(name: str) -> set[str]:
    return {str(path.parent.relative_to(ROOT)) for path in tracked_files() if path.name == name}


def test_an_image_that_ours_are_built_from_has_a_digest_in_a_line_that_is_renewed() -> None:
    stages = dockerfile.stages(ROOT)
    defaults = dict(re.findall(r"^ARG (\w+_IMAGE)=(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert defaults.keys() == {"BASE_IMAGE", "RUST_IMAGE"}
    parents = {stage.parent for stage in stages.values()}
    assert {parent for parent in parents if "$" in parent} == {f"${{{name}}}" for name in defaults}
    assert set(defaults.values()) <= stages.keys(), "Dependabot renews a FROM, and no default of an ARG"
    foreign = {parent for parent in parents if "$" not in parent} - stages.keys()
    assert len(foreign) == len(defaults)
    assert {image for image in foreign if not DIGEST.search(image)} == set()
    assert updates()["docker"] == {""}


def test_an_action_has_a_commit() -> None:
    used = {
        step["uses"]
        for file in (ROOT / ".github" / "workflows").glob("*.yaml")
        for job in yaml.safe_load(file.read_text())["jobs"].values()
        for step in job["steps"]
        if "uses" in step
    }
    assert len(used) > 3
    assert {one for one in used if not COMMIT.search(one)} == set()
    assert updates()["github-actions"] == {""}


def test_every_folder_with_crates_or_go_modules_is_renewed() -> None:
    assert updates()["gomod"] == folders("go.mod")
    assert updates()["cargo"] == folders("Cargo.toml")
