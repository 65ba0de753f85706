"""Recorded output of the real OpenClaw, and helpers that build an `Exit`."""

from __future__ import annotations

import json
from pathlib import Path

from mailboxd.perform.agents.call_dir import Exit

_DIRECTORY = Path(__file__).parent / "fixtures"


def recorded(case: str) -> Exit:
    """How the recorded command line ended."""
    run = json.loads((_DIRECTORY / f"{case}.json").read_text(encoding="utf-8"))
    return Exit(run["rc"], run["stdout"].encode(), run["stderr"].encode())


def printed(value: object, rc: int | None = 0) -> Exit:
    """A command that printed `value` as JSON."""
    return Exit(rc, json.dumps(value).encode())
