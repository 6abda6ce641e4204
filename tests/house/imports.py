"""What our modules import, read from the source: also inside functions, but nothing that only a type checker
reads."""

import sys
from functools import cache
from importlib.metadata import packages_distributions

import grimp

from tests.distributions import FOLDERS

PACKAGES = tuple(folder.name for folder in FOLDERS.values())
# Imported, but required by nothing of ours: each belongs to another package, which pins it.
PARTS = {"pydantic_core": "pydantic", "py4j": "pyspark"}
# A wheel of our own, built from the folder `native`, that no program needs.
NATIVE = {"loghub_native"}


@cache
def graph() -> grimp.ImportGraph:
    # Without grimp's cache, which goes by the times of files, and which several runs write.
    return grimp.build_graph(
        *PACKAGES, include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def imported(*modules: str) -> set[str]:
    """``modules``, what they import at any depth, and the packages around each module."""
    result: set[str] = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        if module not in result:
            result.add(module)
            todo += graph().find_modules_directly_imported_by(module)
            todo += [module.rpartition(".")[0]] if "." in module else []
    return result


def imported_by(modules: set[str]) -> set[str]:
    """What these modules import themselves."""
    return {name for module in modules for name in graph().find_modules_directly_imported_by(module)}


def modules_of(package: str) -> set[str]:
    return {package, *graph().find_descendants(package)}


def ours(modules: set[str]) -> set[str]:
    return {module for module in modules if module.split(".")[0] in PACKAGES}


def distributions(modules: set[str]) -> set[str]:
    """The distributions that the third-party imports among ``modules`` come from."""
    names = {module.split(".")[0] for module in modules - ours(modules)} - sys.stdlib_module_names - NATIVE
    known = packages_distributions()
    return {known[PARTS.get(name, name)][0].lower().replace("_", "-") for name in names}
