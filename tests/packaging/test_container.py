"""The entry point of the container, run here: the image itself is built where there is a builder, and always linted."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.support import MAILBOXD

ROOT = Path(__file__).resolve().parents[2]
ENTRY = ROOT / "container" / "entrypoint.sh"


def call(tmp_path: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "bin" / "mailboxd"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {" ".join(MAILBOXD)} "$@"\n')
    program.chmod(0o755)
    environ = {"HOME": str(tmp_path), "PATH": f"{program.parent}:{os.environ['PATH']}", **env}
    return subprocess.run(["sh", str(ENTRY), *words], env=environ, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_it_creates_the_workspace_once_and_runs_a_command_there(tmp_path: Path) -> None:
    place = tmp_path / "work space"
    settings = {"MAILBOXD_WORKSPACE": str(place), "MAILBOXD_AGENT": "analyst"}
    first = call(tmp_path, "status", "--json", **settings)
    assert '"agent": "analyst"' in first.stdout, first.stderr
    again = call(tmp_path, "status", MAILBOXD_WORKSPACE=str(place))
    assert again.returncode == first.returncode, again.stderr


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    assert "names the workspace of the agent" in call(tmp_path, "run").stderr
    place = str(tmp_path / "ws")
    assert "names the agent whose workspace" in call(tmp_path, "run", MAILBOXD_WORKSPACE=place).stderr


def test_the_image_copies_what_is_there() -> None:
    text = (ROOT / "container" / "Containerfile").read_text()
    copied = set(re.findall(r"^COPY (?:--\S+ )?(\S+)", text, re.MULTILINE)) - {"dist/"}
    assert copied == {"container/entrypoint.sh"}
    assert ENTRY.is_file()
