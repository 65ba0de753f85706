"""The program in docs/audit.md, which uses nothing of mailboxd, checks what a daemon has recorded and signed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mailboxd.formats.keys import PrivateKey
from mailboxd.ledger.signed_heads import Head
from tests.audit.frauds import rewrite
from tests.e2e.pages import DOCS

KEY = PrivateKey(bytes([7]) * 32)
ROW = ("seq", "at", "kind", "task", "role", "actor")
_PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def journal(worked: Path, tmp_path: Path) -> Path:
    """The journal of a workspace in which daemons have worked, with a head after its last event."""
    folder = tmp_path / "events"
    folder.mkdir()
    for path in worked.glob("ws/alpha/mailbox/archive/events/*.jsonl"):
        (folder / path.name).write_bytes(path.read_bytes())
    *_, last = events(folder)
    head = Head(last["seq"], last["hash"], last["at"])
    line = {"head": {"seq": head.seq, "hash": head.hash, "at": head.at, "signature": KEY.sign(head.signed())}}
    with max(folder.iterdir()).open("a") as file:
        file.write(json.dumps(line) + "\n")
    return folder


def events(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.iterdir()):
        for line in path.read_text().splitlines():
            if "seq" in (said := json.loads(line)):
                yield said


def checked(folder: Path) -> tuple[int, str]:
    (program,) = _PROGRAM.findall((DOCS / "audit.md").read_text())
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, str(folder), str(KEY.public)], capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_it_proves_an_honest_journal(journal: Path) -> None:
    count = len(list(events(journal)))
    assert checked(journal) == (0, f"{count} events, proven to event {count}\n")


def edited(change: Callable[[list[str]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = min(folder.iterdir())
        lines = path.read_text().splitlines(keepends=True)
        change(lines)
        path.write_text("".join(lines))

    return edit


def another_name(event: dict[str, Any]) -> None:
    event["actor"] = "mallory"


def _second(lines: list[str]) -> int:
    """Where the second event is: other lines may be between."""
    return [number for number, line in enumerate(lines) if "seq" in json.loads(line)][1]


@pytest.mark.parametrize(
    ("fraud", "said"),
    [
        (edited(lambda lines: lines.pop(_second(lines))), ": not what was recorded"),
        (edited(lambda lines: lines.insert(3, lines[1])), "line 4: not what was recorded"),
        (edited(lambda lines: lines.__setitem__(1, lines[1].replace('"at":"2', '"at":"3'))), "line 2: not what"),
        (lambda folder: rewrite(folder, another_name), "InvalidSignature"),
        (edited(lambda lines: lines.append('{"head":{},"kind":"approval.resolved"}\n')), "mailboxd does not write"),
        (
            edited(lambda lines: lines.__setitem__(1, lines[1].replace('"actor":', '"actor":"x","actor":'))),
            "stands twice",
        ),
    ],
)
def test_it_names_a_fraud(journal: Path, fraud: Callable[[Path], None], said: str) -> None:
    fraud(journal)
    code, told = checked(journal)
    assert (code, said in told) == (1, True), told
