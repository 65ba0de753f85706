"""Forty agents with a week of history each: one look at all of them takes less than a second of work."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mailboxd.core.model import Policy
from mailboxd.core.outcomes import Unknown
from tests.cli.stage import Stage, child, make

pytestmark = pytest.mark.slow
AGENTS = 40
TREES, CHILDREN = 30, 50
PROGRAM = str(Path(sys.executable).parent / "mailboxd")


def a_week(stage: Stage) -> None:
    """1,500 children of which most were cancelled, and one circuit that is open."""
    for number in range(TREES):
        stage.create(f"t{number}", *(child(f"k{n}") for n in range(CHILDREN)))
    for number in range(TREES - 2):
        assert stage.run("cancel", f"t{number}").exit_code == 0
    stage.create("lost", policy=Policy(priority=100))
    stage.start()
    stage.end_turn("lost", Unknown("the gateway went away", "run_9", looked_up=True))


def test_forty_agents_are_looked_at_in_less_than_a_second_of_work(tmp_path: Path) -> None:
    first = make(tmp_path / "agent0")
    a_week(first)
    assert first.json("db", "head")["seq"] > 3_000
    roots = [first.ws.root]
    for number in range(1, AGENTS):
        roots.append(shutil.copytree(first.ws.root, tmp_path / f"agent{number}"))
        (roots[-1] / ".mailboxd" / "config.yaml").write_text(f"agent: agent{number}\n")

    def look() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [PROGRAM, "fleet", "--json", *map(str, roots)], env=os.environ, capture_output=True, text=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        rows = json.loads(done.stdout)
        assert len(rows) == AGENTS
        assert all(row["attention"][-1]["task"] == "lost" and row["open"] > 80 for row in rows)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(look() for _ in range(3)) < 1.0
