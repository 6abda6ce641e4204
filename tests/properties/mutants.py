"""Small faults in the rules of a coordinator, one at a time, generated from the source.

Each mutant is one change of the syntax tree of one module. Its name says where and what, so that a mutant
that no test notices can be listed with the reason (``surviving_mutants.txt``).
"""

import ast
import importlib.util
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import indent

# No rule: a picture for docs/shard-states.md, and the text of an error.
SKIPPED = {"mermaid", "IllegalTransition"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """The rules that are changed, and what is changed in them besides conditions, comparisons and calls.

    ``name`` is a folder of `tests.properties`: its `test_search` has the systems of the small search, and its
    ``surviving_mutants.txt`` what nothing can notice. ``tests`` are modules of ``test_folder``.

    ``swapped`` has attributes of enums by the enum's name. A row of the table that is removed becomes a copy
    of ``first_row``, and that one a copy of ``second_row``.
    """

    name: str
    package: str
    modules: tuple[str, ...]
    test_folder: str
    tests: tuple[str, ...]
    next_state: Mapping[str, str]
    swapped: Mapping[str, Mapping[str, str]]
    first_row: str
    second_row: str
    cleared_keywords: frozenset[str] = frozenset()


OFF_BY_ONE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
SWAPPED_CALL = {"min": "max", "max": "min", "all": "any", "any": "all"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """``source`` is the whole changed source of the module."""

    module: str
    name: str
    source: str


# Changes a node of a copy of the tree in place; the text says what changed.
Change = tuple[str, Callable[[ast.AST], None]]


def source_of(subject: Subject, module: str) -> str:
    spec = importlib.util.find_spec(f"{subject.package}.{module}")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


@cache
def mutants(subject: Subject) -> tuple[Mutant, ...]:
    return tuple(mutant for module in subject.modules for mutant in _of_module(subject, module))


def _of_module(subject: Subject, module: str) -> Iterator[Mutant]:
    source = source_of(subject, module)
    lines, same = source.splitlines(), Counter[str]()
    for place, part in _parts(ast.parse(source), ()):
        # Only the part is copied and written again, which takes most of the time.
        stored, texts = pickle.dumps(part), set[str]()
        for index, (where, node) in enumerate(_nodes(part, place)):
            for what, change in _changes(subject, node):
                changed = pickle.loads(stored)
                _, target = list(_nodes(changed, place))[index]
                change(target)
                text = ast.unparse(ast.fix_missing_locations(changed))
                if text in texts:
                    continue
                texts.add(text)
                name = f"{'.'.join((module, *where))}: {what}"
                same[name] += 1
                suffix = f" ({same[name]})" if same[name] > 1 else ""
                yield Mutant(module, name + suffix, _replaced(lines, part, text))


def _parts(
    parent: ast.Module | ast.ClassDef, where: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ast.stmt]]:
    """The statements of a module and of its classes, each in the names of the classes around it."""
    for part in parent.body:
        if isinstance(part, ast.ClassDef) and part.name not in SKIPPED:
            yield from _parts(part, (*where, part.name))
        else:
            yield where, part


def _replaced(lines: list[str], part: ast.stmt, text: str) -> str:
    """The source with another text in place of a part."""
    decorators = part.decorator_list if isinstance(part, ast.FunctionDef | ast.ClassDef) else []
    first, last = min([part.lineno, *(node.lineno for node in decorators)]), part.end_lineno
    return "\n".join((*lines[: first - 1], indent(text, " " * part.col_offset), *lines[last:]))


def _nodes(node: ast.AST, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.AST]]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        if node.name in SKIPPED:
            return
        where = (*where, node.name)
    yield where, node
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child, where)


