"""`ask` waits for one program, and leaves none behind."""

from __future__ import annotations

import sys
import time

import pytest

from mailboxd.perform.agents.ask import ask
from mailboxd.perform.agents.process import NotStarted

PYTHON = sys.executable


def test_ask_returns_output_and_exit_status() -> None:
    exit_ = ask([PYTHON, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], {}, 30)
    assert (exit_.rc, exit_.stdout, exit_.stderr) == (3, b"out\n", b"err\n")


def test_it_sees_only_the_environment_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "1")
    exit_ = ask([PYTHON, "-c", "import os; print(os.environ.get('SECRET'), os.environ['GIVEN'])"], {"GIVEN": "yes"}, 30)
    assert exit_.stdout == b"None yes\n"


def test_one_that_takes_too_long_is_stopped_with_its_children() -> None:
    before = time.monotonic()
    exit_ = ask(["/bin/sh", "-c", "sleep 60 & sleep 60"], {"PATH": "/usr/bin:/bin"}, 0.2)
    assert exit_.rc == -15
    assert time.monotonic() - before < 30


def test_a_missing_program_is_said_by_name() -> None:
    with pytest.raises(NotStarted, match="no-such-program"):
        ask(["no-such-program"], {"PATH": "/usr/bin"}, 1)
