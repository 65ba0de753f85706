"""Pages whose commands are run as they stand there: `sh` blocks in order, and `text` blocks are what these print."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^(`{3,4})(sh|text)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
MARK = "==== end of block {} ===="


def assert_page(page: Path, directory: Path, *, first: str = "", env: Mapping[str, str] | None = None) -> None:
    """Every `sh` block of `page` succeeds in `directory`, after the command `first`, and prints what the page shows."""
    blocks = [(found[2], found[3]) for found in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    commands = [text for kind, text in blocks if kind == "sh"]
    script = f"set -euo pipefail\nexec 2>&1\n{first}\n" + "".join(
        f"{text}\necho '{MARK.format(number)}'\n" for number, text in enumerate(commands)
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAILBOXD", "OPENCLAW"))}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{environment['PATH']}", "NO_COLOR": "1", "COLUMNS": "100"}
    environment |= env or {}
    ran = subprocess.Popen(
        ["bash", "-c", script],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = ran.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        os.killpg(ran.pid, signal.SIGKILL)  # a page that hangs leaves nothing behind but what its programs have said
        for log in sorted(directory.rglob("*.log")):
            print(f"==== {log}\n{log.read_text(errors='replace')[-2000:]}")
        raise
    assert ran.returncode == 0, output[-3000:]
    printed = re.split(r"^==== end of block \d+ ====\n", output, flags=re.MULTILINE)
    number = -1
    for kind, text in blocks:
        if kind == "sh":
            number += 1
        else:
            _assert_prints(printed[number], text, commands[number])


def _assert_prints(output: str, said: str, command: str) -> None:
    """Each line that is said to be printed is, in this order; `…` stands for anything on a line."""
    lines = iter(output.splitlines())
    for expected in filter(None, said.splitlines()):
        pattern = ".*".join(re.escape(part) for part in expected.split("…"))
        assert any(re.fullmatch(pattern, line.rstrip()) for line in lines), (
            f"{command}\ndoes not print, at its place:\n{expected}\nbut:\n{output}"
        )
