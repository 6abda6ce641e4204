"""The manifests grant what the code asks of the API server, also in branches that are seldom taken."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from loghub_operator.clients import kube
from loghub_operator.clients.kube import Kind

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
ROOT = Path(__file__).parents[2]
OF_WORKERS = "loghub-operator-executors"  # which the operator hands on, and has not itself
VERBS = ("get", "list", "patch", "delete")  # named by the method of the port


def calls() -> Iterator[tuple[str, str, str]]:
    """Where, verb and resource of each call of the port with a kind that is written there."""
    for file in sorted((ROOT / "operator" / "loghub_operator").rglob("*.py")):
        if "loghub_operator.clients.kube import" not in (text := file.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                named = node.args[0].id if isinstance(node.args[0], ast.Name) else ""
                kind = getattr(kube, named, None)
                if node.func.attr in VERBS and isinstance(kind, Kind):
                    yield f"{file.name}:{node.lineno}", node.func.attr, kind.plural


def granted() -> set[tuple[str, str]]:
    documents: list[Any] = []
    for file in (ROOT / "deploy").rglob("*.yaml"):
        documents += yaml.load_all(file.read_text(), LOADER)
    roles = [one for one in documents if one and "rules" in one and one["metadata"]["name"] != OF_WORKERS]
    rules = [rule for role in roles for rule in role["rules"]]
    return {(verb, kind) for rule in rules for verb in rule["verbs"] for kind in rule["resources"]}


def test_every_call_of_the_api_server_has_its_right() -> None:
    rights, asked = granted(), list(calls())
    assert len(asked) > 20
    assert [f"{place}: {verb} {kind}" for place, verb, kind in asked if (verb, kind) not in rights] == []
