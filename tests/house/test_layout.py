"""The folders of each package point one way, and no modules import each other in a circle.

The order of the folders is that of the `layers` contracts in pyproject.toml, which import-linter checks as
well; here a failure names the imports that point back.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "loghub",
    "loghub_service",
    "loghub_consumer",
    "loghub_worker",
    "loghub_spark",
    "loghub_operator",
    "loghub_cli",
)
Import = tuple[str, str]


@cache
def imports() -> frozenset[Import]:
    """Every import of a module of ours by another."""
    graph = grimp.build_graph(*PACKAGES)
    return frozenset(
        (module, imported)
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    )


@cache
def layers() -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Of each contract the lines, top first, with the whole names of folders and modules."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return tuple(
        tuple(
            tuple(f"{prefix}{name}" for name in re.split(r"\s*[|:]\s*", line)) for line in contract["layers"]
        )
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
        for prefix in [f"{container}." for container in contract.get("containers", [])] or [""]
    )


def folder_of(module: str, lines: tuple[tuple[str, ...], ...]) -> tuple[int, str] | None:
    """The folder, or module, of the lines that holds ``module``, and the number of its line."""
    holds = [
        (number, name)
        for number, line in enumerate(lines)
        for name in line
        if module == name or module.startswith(f"{name}.")
    ]
    return max(holds, key=lambda hold: len(hold[1]), default=None)


def backward(lines: tuple[tuple[str, ...], ...], result: Iterable[Import]) -> Iterator[str]:
    """The imports from a lower line, or from the same one, into another folder."""
    for module, imported in sorted(result):
        ours, theirs = folder_of(module, lines), folder_of(imported, lines)
        if ours and theirs and ours[1] != theirs[1] and ours[0] >= theirs[0]:
            yield f"{module} -> {imported}"


def circle(result: Iterable[Import]) -> list[str]:
    """Modules that import each other, if there are any."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for module, imported in result:
        sorter.add(module, imported)
    try:
        sorter.prepare()
    except CycleError as error:
        return [str(module) for module in error.args[1]]
    return []


@pytest.mark.parametrize("lines", layers(), ids=lambda lines: lines[0][0])
def test_folders_import_only_from_layers_below(lines: tuple[tuple[str, ...], ...]) -> None:
    assert list(backward(lines, imports())) == []


def test_there_are_no_import_cycles() -> None:
    assert circle(imports()) == []


def test_an_import_from_a_higher_layer_is_detected() -> None:
    wrong = ("loghub_operator.model.actions", "loghub_operator.plan.planner")
    (lines,) = (one for one in layers() if any("loghub_operator.plan" in line for line in one))
    assert list(backward(lines, imports() | {wrong})) == [" -> ".join(wrong)]


def test_an_import_cycle_is_detected() -> None:
    module, imported = next(one for one in sorted(imports()) if "." in one[0] and one[0] != one[1])
    assert {module, imported} <= set(circle(imports() | {(imported, module)}))
