"""The shape of the code, as far as the import contracts in pyproject.toml cannot see it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "mailboxd").rglob("*.py"))

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


MAY_ASK = ("from time import", *(f"{owner}.{call}" for owner, call in FORBIDDEN_CALLS))
"""A text without any of these need not be parsed."""
SAYS = re.compile(r'(?:#[^\n]*\n)*\s*"""\s*\S')


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


def test_only_the_clock_asks_what_time_it_is() -> None:
    others = [path for path in MODULES if path.name != "clock.py"]
    texts = {path: path.read_text(encoding="utf-8") for path in others}
    uses = {
        name(path): found
        for path, text in texts.items()
        if any(one in text for one in MAY_ASK) and (found := forbidden(text))
    }
    assert uses == {}


@pytest.mark.parametrize(
    "source",
    ["datetime.now(UTC)", "x = datetime.datetime.utcnow", "time.time()", "from time import monotonic", "date.today()"],
)
def test_the_check_itself_sees_the_clock(source: str) -> None:
    assert forbidden(source) != []


def test_every_module_says_what_it_is_for() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in MODULES}
    silent = [name(path) for path, text in texts.items() if text and not SAYS.match(text)]
    assert silent == []


def test_the_version_stands_in_one_place() -> None:
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    (version,) = [line.split('"')[1] for line in lines if line.startswith("version = ")]
    assert [name(path) for path in MODULES if f'"{version}"' in path.read_text(encoding="utf-8")] == []


def test_the_daemon_loads_no_event_loop_and_no_client_of_the_hub() -> None:
    code = (
        "import sys, mailboxd.daemon.supervise\n"
        "heavy = {'asyncio', 'nats', 'nkeys', 'cryptography', 'jinja2', 'starlette'} & set(sys.modules)\n"
        "assert not heavy, sorted(heavy)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
