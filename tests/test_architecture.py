"""The shape of the code, as far as the import contracts in pyproject.toml cannot see it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "mailboxd").rglob("*.py"))
LONGEST_MODULE = 300
LONGEST_FUNCTION = 40

# what tells the time, waits for it to pass, or asks chance
FORBIDDEN_CALLS = {
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "monotonic"),
    ("time", "monotonic_ns"),
    ("time", "sleep"),
}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def forbidden(source: str) -> list[str]:
    """Uses of the clock, under whatever module they stand: `datetime.datetime.now()` as well as `datetime.now`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if (owner, node.attr) in FORBIDDEN_CALLS:
                found.append(f"line {node.lineno}: {owner}.{node.attr}")
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            found.append(f"line {node.lineno}: from time import ...")
    return found


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "clock.py"], ids=name)
def test_only_the_clock_asks_what_time_it_is(path: Path) -> None:
    assert forbidden(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    ["datetime.now(UTC)", "x = datetime.datetime.utcnow", "time.time()", "from time import monotonic", "date.today()"],
)
def test_the_check_itself_sees_the_clock(source: str) -> None:
    assert forbidden(source) != []


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_fits_on_a_few_screens_and_a_function_on_one(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= LONGEST_MODULE
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    lengths = {node.name: (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree) or not tree.body


def test_the_version_stands_in_one_place() -> None:
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    (version,) = [line.split('"')[1] for line in lines if line.startswith("version = ")]
    assert [name(path) for path in MODULES if f'"{version}"' in path.read_text(encoding="utf-8")] == []
