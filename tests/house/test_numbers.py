"""The reason for a number stands at the number (CONTRIBUTING.md 4)."""

import ast
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.house.test_tree import text_of, tracked_files
from tests.support import ROOT

PRODUCTS = ("loghub", "service", "worker", "operator")
# A factor between units is what its name says.
UNIT = re.compile(r"_?([KMG]IB|(SECOND|MINUTE|HOUR|DAY)_(S|MS|US|NS))")
NUMBER_CALLS = frozenset({"range", "timedelta"})


def is_number(value: ast.expr | None) -> bool:
    """Whether the value is written in numbers alone: a number, a sum or a shift, a tuple, a range, a time."""
    match value:
        case ast.Constant(value=constant):
            return isinstance(constant, int | float) and not isinstance(constant, bool)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=elements):
            return bool(elements) and all(map(is_number, elements))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
            values = [*arguments, *(keyword.value for keyword in keywords)]
            return name in NUMBER_CALLS and bool(values) and all(map(is_number, values))
    return False


def numbers(tree: ast.Module) -> Iterator[tuple[str, ast.stmt, ast.stmt | None]]:
    """The names of a module's numbers, their statements, and the statements that follow."""
    for statement, after in zip_longest(tree.body, tree.body[1:]):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_number(value):
                yield name, statement, after
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if is_number(value):
                yield name, statement, after


def has_reason(lines: list[str], statement: ast.stmt, after: ast.stmt | None) -> bool:
    """Whether a comment stands at the number or above the lines that it is in, or a docstring below it."""
    begin, end = statement.lineno - 1, statement.end_lineno or statement.lineno
    if any("#" in line for line in lines[begin:end]):
        return True
    while begin and lines[begin - 1].strip():
        begin -= 1
        if lines[begin].startswith("#"):
            return True
    return isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)


def without_reason(source: str) -> list[str]:
    lines = source.splitlines()
    return [
        f"{statement.lineno}: {name}"
        for name, statement, after in numbers(ast.parse(source))
        if not UNIT.fullmatch(name) and not has_reason(lines, statement, after)
    ]


def modules() -> Iterator[Path]:
    for path in tracked_files():
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PRODUCTS:
            yield path


def test_a_number_has_its_reason() -> None:
    """Write what goes wrong below or above the number, or whose number it is, in a comment at its line."""
    problems = [
        f"{path.relative_to(ROOT)}:{problem}"
        for path in modules()
        for problem in without_reason(text_of(path))
    ]
    assert problems == []


@pytest.mark.parametrize(
    "source",
    [
        "MAX_WAIT_S = 5.0\n",
        "MAX_BYTES: Final = 4 << 20\n",
        "LOWEST = -1\n",
        "BOUNDS_S = (0.1, 1.0)\n",
        "OK = range(200, 300)\n",
        "VALID = timedelta(days=365)\n",
        "# of another number\n\nMAX_WAIT_S = 5.0\n",
    ],
)
def test_a_number_without_a_reason_is_found(source: str) -> None:
    assert len(without_reason(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "MAX_WAIT_S = 5.0  # a heartbeat takes 3 s\n",
        "# Of one answer.\nMAX_BYTES = 1 << 20\nMAX_LOGS = 1000\n",
        'MAX_BYTES = 1 << 20\n"""The maximum of the vendor."""\n',
        "BOUNDS_S = (\n    0.1,  # a fast disk\n    1.0,\n)\n",
        "MIB = 1 << 20\n_DAY_US = 86_400_000_000\n",
        "IS_STRICT = True\nSIZE = len(TABLE)\nNAMES = ('a', 1)\n",
        "class Code(IntEnum):\n    NONE = 0\n",
    ],
)
def test_a_number_with_its_reason_a_unit_and_a_computed_value_pass(source: str) -> None:
    assert without_reason(source) == []
