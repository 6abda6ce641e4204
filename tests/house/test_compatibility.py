"""The tables of docs/compatibility.md name tests that exist and run each of the libraries that they claim."""

import ast
import re

from tests.compat.consumers import LANGUAGES
from tests.support import ROOT

PAGE = (ROOT / "docs" / "compatibility.md").read_text()
ROW = re.compile(r"^\| .* \| `(test_\w+)` \|$", re.MULTILINE)


def real_tests() -> dict[str, ast.FunctionDef]:
    """The tests of `tests/compat` that run the vendor's consumers."""
    found = {}
    for file in (ROOT / "tests" / "compat").glob("test_real_clients*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[node.name] = node
    return found


def test_each_row_names_a_test_and_each_test_has_a_row() -> None:
    assert set(ROW.findall(PAGE)) == set(real_tests())


def test_each_test_runs_every_library() -> None:
    for name, test in real_tests().items():
        source = ast.unparse(test)
        assert "LANGUAGES" in source or all(repr(each) in source for each in LANGUAGES), name
