"""A file that is saved while its group is up is applied or rejected in words, whatever it has.

Every prefix of each example is a file that an editor may save, and so is an example with any value replaced.
"""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from loghub_cli.up.backend import ProcessEnvironment, local_placement, variables_of
from loghub_cli.up.manifest import CrFile, apiserver_message
from loghub_cli.up.object_store import LocalObject
from loghub_cli.up.paths import GroupFolder
from loghub_cli.up.runner import apply_edit
from loghub_operator.api import InvalidResourceError
from loghub_operator.resources.worker_config import worker_config
from tests.support import ROOT

EXAMPLES = [
    path
    for path in sorted((ROOT / "deploy" / "examples").glob("*.yaml"))
    if "kind: LogHubConsumerGroup\n" in path.read_text()
]
ODD = [
    None,
    "x",
    5,
    [],
    ["x"],
    {},
    {"x": None},
    True,
    1.5,
    "a=b",
    "a\0b",
    "é",
    {5: 6},
    float("nan"),
    10**30,
    b"x",
]
BASE = """\
apiVersion: loghub.dev/v1alpha1
kind: LogHubConsumerGroup
metadata:
  name: first
  labels: {a: b}
spec:
  project: demo
  logstore: access
  replicas: 1
  pipeline: {processor: {configMap: {name: code}, factory: "p:make"}}
  worker: {env: [{name: A, value: b}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: code}
data: {p.py: "make = None"}
"""


class Saved:
    """A group that is up, whose file is saved again and again."""

    def __init__(self, folder: Path, content: str) -> None:
        self.path, self.content = folder / "cr.yaml", content
        self.path.write_text(content)
        self.file = CrFile(self.path, None)
        document = self.file.read()
        self.group = GroupFolder(folder / document["metadata"]["name"])
        self.record = LocalObject.accept(self.group, document)

    def save(self, content: str) -> str:
        """ "applied", or why not; the group has its first content again."""
        self.path.write_text(content, errors="surrogatepass")
        try:
            record, code = apply_edit(self.file, self.record)
            resource = record.resource()
            placement = local_placement(resource, endpoint="http://h", volumes=self.group.folder, code=code)
            ProcessEnvironment().worker_spec(
                resource, worker_config(resource, placement, last_initial_shard=3)
            )
            assert not any("\0" in value for value in variables_of(resource).values())
            assert resource.metadata.name == self.group.folder.name
            assert record.document == LocalObject.load(self.group).document  # type: ignore[union-attr]
        except InvalidResourceError as error:
            assert LocalObject.load(self.group).document == self.record.document  # type: ignore[union-attr]
            return apiserver_message(self.record.document, error)
        self.record._save(self.record.document)
        return "applied"


def edited(content: str, dice: random.Random, number: int) -> Iterator[str]:
    """The file with one value replaced by an odd one, so often."""
    documents = list(yaml.safe_load_all(content))
    everywhere = [(index, *path) for index, document in enumerate(documents) for path in paths(document)]
    for _ in range(number):
        path, changed = dice.choice(everywhere), copy.deepcopy(documents)
        parent: Any = changed
        for part in path[:-1]:
            parent = parent[part]
        parent[path[-1]] = dice.choice(ODD)
        yield yaml.safe_dump_all(changed, allow_unicode=True)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from paths(part, (*path, key))


@pytest.mark.parametrize(
    "share", [pytest.param(3, id="some"), pytest.param(None, id="all", marks=pytest.mark.deep(minutes=60))]
)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_no_file_ends_the_group(example: Path, share: int | None, tmp_path: Path) -> None:
    content = example.read_text()
    saved = Saved(tmp_path, content)
    dice = random.Random(example.stem)
    ends = range(len(content)) if share is None else dice.sample(range(len(content)), share)
    for end in ends:
        saved.save(content[:end])
    for text in edited(content, dice, share or 1000):
        saved.save(text)
    assert saved.save(content) == "applied"


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ("  name: first\n  labels: {a: b}\n", "  name\n", 'metadata: Invalid value: "name": must be an'),
        ("data: {p.py: \"make = None\"}", "data: x", 'data: Invalid value: "x": must be an object'),
        ("{a: b}", "{a: 2026-11-26}", "applied"),
        ("{a: b}", "{a: 2026-99-99}", "applied"),
        ("value: b", "value: 12:30", "applied"),
        ("value: b", "value: =", "applied"),
        ("replicas: 1", "replicas: 0x_", "not YAML"),
        ("replicas: 1", "replicas: .nan", "a value that JSON does not have"),
        ("replicas: 1", "replicas: 1\n  replicas: 7", 'key "replicas" already set in map'),
        ("{a: b}", "&l {a: *l}", "a value that JSON does not have"),
        ("{a: b}", "{a: " + "[" * 600 + "]" * 600 + "}", "recursion"),
        ("{a: b}", "!!set {a, b}", "a value that JSON does not have"),
        ("{a: b}", "{a: !!binary aGVsbG8=}", "a value that JSON does not have"),
        ("value: b", 'value: "a\\0b"', "U+0000"),
        ("value: b", 'value: "\\ud800"', "a value that JSON does not have"),
        ("  name: first", "  name: second", "metadata.name: cannot be changed"),
        ("project: demo", "project: other", "spec.project"),
        ("  logstore: access", "  logstore: access\n  endpoint: http://localhost", "spec.endpoint: cannot"),
    ],
)  # fmt: skip
def test_what_kubectl_takes_is_applied_and_the_rest_says_why_not(
    old: str, new: str, outcome: str, tmp_path: Path
) -> None:
    assert old in BASE
    assert outcome in Saved(tmp_path, BASE).save(BASE.replace(old, new))


def test_aliases_that_repeat_themselves_are_refused(tmp_path: Path) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
        f"{one}: &{one} [{', '.join([f'*{before}'] * 8)}]\n"
        for before, one in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "perhaps by aliases" in Saved(tmp_path, BASE).save(bomb + BASE.replace("---", "---", 1))


def test_a_list_and_json_with_tabs_are_files_that_kubectl_takes(tmp_path: Path) -> None:
    document, config_map = yaml.safe_load_all(BASE)
    saved = Saved(tmp_path, BASE)
    listed = {"apiVersion": "v1", "kind": "List", "items": [document, config_map]}
    assert saved.save(yaml.safe_dump(listed)) == "applied"
    assert saved.save(json.dumps(listed, indent="\t")) == "applied"
    assert "must be in the same file" not in saved.save("\ufeff" + BASE)
