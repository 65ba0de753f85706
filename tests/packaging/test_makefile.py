"""The developer's entrance: it explains itself, and says what is missing instead of failing somewhere later."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(directory: Path, *arguments: str, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=directory,
        env={"PATH": path, "HOME": str(directory)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_make_alone_lists_every_target() -> None:
    phony = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[0].split()
    listed = re.findall(r"^  make (\S+) +\S", make(ROOT).stdout, re.MULTILINE)
    assert listed == phony


def test_without_a_suitable_python_it_says_which_were_tried(tmp_path: Path) -> None:
    for file in ("Makefile", "requirements-dev.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    tried = make(tmp_path, "test", "PYTHON=/bin/false")
    assert tried.returncode != 0
    assert "no Python 3.11 or newer with venv (tried: /bin/false)" in tried.stderr
    assert not (tmp_path / ".venv").exists()


def test_an_interpreter_that_does_not_run_or_is_too_old_is_passed_over(tmp_path: Path) -> None:
    for file in ("Makefile", "requirements-dev.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    for name, script in {
        "python3.13": "exit 127",
        "python3.12": "exit 1",
        # stands in for one that fits: answers the question, then shows what it was asked to make
        "python3.11": 'if [ "$1" = -c ]; then exit 0; fi; echo "$@" >&2; exit 3',
    }.items():
        program = bin_directory / name
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
    tried = make(tmp_path, "install", path=f"{bin_directory}:/usr/bin:/bin")
    assert "creating .venv with python3.11" in tried.stdout
    assert "-m venv --clear .venv" in tried.stderr


def test_ci_stops_at_the_first_failure() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "set -euo pipefail" in script
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
