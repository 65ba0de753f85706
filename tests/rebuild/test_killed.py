"""`rebuild --replace` killed at its changes: the database before is never lost, and another run ends the same."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e import killed_at
from tests.e2e.conftest import Found, found
from tests.e2e.support import environment, task
from tests.rebuild.test_histories import rows

__all__ = ["found"]

pytestmark = pytest.mark.slow

MIDDLE_AND_LAST = [(2, 5), pytest.param(12, 10, marks=pytest.mark.soak)]
"""How many points of the middle, where the new file is written, and how many of the last ones are tried."""
PLAN = {"table": {"agent": "self", "description": "Make the table"}, "text": {"agent": "beta", "description": "Write"}}


def rebuild(root: Path, point: int) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, killed_at.__file__, str(point), "-w", str(root), "db", "rebuild", "--replace", "--json"]
    return subprocess.run(argv, env=environment(), capture_output=True, text=True, check=False)


def told(path: Path) -> list[tuple[object, ...]]:
    """The tasks that a database knows, or nothing if it is none."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return db.execute("SELECT local_id, phase, result FROM v_tasks ORDER BY local_id").fetchall()


@pytest.mark.parametrize(("middle", "last"), MIDDLE_AND_LAST)
def test_killed_at_every_change(found: Found, tmp_path: Path, middle: int, last: int) -> None:
    company = found({"alpha": {"default": {"reply": "Text."}}, "beta": {"default": {"reply": "Text."}}})
    alpha = company["alpha"]
    alpha.drop("a.md", task("a", plan=PLAN))
    alpha.drop("b.md", task("b"))
    alpha.run()
    assert alpha.phases()["a"] == "completed"

    def copy(name: str) -> Path:
        shutil.copytree(alpha.root, tmp_path / name, symlinks=True)
        return tmp_path / name

    before = told(alpha.root / ".mailboxd/mailboxd.db")
    whole = rebuild(copy("whole"), 0)
    assert whole.returncode == 0, whole.stderr
    reference = rows(tmp_path / "whole/.mailboxd/mailboxd.db")
    (changes,) = map(int, re.findall(r"changes: (\d+)", whole.stderr))
    end = max(changes - last, 1)
    for point in (*range(1, end, max(1, end // middle)), *range(end, changes + 1)):
        root = copy(f"at-{point}")
        assert rebuild(root, point).returncode == -9, point
        state = root / ".mailboxd"
        old = [path for path in state.glob("mailboxd.db*") if re.fullmatch(r"mailboxd\.db(\.replaced-\w+)?", path.name)]
        assert before in [told(path) for path in old], f"killed at {point}: the database before is gone"
        again = rebuild(root, 0)
        assert again.returncode == 0, (point, again.stderr)
        assert rows(state / "mailboxd.db") == reference, point
        assert not list(state.glob("*.rebuilding*")), "nothing is left of the one that was killed"
        shutil.rmtree(root)
