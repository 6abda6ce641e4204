"""Small faults in the rules of the domain, one at a time, generated from the source.

Each mutant is one change of the syntax tree of one module. Its name says where and what, so that a mutant
that no test notices can be listed with the reason (``surviving_mutants.txt``).
"""

import ast
import copy
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MODULES = ("fsm", "coordinator", "balance", "group_builder")
# No rule: a picture for the README, and the text of an error.
SKIPPED = {"mermaid", "IllegalTransition"}
NEXT_STATE = {"_FREE": "_HELD", "_HELD": "_FREE", "_WAIT": "_FREE", "_MOVING": "_HELD", "_OVER": "_FREE"}
SWAPPED_TRIGGER = {
    "HOLDER_LEFT": "NEXT_LEFT",
    "NEXT_LEFT": "HOLDER_LEFT",
    "HOLDER_TIMED_OUT": "NEXT_TIMED_OUT",
    "NEXT_TIMED_OUT": "HOLDER_TIMED_OUT",
    "APPEARED": "APPEARED_BEHIND_ANCESTOR",
    "APPEARED_BEHIND_ANCESTOR": "APPEARED",
    "HOLDER_RELEASED": "NEXT_TIMED_OUT",
    "END_CHECKPOINTED": "NOTHING_LEFT",
    "NOTHING_LEFT": "END_CHECKPOINTED",
    "ORDER_DROPPED": "ANCESTORS_CONSUMED",
    "ANCESTORS_CONSUMED": "ORDER_DROPPED",
    "RECALLED": "HOLDER_RELEASED",
    "MOVED_TO_BALANCE": "HOLDER_TIMED_OUT",
    "ASSIGNED": "NOTHING_LEFT",
    "FORCED_BACK": "ASSIGNED",
}
OFF_BY_ONE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
SWAPPED_CALL = {"min": "max", "max": "min", "all": "any", "any": "all"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """``source`` is the whole changed source of `loghub.domain.<module>`."""

    module: str
    name: str
    source: str


# Changes a node of a copy of the tree in place; the text says what changed.
Change = tuple[str, Callable[[ast.AST], None]]


def source_of(module: str) -> str:
    spec = importlib.util.find_spec(f"loghub.domain.{module}")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def mutants() -> list[Mutant]:
    return [mutant for module in MODULES for mutant in _of_module(module)]


def _of_module(module: str) -> Iterator[Mutant]:
    tree = ast.parse(source_of(module))
    same, sources = Counter[str](), set[str]()
    for index, (where, node) in enumerate(_nodes(tree, ())):
        for what, change in _changes(node):
            changed = copy.deepcopy(tree)
            _, target = list(_nodes(changed, ()))[index]
            change(target)
            source = ast.unparse(ast.fix_missing_locations(changed))
            if source in sources:
                continue
            sources.add(source)
            name = f"{'.'.join((module, *where))}: {what}"
            same[name] += 1
            suffix = f" ({same[name]})" if same[name] > 1 else ""
            yield Mutant(module, name + suffix, source)


def _nodes(node: ast.AST, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ast.AST]]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        if node.name in SKIPPED:
            return
        where = (*where, node.name)
    yield where, node
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child, where)


def _changes(node: ast.AST) -> Iterator[Change]:
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
        case ast.Attribute(value=ast.Name(id="Trigger"), attr=attr) if attr in SWAPPED_TRIGGER:
            other = SWAPPED_TRIGGER[attr]
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
        yield from _changes_of_call(node)


def _changes_of_call(call: ast.Call) -> Iterator[Change]:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    text = ast.unparse(call)
    if name in SWAPPED_CALL:
        yield f"{SWAPPED_CALL[name]} for `{text}`", _set_function(SWAPPED_CALL[name])
    if name == "_edge" and isinstance(call.args[0], ast.Constant):
        row = ", ".join(ast.unparse(arg) for arg in call.args[:3])
        yield f"no row {row}", _drop_row
        new = call.args[3]
        assert isinstance(new, ast.Name)
        yield f"row {row} leads to {NEXT_STATE[new.id]}", _set_argument(3, NEXT_STATE[new.id])
    for keyword in call.keywords:
        if keyword.arg in ("holder", "next_holder", "last_holder") and "None" not in ast.unparse(keyword):
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


def _drop_row(node: ast.AST) -> None:
    """A row that repeats the first: the table is built from a mapping, so the row is gone."""
    assert isinstance(node, ast.Call)
    first = "_edge(1, None, Trigger.APPEARED, _FREE, 'nothing prevents its assignment')"
    replacement = ast.parse(first, mode="eval").body
    if ast.unparse(node.args[2]) == "Trigger.APPEARED":
        replacement = ast.parse(first.replace("Trigger.APPEARED", "Trigger.REBOUND"), mode="eval").body
    assert isinstance(replacement, ast.Call)
    node.args = replacement.args


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
