"""The bench itself, as a process: its cheapest parts end to end, and how it behaves when it is stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler"),
]

ROOT = Path(__file__).parents[2]


def start(base: Path, only: str) -> subprocess.Popen[str]:
    """Without peers: what is not installed is said, and the rest is measured."""
    argv: list[str | Path] = [
        sys.executable,
        "-m",
        "bench",
        "--quick",
        "--only",
        only,
        "--base",
        base,
        "--peers",
        base / "none" / "python",
    ]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kept(base: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((base / "last.json").read_text(encoding="utf-8"))
    return found


def left(base: Path) -> list[str]:
    """The processes that work below a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                place = os.readlink(entry / "cwd")
            except OSError:
                continue
            if place.startswith(str(base)):
                found.append(entry.name)
    return found


def test_the_cheapest_parts_are_measured_and_judged(tmp_path: Path) -> None:
    bench = start(tmp_path, "status,fan")
    out, err = bench.communicate(timeout=800)
    assert bench.returncode == 0, err
    found = kept(tmp_path)
    fan, status = found["parts"]["fan"], found["parts"]["status"]
    assert fan["size"] == 250
    assert fan["contestants"]["mailboxd"]["wall s"] > 0
    assert fan["contestants"]["mailboxd"]["own CPU µs per node"] > 0
    assert "cannot be started" in fan["contestants"]["huey"]["problem"]
    assert status["mailboxd status"]["p50"] > status["python -c pass"]["p50"] > 0
    assert [goal["part"] for goal in found["goals"]] == ["status"]
    assert "| mailboxd |" in out
    assert left(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["last.json"]


@pytest.mark.soak
def test_one_that_is_stopped_keeps_what_it_has_and_leaves_no_process(tmp_path: Path) -> None:
    bench = start(tmp_path, "status,idle")
    assert bench.stderr is not None
    while "idle:" not in (line := bench.stderr.readline()):
        assert line, "the bench ended before it came to that part"
    assert left(tmp_path) != []
    bench.send_signal(signal.SIGTERM)
    bench.communicate(timeout=120)
    assert bench.returncode == 130
    assert set(kept(tmp_path)["parts"]) == {"status"}
    eventually(lambda: not left(tmp_path), 10)