def _changes(subject: Subject, node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.If() | ast.IfExp() | ast.While():
            yield f"negate `{ast.unparse(node.test)}`", _negate_test
        case ast.comprehension():
            for number, test in enumerate(node.ifs):
                yield f"negate `{ast.unparse(test)}`", _negate_filter(number)
                yield f"drop `{ast.unparse(test)}`", _drop_item("ifs", number)
        case ast.BoolOp():
            for number, value in enumerate(node.values):
                yield f"drop `{ast.unparse(value)}` of `{ast.unparse(node)}`", _drop_item("values", number)
        case ast.Compare(ops=[op]) if type(op) in OFF_BY_ONE:
            yield f"off by one in `{ast.unparse(node)}`", _off_by_one
        case ast.Attribute(value=ast.Name(id=enum), attr=attr) if attr in subject.swapped.get(enum, ()):
            other = subject.swapped[enum][attr]
            yield f"{other} for {attr}", _set_field("attr", other)
        case ast.UnaryOp(op=ast.USub()):
            yield f"no minus in `{ast.unparse(node)}`", _set_field("op", ast.UAdd())
        case ast.UnaryOp(op=ast.Not()):
            yield f"no not in `{ast.unparse(node)}`", _drop_not
        case ast.Assign(targets=[ast.Attribute()]) | ast.AugAssign():
            yield f"drop `{ast.unparse(node)}`", _drop_statement
        case ast.Expr(value=ast.Call()):
            yield f"drop `{ast.unparse(node)}`", _drop_statement
    if isinstance(node, ast.Call):
        yield from _changes_of_call(subject, node)


def _changes_of_call(subject: Subject, call: ast.Call) -> Iterator[Change]:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    text = ast.unparse(call)
    if name in SWAPPED_CALL:
        yield f"{SWAPPED_CALL[name]} for `{text}`", _set_function(SWAPPED_CALL[name])
    if name == "edge" and isinstance(call.args[0], ast.Constant):
        row = ", ".join(ast.unparse(arg) for arg in call.args[:3])
        yield f"no row {row}", _drop_row(subject)
        new = call.args[3]
        assert isinstance(new, ast.Name)
        yield f"row {row} leads to {subject.next_state[new.id]}", _set_argument(3, subject.next_state[new.id])
    for keyword in call.keywords:
        if keyword.arg in subject.cleared_keywords and "None" not in ast.unparse(keyword):
            yield f"no {keyword.arg} in `{text}`", _no_keyword(keyword.arg)
        if keyword.arg == "key":
            yield f"no order in `{text}`", _no_keyword("key")


# --- the changes, each on the node of a copy -----------------------------------------------------


def _negate_test(node: ast.AST) -> None:
    assert isinstance(node, ast.If | ast.IfExp | ast.While)
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _negate_filter(number: int) -> Callable[[ast.AST], None]:
    def change(node: ast.AST) -> None:
        assert isinstance(node, ast.comprehension)
        node.ifs[number] = ast.UnaryOp(ast.Not(), node.ifs[number])

    return change


def _drop_item(field: str, number: int) -> Callable[[ast.AST], None]:
    def change(node: ast.AST) -> None:
        del getattr(node, field)[number]

    return change


def _off_by_one(node: ast.AST) -> None:
    assert isinstance(node, ast.Compare)
    node.ops = [OFF_BY_ONE[type(node.ops[0])]()]


def _set_field(field: str, value: object) -> Callable[[ast.AST], None]:
    return lambda node: setattr(node, field, value)


def _set_function(name: str) -> Callable[[ast.AST], None]:
    return _set_field("func", ast.Name(name, ast.Load()))


def _set_argument(number: int, name: str) -> Callable[[ast.AST], None]:
    def change(node: ast.AST) -> None:
        assert isinstance(node, ast.Call)
        node.args[number] = ast.Name(name, ast.Load())

    return change


def _no_keyword(name: str) -> Callable[[ast.AST], None]:
    def change(node: ast.AST) -> None:
        assert isinstance(node, ast.Call)
        for keyword in node.keywords:
            if keyword.arg == name:
                keyword.value = ast.Constant(None)

    return change


def _drop_row(subject: Subject) -> Callable[[ast.AST], None]:
    """A row that repeats another: the table is built from a mapping, so the row is gone."""

    def change(node: ast.AST) -> None:
        assert isinstance(node, ast.Call)
        first = ast.parse(subject.first_row, mode="eval").body
        assert isinstance(first, ast.Call)
        is_first = ast.unparse(node.args[2]) == ast.unparse(first.args[2])
        replacement = ast.parse(subject.second_row if is_first else subject.first_row, mode="eval").body
        assert isinstance(replacement, ast.Call)
        node.args = replacement.args

    return change


def _drop_not(node: ast.AST) -> None:
    assert isinstance(node, ast.UnaryOp)
    node.op = ast.Not()
    node.operand = ast.UnaryOp(ast.Not(), node.operand)


def _drop_statement(node: ast.AST) -> None:
    """Evaluate a constant instead."""
    assert isinstance(node, ast.stmt)
    node.__class__ = ast.Expr  # type: ignore[assignment]
    node.__dict__.pop("targets", None)
    node._fields = ast.Expr._fields
    node.value = ast.Constant(None)  # type: ignore[attr-defined]
