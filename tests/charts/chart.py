"""Renders the chart with the real helm, and returns what it refuses.

Tests choose values and get objects. `tests.cluster.chart_tools` provides helm.
"""

import functools
import hashlib
import json
import os
import pickle
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.processes import BRIEF

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "charts" / "loghub-operator"
RELEASE = "loghub-operator"
NAMESPACE = "loghub-system"
TAKES_VALUES = ("template", "lint", "install", "upgrade")

# The C one where there is one: rendered text is long, and read often.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Object = dict[str, Any]


class Strict(LOADER):  # type: ignore[misc,valid-type]
    """Refuses a key that is there twice, as kustomize and the API server's server-side apply do."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Object:
        keys = [key.value for key, _ in node.value]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise yaml.constructor.ConstructorError(None, None, f"twice: {sorted(twice)}", node.start_mark)
        mapping: Object = super().construct_mapping(node, deep)
        return mapping


Values = dict[str, Any]


@functools.lru_cache(maxsize=64)
def _read(part: str) -> Object | None:
    """One object. The CRD, which is nine tenths of the text, is nearly always the same."""
    result: Object | None = yaml.load(part, Strict)
    return result


class RefusedError(Exception):
    """helm ended with an error; the text is what it said."""


class Chart:
    """One helm, our chart. What is rendered once is in ``rendered`` for all processes of a test run."""

    def __init__(self, helm: Path, rendered: Path) -> None:
        self._helm = str(helm)
        self._folder = tempfile.TemporaryDirectory(prefix="loghub-helm-")
        self._rendered = rendered

    def render(
        self, values: Values | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE
    ) -> list[Object]:
        """Every object, hooks included."""
        arguments = ("template", release, str(FOLDER), "--namespace", namespace)
        key = json.dumps([*arguments, values or {}])
        file = self._rendered / hashlib.sha256(key.encode()).hexdigest()
        if not file.exists():
            text = self._run(*arguments, values=values)
            fresh = file.with_suffix(f".{os.getpid()}")
            # Pickled: the CRD's YAML takes longer to read than helm to write.
            parts = re.split(r"^---$", text, flags=re.MULTILINE)
            fresh.write_bytes(pickle.dumps([one for part in parts if (one := _read(part))]))
            fresh.replace(file)
        objects: list[Object] = pickle.loads(file.read_bytes())
        return objects

    def lint(self, values: Values | None = None) -> str:
        return self._run("lint", "--strict", str(FOLDER), values=values)

    def notes(self, values: Values | None = None, *, namespace: str = NAMESPACE) -> str:
        """What helm says after an install."""
        arguments = ("install", RELEASE, str(FOLDER), "--namespace", namespace, "--dry-run=client")
        return self._run(*arguments, values=values).split("NOTES:\n", 1)[1]

    def command(self, server: Path, namespace: str, *arguments: str, values: Values | None = None) -> str:
        """Anything that helm does on a cluster, given by its kubeconfig."""
        return self._run(*arguments, "--namespace", namespace, "--kubeconfig", str(server), values=values)

    def _run(self, *arguments: str, values: Values | None) -> str:
        command = [self._helm, *arguments, *(("--values", "-") if arguments[0] in TAKES_VALUES else ())]
        text = json.dumps(values or {})  # JSON is YAML
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=120, check=False, env=self._own()
        )
        if done.returncode != 0:
            raise RefusedError(done.stderr + done.stdout)
        return done.stdout

    def _own(self) -> dict[str, str]:
        """Nothing of the user's own helm is read or written."""
        homes = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        return {**os.environ, **BRIEF, **dict.fromkeys(homes, self._folder.name)}


def as_list(objects: list[Object]) -> str:
    """One text for `kubectl -f -`."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def only(objects: list[Object], kind: str, name: str = "") -> Object:
    """The one object of this kind (and name)."""
    (result,) = [one for one in objects if one["kind"] == kind and name in ("", one["metadata"]["name"])]
    return result


def kinds(objects: list[Object]) -> set[str]:
    return {one["kind"] for one in objects}


def environment(deployment: Object) -> dict[str, str]:
    """Plain variables of the operator's container."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}
