"""What clawflow's skill and its message.py write is taken as it is: work comes in, goes out and comes back."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import eventually

pytestmark = pytest.mark.slow

DISPATCH = """---
type:        task
task_id:     task-abc123
subtask_id:  st-extract
from:        boss
sent_at:     2026-02-13T10:00:00Z
---

# Task: Extract Q3 sales

## Context
We need Q3 numbers from sales.csv.

## Instructions
1. Parse sales.csv
2. Sum by region

## Expected Output
Markdown table: Region | Revenue | Change
"""

DONE = """---
type:        reply
task_id:     {task_id}
subtask_id:  {subtask_id}
from:        {sender}
status:      done
completed_at: 2026-02-13T10:05:00Z
---

## Results

EMEA grew.
"""

FAILED = """---
type:        reply
task_id:     {task_id}
subtask_id:  {subtask_id}
from:        {sender}
status:      failed
completed_at: 2026-02-13T10:05:00Z
---

## Error

sales.csv is empty

## Partial Results

None
"""

DIRECT = """---
task_id:      notes
mode:         direct
status:       pending
from:         boss
created_at:   2026-02-13T10:00:00Z
updated_at:   2026-02-13T10:00:00Z
---

# Task: Notes

## Instructions
Write the notes.

## Working Notes


## Results

"""

COORDINATING = """---
task_id:      q3
mode:         coordinating
status:       planning
from:         boss
created_at:   2026-02-13T10:00:00Z
updated_at:   2026-02-13T10:00:00Z
---

# Task: Q3 Analysis

## Original Instructions
Analyse Q3.

## DAG

subtasks:
  st-extract:
    agent:        beta
    description:  Extract the numbers
    depends_on:   []
    status:       pending
  st-write:
    agent:        self
    description:  Write the report
    depends_on:   [st-extract]
    status:       pending


## Subtask Results

### st-extract

### st-write



## Synthesised Output

"""
BY_MAIL = {"default": {"reply": "---\ntype: ack\n---\n"}}
"""A peer that takes the work in its turn and replies by a file."""


def test_a_dispatch_is_worked_on_and_its_reply_has_what_the_sender_asks_for(found: Found) -> None:
    company = found({"alpha": {"default": {"reply": "A table."}}})
    alpha = company["alpha"]
    alpha.drop("dispatch-st-extract.md", DISPATCH)
    alpha.run()
    assert alpha.phases() == {"task-abc123.st-extract": "completed"}
    assert alpha.json("inbox") == []
    (sent,) = alpha.sent("reply")
    for line in ("type: reply", "task_id: task-abc123", "subtask_id: st-extract", "from: alpha", "status: done"):
        assert line in sent
    assert "## Results\n\nA table." in sent
    company.at_rest()


@pytest.mark.parametrize(("reply", "phase"), [(DONE, "completed"), (FAILED, "failed")])
def test_a_task_file_is_carried_out_with_a_peer_that_replies_by_hand(found: Found, reply: str, phase: str) -> None:
    company = found({"alpha": {"default": {"reply": "The report."}}, "beta": BY_MAIL}, retry={"max_attempts": 1})
    alpha = company["alpha"]
    alpha.start()
    for name, text in (("notes", DIRECT), ("q3", COORDINATING)):
        (alpha.root / "tasks" / name).mkdir()
        (alpha.root / "tasks" / name / "task.md").write_text(text)
    alpha.until("notes")
    eventually(lambda: company.executions(agent="beta"), why=alpha.last_words)
    (given,) = (text for text in alpha.sent("task") if "st-extract" in text)
    assert "task_id: q3\n" in given
    assert "subtask_id: st-extract\n" in given
    alpha.drop("reply-st-extract.md", reply.format(task_id="q3", subtask_id="st-extract", sender="beta"))
    eventually(lambda: alpha.phase("q3") == phase, why=alpha.last_words)
    if phase == "completed":
        assert alpha.phase("q3.st-write") == "completed"
    else:
        assert "sales.csv is empty" in alpha.task("q3.st-extract")["error"]
    company.at_rest()
