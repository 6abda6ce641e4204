"""Each value of a status is explained on the page for users, and no other."""

import ast
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from loghub.contract.worker import WorkerReason
from loghub_operator.api import conditions
from loghub_operator.api.fields import explained
from loghub_operator.tools import reasons_page

ROOT = Path(__file__).parents[3]
WORKER = ROOT / "worker"
# Of the library `loghub_consumer`, which reports these to programs of users.
TO_PROGRAMS = {"AckTimedOut", "Refused"}
KINDS = [kind for _, kinds in reasons_page.SECTIONS for kind in kinds]


def test_the_committed_page_matches_the_code() -> None:
    committed = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
    assert committed == reasons_page.page(), "run: make crds"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_value_is_explained_exactly_once(kind: type[StrEnum]) -> None:
    _, rows = explained(kind)
    reported = [name for names, _ in rows for name in names]
    assert sorted(reported) == sorted(kind.__members__)
    assert all(values for _, values in rows)


def test_every_reason_of_a_condition_is_on_the_page() -> None:
    result = {
        kind
        for name, kind in vars(conditions).items()
        if name.endswith("Reason") and isinstance(kind, type) and issubclass(kind, StrEnum)
    }
    assert len(result) > 5
    assert result <= set(KINDS)


def test_every_condition_has_its_section() -> None:
    titles = {title for title, _ in reasons_page.SECTIONS}
    assert {kind.value for kind in conditions.ConditionType} <= titles


@pytest.mark.long
def test_the_workers_reasons_are_those_that_it_reports() -> None:
    said = {reason for path in WORKER.glob("**/*.py") for reason in _said(ast.parse(path.read_text("utf-8")))}
    assert said - TO_PROGRAMS == {reason.value for reason in WorkerReason}


ERRORS = ("FatalError", "ReportedError", "ClusterError")


def _said(module: ast.Module) -> Iterator[str]:
    """The values in the first argument of `ERRORS` and in the reason of `Failure`, those for the service's
    codes, and members of `WorkerReason`."""
    constants = dict(_constants(module))
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _name(node.func) in ERRORS and node.args:
            yield from _reasons(node.args[0], constants)
        if isinstance(node, ast.Call) and _name(node.func) == "Failure":
            for given in (keyword.value for keyword in node.keywords if keyword.arg == "reason"):
                yield from _reasons(given, constants)
        if isinstance(node, ast.Attribute) and _name(node.value) == WorkerReason.__name__:
            yield WorkerReason[node.attr].value
    codes = constants.get("_REASONS")
    if isinstance(codes, ast.Dict):
        for value in codes.values:
            yield from _reasons(value, constants)


def _constants(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Of the module: ``A = "x"`` and ``A, B = "x", "y"``."""
    for node in module.body:
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from zip(map(_name, target.elts), value.elts, strict=True)
        else:
            yield _name(target), value


def _reasons(argument: ast.expr, constants: dict[str, ast.expr]) -> Iterator[str]:
    for node in ast.walk(argument):
        result = constants.get(node.id) if isinstance(node, ast.Name) else node
        if isinstance(result, ast.Constant) and isinstance(result.value, str):
            yield result.value


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""
