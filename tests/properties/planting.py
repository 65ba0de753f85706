"""Plants a fault into the running program and takes it out again.

The fault is a change of source text. The changed functions get the new code in place, so everybody who holds a
reference to one of them (a table, a closure, another module) runs it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FunctionType

ROOT = Path(__file__).resolve().parents[2] / "mailboxd"
PACKAGES = ("core", "store", "engine", "intake", "effects", "mcp")
PLACES = tuple(place for package in PACKAGES for place in sorted((ROOT / package).glob("*.py")))


@dataclass(frozen=True, slots=True)
class Fault:
    """`right` is the text as it stands, exactly once in all of PLACES; `wrong` is what a tired person might write."""

    right: str
    wrong: str

    def place(self) -> Path:
        found = [place for place in PLACES for _ in range(place.read_text(encoding="utf-8").count(self.right))]
        assert len(found) == 1, f"{self.right!r} stands {len(found)} times in those places: mend the mutant"
        return found[0]


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Run the body with the fault in place."""
    place = fault.place()
    source = place.read_text(encoding="utf-8")
    before = _functions(compile(source, str(place), "exec", dont_inherit=True))
    after = _functions(compile(source.replace(fault.right, fault.wrong), str(place), "exec", dont_inherit=True))
    changed = {name for name, code in after.items() if code != before.get(name)}
    swapped: list[tuple[FunctionType, CodeType]] = []
    _forget()
    try:
        for function in _alive(place, changed):
            swapped.append((function, function.__code__))
            function.__code__ = after[function.__code__.co_qualname]
        assert swapped, f"nobody runs what {fault.right!r} stands in"
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
