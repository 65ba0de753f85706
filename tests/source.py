"""The source of mailboxd, for the tests that read it as text: each file is parsed once for all of them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "mailboxd"


@cache
def modules() -> tuple[Path, ...]:
    return tuple(sorted(SOURCE.rglob("*.py")))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file, each before what is in it; the first is its module."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def documentation(path: Path) -> set[int]:
    """The ids of the nodes that stand alone, as docstrings do."""
    return {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
