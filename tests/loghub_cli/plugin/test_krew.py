"""The manifest for krew, by krew's own rules, and the program of its archive."""

import os
import re
import subprocess
from pathlib import Path

import yaml

from loghub import __version__
from tests.support import ROOT

FOLDER = ROOT / "deploy" / "krew"
MANIFEST = yaml.safe_load((FOLDER / "loghub.yaml").read_text(encoding="utf-8"))
PROGRAM = FOLDER / "kubectl-loghub"


def test_the_manifest_is_one_that_krew_takes() -> None:
    assert MANIFEST["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert MANIFEST["kind"] == "Plugin"
    # The file, the plugin and the program have one name, of small letters and dashes.
    assert MANIFEST["metadata"]["name"] == "loghub"
    spec = MANIFEST["spec"]
    assert spec["version"] == f"v{__version__}"
    assert len(spec["shortDescription"]) <= 50
    assert not spec["shortDescription"].endswith(".")
    assert "kubectl" not in spec["shortDescription"].lower()
    assert spec["description"]
    assert spec["platforms"]
    for platform in spec["platforms"]:
        assert platform["uri"].startswith("https://")
        assert platform["uri"].endswith(f"{spec['version']}.tar.gz")
        assert re.fullmatch(r"[0-9a-f]{64}", platform["sha256"])
        assert platform["bin"] in {one["from"] for one in platform["files"]}
        assert {one["from"] for one in platform["files"]} <= {PROGRAM.name, "LICENSE"}
        (one,) = platform["selector"]["matchExpressions"]
        assert set(one["values"]) <= {"linux", "darwin", "windows"}


def test_the_program_starts_the_plugin_of_this_version(tmp_path: Path) -> None:
    assert os.access(PROGRAM, os.X_OK)
    assert f"version={__version__}\n" in PROGRAM.read_text(encoding="utf-8")

    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["/bin/sh", str(PROGRAM), "status", "a b"],
            env={"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    nothing = run()
    assert nothing.returncode == 5
    assert f"pip install loghub-cli=={__version__}" in nothing.stderr
    for name, before in {"pipx": "run --quiet --spec", "uv": "tool run --quiet --from"}.items():
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
        (tmp_path / name).chmod(0o755)
        said = run().stdout
        assert said == "|".join(
            [*before.split(), f"loghub-cli=={__version__}", "kubectl-loghub", "status", "a b", ""]
        )
