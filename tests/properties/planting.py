"""Plants a fault into the running program and takes it out again.

The fault names a function and an expression in it, not a line of a file. The changed functions get the new code in
place, so everybody who holds a reference to one of them (a table, a closure, another module) runs it.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[2] / "mailboxd"
PACKAGES = ("core", "ledger", "engine", "engine/intake", "perform", "surfaces/mcp")
PLACES = tuple(place for package in PACKAGES for place in sorted((ROOT / package).glob("*.py")))


@dataclass(frozen=True, slots=True)
class Fault:
    """What a tired person might write in a function: `wrong` in place of `right`.

    `right` is a statement or an expression that the function has exactly once, however it is laid out and in whichever
    module; `if X: ...`, with three dots, is the condition of a branch; with `is_text` it is a part of a literal text.
    """

    at: str
    """The qualified name of the function."""
    right: str
    wrong: str
    is_text: bool = False

    def place(self) -> Path:
        """The only file that has it."""
        found = [place for place, function in _all_named().get(self.at, ()) for _ in self._chances(function)]
        assert len(found) == 1, f"{self.at} has {self.right!r} {len(found)} times: mend the mutant"
        return found[0]

    def versions(self, source: str) -> list[ast.Module]:
        """The source with the fault, once for each place where it could be made."""
        return [self._version(source, number) for number in range(len(self._within(ast.parse(source))))]

    def _version(self, source: str, number: int) -> ast.Module:
        tree = ast.parse(source)
        _Exchange(*self._within(tree)[number]).visit(tree)
        return tree

    def _within(self, tree: ast.Module) -> list[tuple[ast.AST, ast.AST]]:
        return [chance for name, function in _named(tree) if name == self.at for chance in self._chances(function)]

    def _chances(self, function: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
        """The nodes that are right, each with the wrong one."""
        inside = list(ast.walk(function))
        if self.is_text:
            return [
                (node, ast.Constant(node.value.replace(self.right, self.wrong)))
                for node in inside
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and self.right in node.value
            ]
        (right,), (wrong,) = ast.parse(self.right).body, ast.parse(self.wrong).body
        if isinstance(right, ast.If) and isinstance(wrong, ast.If):
            tests = (node.test for node in inside if isinstance(node, ast.If))
            return [(test, wrong.test) for test in tests if _equal(test, right.test)]
        if isinstance(right, ast.Expr) and isinstance(wrong, ast.Expr):
            return [(node, wrong.value) for node in inside if _equal(node, right.value)]
        return [(node, wrong) for node in inside if _equal(node, right)]


def _equal(one: ast.AST, other: ast.AST) -> bool:
    return type(one) is type(other) and ast.dump(one) == ast.dump(other)


def _named(tree: ast.AST, above: str = "") -> Iterator[tuple[str, ast.AST]]:
    """The functions with their qualified names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not isinstance(node, ast.ClassDef):
                yield f"{above}{node.name}", node
            yield from _named(node, f"{above}{node.name}.")
        else:
            yield from _named(node, above)


@cache
def _all_named() -> dict[str, list[tuple[Path, ast.AST]]]:
    """All functions of those places by their qualified names."""
    found = defaultdict(list)
    for place in PLACES:
        for name, function in _named(ast.parse(place.read_text(encoding="utf-8"))):
            found[name].append((place, function))
    return found


class _Exchange(ast.NodeTransformer):
    """Puts one node in the place of another. No other line moves, so that no other function differs."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old = old
        self._new = new

    def visit(self, node: ast.AST) -> Any:
        if node is not self._old:
            return self.generic_visit(node)
        for part in ast.walk(self._new):
            if "lineno" in part._attributes:
                ast.copy_location(part, node)
        return self._new


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Run the body with the fault in place."""
    place = fault.place()
    source = place.read_text(encoding="utf-8")
    (wrong,) = fault.versions(source)
    before = _functions(compile(source, str(place), "exec", dont_inherit=True))
    after = _functions(compile(wrong, str(place), "exec", dont_inherit=True))
    changed = {name for name, code in after.items() if code != before.get(name)}
    swapped: list[tuple[FunctionType, CodeType]] = []
    _forget()
    try:
        for function in _alive(place, changed):
            swapped.append((function, function.__code__))
            function.__code__ = after[function.__code__.co_qualname]
        assert swapped, f"nobody runs {fault.at}"
        yield
    finally:
        for function, code in swapped:
            function.__code__ = code
        _forget()


def _forget() -> None:
    """Empty every cache of the program: what is in it was worked out by the other code."""
    for cached in gc.get_objects():
        if isinstance(cached, _lru_cache_wrapper) and cached.__module__.startswith("mailboxd"):
            cached.cache_clear()


def _functions(code: CodeType) -> dict[str, CodeType]:
    found = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found[constant.co_qualname] = constant
            found |= _functions(constant)
    return found


def _alive(place: Path, names: set[str]) -> list[FunctionType]:
    assert any(getattr(module, "__file__", None) == str(place) for module in list(sys.modules.values()))
    return [
        function
        for function in gc.get_objects()
        if isinstance(function, FunctionType)
        and function.__code__.co_filename == str(place)
        and function.__code__.co_qualname in names
    ]
