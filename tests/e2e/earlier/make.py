"""Freezes two workspaces in the middle of their work: `python -m tests.e2e.earlier.make FILE.tar.gz`.

What a workspace of a version looks like is made once, with the code of that version, and never again: later versions
must open it, verify it, go on with it and undo what it did (tests/e2e/test_earlier.py). alpha has finished work, an
open question, an open circuit, a failed task, an action that ran and one that waits, a paused tree, a rejected file, a
doubt, a child that beta has not read yet, and a turn that outlived its daemon.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path

from tests.e2e.acting import ALONE, acting, approve, asked
from tests.e2e.support import Company, eventually, task

LASTING = 365 * 86_400
RULES = [
    {"match": {"kind": "work", "task": "asks"}, "times": 1, "question": "Which year?\n\nOptions: 2025, 2026"},
    {"match": {"kind": "work", "task": "breaks"}, "fail": {"kind": "transient", "error": "overloaded"}},
    {"match": {"task": "paused.x"}, "delay": 1, "reply": "X is done."},
    {"match": {"kind": "work", "task": "refused"}, "fail": {"kind": "permanent", "error": "HTTP 400"}},
    {"match": {"task": "late"}, "delay": 3, "reply": "Late, but done."},
    {"reply": "Result of {title}."},
]


def make(root: Path, target: Path) -> None:
    company = Company(
        root, {"alpha": {"mailbox": True, "rules": RULES}, "beta": {"mailbox": True, "default": {"reply": "Beta's."}}}
    )
    alpha, beta = company["alpha"], company["beta"]
    alpha.settle_in({"approvals": {**ALONE, "expire_seconds": LASTING}, "circuit": {"hold_seconds": LASTING}})
    beta.settle_in({})
    alpha.start()
    beta.start()
    parts = {
        "a": {"agent": "beta", "description": "Part A"},
        "b": {"agent": "self", "description": "Part B", "depends_on": ["a"]},
    }
    alpha.drop("done.md", task("done", "A finished tree", plan=parts))
    alpha.until("done")
    alpha.drop("asks.md", task("asks", "It asks"))
    alpha.drop("breaks.md", task("breaks", "It breaks", max_attempts=2))
    alpha.drop("refused.md", task("refused", "It is refused"))
    alpha.until("breaks", "circuit_open")
    alpha.until("refused", "failed")
    touch = {"id": "touch", "kind": "command"}
    alpha.drop("acts.md", acting("acts", [{**touch, "argv": ["touch", "done.txt"], "undo": ["rm", "done.txt"]}]))
    approve(alpha, *asked(alpha))
    alpha.until("acts")
    alpha.drop("waits.md", acting("waits", [{**touch, "argv": ["touch", "second.txt"]}]))
    asked(alpha, 2)
    alpha.drop("reviewed.md", task("reviewed", gates="spec_review", reviewers="nobody"))
    parts = {
        "x": {"agent": "self", "description": "X"},
        "y": {"agent": "self", "description": "Y", "depends_on": ["x"]},
    }
    alpha.drop("paused.md", task("paused", plan=parts))
    eventually(lambda: alpha.phase("paused.x") == "executing")
    assert alpha.call("pause", "paused").returncode == 0
    alpha.drop("bad.md", "---\ntype: task\nfrom: ../x\n---\nno\n")
    alpha.drop("doubt.md", "---\ntask_id: doubt\nbudget_udsd: 3\n---\n# Doubt\n\nA limit that is misspelt.\n")
    alpha.until("doubt")
    beta.stop()
    parts = {
        "one": {"agent": "self", "description": "One"},
        "two": {"agent": "beta", "description": "Two", "depends_on": ["one"]},
        "three": {"agent": "self", "description": "Three", "depends_on": ["two"]},
    }
    alpha.drop("tree.md", task("tree", "A tree in the middle", plan=parts))
    eventually(lambda: alpha.phase("tree.two") == "executing" and beta.unread())
    eventually(alpha.has_nothing_to_do)
    alpha.drop("late.md", task("late", "A turn that outlives its daemon"))
    eventually(lambda: any(entry["local_id"] == "late" for entry in company.executions()))
    alpha.kill()
    eventually(lambda: any(entry.get("reply") == "Late, but done." for entry in company.entries()))
    with tarfile.open(target, "x:gz", compresslevel=9) as tar:
        for name in ("script.yaml", "ledger.jsonl", "ws/alpha", "ws/beta"):
            tar.add(root / name, name, filter=lambda member: None if member.name.endswith("daemon.log") else member)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), Path(sys.argv[1]))
