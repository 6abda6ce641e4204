"""A copy of the rules that counts how often each of their conditions was true and false.

The copy is compiled from the production source. Each condition (of an ``if``, a conditional expression, a
comprehension, and each operand of ``and`` and ``or``) is wrapped in a call that counts and returns its value.
"""

import ast
import builtins
import importlib
import inspect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

_COUNT = "_count"


@dataclass
class Guards:
    """All conditions, as ``module.function: condition``, and how often each was true and false."""

    names: list[str] = field(default_factory=list)
    hits: Counter[tuple[int, bool]] = field(default_factory=Counter)

    def count(self, number: int, value: Any) -> Any:
        self.hits[number, bool(value)] += 1
        return value

    def missed(self) -> set[str]:
        """Each condition that was never true, or never false."""
        outcomes = ((n, name, outcome) for n, name in enumerate(self.names) for outcome in (False, True))
        return {f"{name} is {outcome}" for n, name, outcome in outcomes if not self.hits[n, outcome]}

    def table(self) -> str:
        """One line for each condition: how often it was true, how often false."""
        return "\n".join(
            f"{self.hits[n, True]:9} true {self.hits[n, False]:9} false  {name}"
            for n, name in enumerate(self.names)
        )


class _Counting(ast.NodeTransformer):
    def __init__(self, module: str, guards: Guards) -> None:
        self._where = [module]
        self._guards = guards

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._where.append(node.name)
        self.generic_visit(node)
        self._where.pop()
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        names = [ast.unparse(value) for value in node.values]
        self.generic_visit(node)
        pairs = zip(names, node.values, strict=True)
        node.values = [value if _is_literal(value) else self._counted(name, value) for name, value in pairs]
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self._condition(node.test)
        node.body = [self.visit(child) for child in node.body]
        node.orelse = [self.visit(child) for child in node.orelse]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test = self._condition(node.test)
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        node.test = self._condition(node.test)
        node.body = [self.visit(child) for child in node.body]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.iter = self.visit(node.iter)
        node.ifs = [self._condition(test) for test in node.ifs]
        return node

    def _condition(self, node: ast.expr) -> ast.expr:
        name = ast.unparse(node)
        visited: ast.expr = self.visit(node)
        return visited if isinstance(node, ast.BoolOp) else self._counted(name, visited)

    def _counted(self, name: str, value: ast.expr) -> ast.expr:
        self._guards.names.append(f"{'.'.join(self._where)}: {name}")
        number = ast.Constant(len(self._guards.names) - 1)
        return ast.Call(func=ast.Name(_COUNT, ast.Load()), args=[number, value], keywords=[])


def _is_literal(node: ast.expr) -> bool:
    """A value in place of nothing, such as ``()``, which is always the same."""
    return isinstance(node, ast.Constant | ast.Tuple | ast.Dict)


def counting_copies(package: str, modules: Sequence[str]) -> tuple[list[ModuleType], Guards]:
    """Copies of these modules, which come in the order in which they import each other, and so do the
    copies."""
    guards = Guards()
    copies: dict[str, ModuleType] = {}

    def import_copy(name: str, *args: Any) -> ModuleType:
        return copies.get(name) or builtins.__import__(name, *args)

    for name in modules:
        full = f"{package}.{name}"
        source = inspect.getsource(importlib.import_module(full))
        tree = ast.fix_missing_locations(_Counting(name, guards).visit(ast.parse(source)))
        copy = ModuleType(f"counting.{name}")
        copy.__dict__["__builtins__"] = {**builtins.__dict__, "__import__": import_copy}
        copy.__dict__[_COUNT] = guards.count
        exec(compile(tree, f"<counting {name}>", "exec"), copy.__dict__)
        copies[full] = copy
    return list(copies.values()), guards
