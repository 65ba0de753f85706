"""The tutorial is true: its commands run as they stand there, and print what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^(`{3,4})(sh|text)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
MARK = "==== end of block {} ===="


@pytest.mark.timeout(110)
def test_every_command_of_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    blocks = [(found[2], found[3]) for found in BLOCK.finditer(TUTORIAL.read_text(encoding="utf-8"))]
    commands = [text for kind, text in blocks if kind == "sh"]
    script = "set -euo pipefail\nexec 2>&1\n" + "".join(
        f"{text}\necho '{MARK.format(number)}'\n" for number, text in enumerate(commands)
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAILBOXD", "OPENCLAW"))}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{environment['PATH']}", "NO_COLOR": "1", "COLUMNS": "100"}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    printed = re.split(r"^==== end of block \d+ ====\n", ran.stdout, flags=re.MULTILINE)
    number = -1
    for kind, text in blocks:
        if kind == "sh":
            number += 1
        else:
            assert_prints(printed[number], text, commands[number])


def assert_prints(output: str, said: str, command: str) -> None:
    """Each line that is said to be printed is, in this order; `…` stands for anything on a line."""
    lines = iter(output.splitlines())
    for expected in filter(None, said.splitlines()):
        pattern = ".*".join(re.escape(part) for part in expected.split("…"))
        assert any(re.fullmatch(pattern, line.rstrip()) for line in lines), (
            f"{command}\ndoes not print, at its place:\n{expected}\nbut:\n{output}"
        )
