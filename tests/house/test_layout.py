"""The folders of each package point one way, and no modules import each other in a circle.

The order of the folders is that of the `layers` contracts in pyproject.toml, which import-linter checks as
well; here a failure names the imports that point back.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("loghub", "loghub_operator", "loghub_spark", "loghub_worker")
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
def layers() -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """Package -> its folders and modules, top first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {
        container: tuple(tuple(re.split(r"\s*[|:]\s*", line)) for line in contract["layers"])
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
        for container in contract["containers"]
    }


def folder_of(module: str, package: str) -> str | None:
    """The folder, or module, of ``package`` that holds ``module``."""
    if not module.startswith(f"{package}."):
        return None
    return module.removeprefix(f"{package}.").split(".")[0]


def backward(package: str, result: Iterable[Import]) -> Iterator[str]:
    """The imports from a lower layer, or from the same one, into another folder."""
    level = {name: number for number, line in enumerate(layers()[package]) for name in line}
    for module, imported in sorted(result):
        ours, theirs = folder_of(module, package), folder_of(imported, package)
        if ours is None or theirs is None or ours == theirs:
            continue
        if level[ours] >= level[theirs]:
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


@pytest.mark.parametrize("package", ["loghub_operator", "loghub_spark", "loghub_worker", "loghub.service"])
def test_folders_import_only_from_layers_below(package: str) -> None:
    assert list(backward(package, imports())) == []


def test_there_are_no_import_cycles() -> None:
    assert circle(imports()) == []


def test_an_import_from_a_higher_layer_is_detected() -> None:
    wrong = ("loghub_operator.model.plan", "loghub_operator.plan.planner")
    assert list(backward("loghub_operator", imports() | {wrong})) == [" -> ".join(wrong)]


def test_an_import_cycle_is_detected() -> None:
    module, imported = next(one for one in sorted(imports()) if "." in one[0] and one[0] != one[1])
    assert {module, imported} <= set(circle(imports() | {(imported, module)}))
