"""The names of the package are there, and a program that uses none of them does not load them."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import loghub_consumer
from tests.support import ROOT

# What processes import of this package, and what only a program with a consumer needs.
NOT_NEEDED = {
    "loghub_consumer.reading.decoding": {
        "loghub_consumer.consumer",
        "loghub_consumer.membership",
        "pyarrow.compute",
    },
    "loghub_consumer.processes.child": {
        "loghub_consumer.settings",  # with what a consumer is made of
        "loghub_consumer.membership",
        "loghub_consumer.failure.policy",
        "loghub.client",
        "urllib3",
        "http.client",
    },
}


def imported_for_type_checkers() -> dict[str, str]:
    tree = ast.parse(Path(loghub_consumer.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_a_name_is_what_type_checkers_take_it_for() -> None:
    expected = imported_for_type_checkers()
    assert sorted(expected) == loghub_consumer.__all__ == sorted(dir(loghub_consumer))
    for name, module in expected.items():
        assert getattr(loghub_consumer, name) is getattr(import_module(module), name)


def test_another_name_is_missing_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'loghub_consumer' has no attribute 'Consumers'"):
        _ = loghub_consumer.Consumers  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", NOT_NEEDED)
def test_a_process_starts_without_the_consumer_and_what_else_it_does_not_need(module: str) -> None:
    command = [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    loaded = set(done.stdout.split())
    assert module in loaded
    assert loaded.isdisjoint(NOT_NEEDED[module])
