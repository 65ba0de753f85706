"""`mailboxd db import`: a workspace in which clawflow was run by hand goes on where it stands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mailboxd.formats.protocol.messages import TaskMessage, parse_message
from tests.e2e.conftest import Found
from tests.e2e.support import Agent, eventually, reply, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}

COORDINATING = """---
task_id: q3
mode: coordinating
status: executing
from: boss
created_at: 2026-11-01T08:00:00Z
updated_at: 2026-11-01T09:00:00Z
---

# Task: Q3

## Original Instructions

Report on Q3.

## DAG

```yaml
subtasks:
  extract: {agent: beta, description: Extract, depends_on: [], status: done, result_summary: 42 rows}
  chart: {agent: beta, description: Chart, depends_on: [extract], status: dispatched}
  text: {agent: self, description: Write the text, depends_on: [extract], status: pending}
```

## Subtask Results

### extract

42 rows, all of them good.
"""

DIRECT = """---
task_id: {task_id}
mode: direct
status: {status}
from: {sender}
---

# Task: {task_id}

## Instructions

Do it.

## Results

{results}
"""


def clawflow(agent: Agent) -> None:
    """What somebody left behind who ran the protocol by hand."""
    archive = agent.root / "mailbox" / "archive"
    (archive / "from-gamma.md").write_text(task("audit", sender="gamma", subtask_id="numbers"))
    (archive / "old.md").write_text(task("old", sender="boss", message_id="m-1"))
    (archive / "notes.txt").write_text("---\ntype: task\n: broken\n---\n")
    texts = {
        "q3": COORDINATING,
        "audit": DIRECT.format(task_id="audit", status="in-progress", sender="gamma", results=""),
        "old": DIRECT.format(task_id="old", status="done", sender="boss", results="It was easy."),
        "bad": DIRECT.format(task_id="bad", status="failed", sender="boss", results="It was not."),
    }
    for name, text in texts.items():
        (agent.root / "tasks" / name).mkdir()
        (agent.root / "tasks" / name / "task.md").write_text(text)


def test_what_is_done_stays_done_and_what_is_under_way_goes_on(found: Found) -> None:
    company = found({"alpha": WORK, "beta": WORK})
    alpha = company["alpha"]
    clawflow(alpha)
    taken = alpha.call("db", "import", "--json")
    account = json.loads(taken.stdout)
    assert taken.returncode == 1, "one file could not be read, and it is said which"
    assert [problem["path"] for problem in account["problems"]] == ["mailbox/archive/notes.txt"]
    assert (account["messages"], sorted(account["tasks"])) == (2, ["audit", "bad", "old", "q3"])
    phases = alpha.phases()
    assert (phases["old"], phases["bad"], phases["q3"]) == ("completed", "failed", "executing")
    children = [phases[f"q3.{key}"] for key in ("extract", "chart", "text")]
    assert children == ["completed", "executing", "execution_ready"]

    alpha.start()
    alpha.until("audit")
    alpha.until("q3.text")
    alpha.drop("reply.md", reply("q3", "chart", "beta", "A fine chart."))
    alpha.until("q3")
    alpha.drop("again.md", task("old", sender="boss", message_id="m-1"))
    eventually(lambda: alpha.mail("duplicate"))
    alpha.stop()
    assert not company.executions(agent="beta"), "what beta had is not given to it again"
    answered = [text for text in alpha.sent("reply") if "audit" in text]
    assert len(answered) == 1
    assert "subtask_id: numbers" in answered[0]
    (alpha.root / "mailbox" / "archive" / "notes.txt").unlink()  # it was never recorded
    assert alpha.call("db", "verify").returncode == 0


TIMED = """---
task_id: timed
mode: coordinating
status: executing
from: boss
created_at: 2026-11-01T08:00:00Z
updated_at: 2026-11-01T09:00:00Z
priority: 5
x-ticket: T-17
---

# Task: Timed

## Original Instructions

Report on Q3.

## DAG

```yaml
subtasks:
  extract: {agent: beta, description: Extract, depends_on: [], status: done, result_summary: all of the rows,
    dispatched_at: "2026-11-01T08:10:00Z", completed_at: "2026-11-01T08:20:00Z"}
  chart: {agent: beta, description: Chart, depends_on: [extract], status: dispatched,
    dispatched_at: "2026-11-01T08:30:00+00:00"}
  lost: {agent: beta, description: Lost, depends_on: [], status: done, result_summary: found,
    dispatched_at: on Monday, completed_at: "2999-01-01T00:00:00Z"}
  text: {agent: self, description: Write the text, depends_on: [chart], status: pending}
```

## Subtask Results

### extract

42 rows, all of them good.
"""


def test_an_adopted_file_keeps_its_times_and_is_no_edit(found: Found) -> None:
    """Whatever of it is rendered otherwise: nobody has edited it."""
    company = found({"alpha": WORK, "beta": WORK})
    alpha = company["alpha"]
    texts = {"timed": TIMED, "old": DIRECT.format(task_id="old", status="done", sender="boss", results="Easy.")}
    texts["old"] = texts["old"].replace(
        "from: boss", "from: boss\ncreated_at: 2026-02-13 10:00:00Z\nupdated_at: 2026-02-14T10:00:00Z"
    )
    for name, text in texts.items():
        (alpha.root / "tasks" / name).mkdir()
        (alpha.root / "tasks" / name / "task.md").write_text(text)
    assert alpha.call("db", "import").returncode == 0
    for _ in range(2):
        alpha.run()
    assert not [*(alpha.root / "tasks").glob("*/task.rejected-*")]
    assert [item["kind"] for item in alpha.json("inbox")] == ["daemon"]
    assert alpha.task("timed")["created_at"] == "2026-11-01T08:00:00.000Z"
    old = alpha.task("old")
    assert (old["created_at"], old["completed_at"]) == ("2026-02-13T10:00:00.000Z", "2026-02-14T10:00:00.000Z")
    extract, chart, lost = (alpha.task(f"timed.{key}") for key in ("extract", "chart", "lost"))
    assert (extract["dispatched_at"], extract["completed_at"], extract["result_summary"]) == (
        "2026-11-01T08:10:00.000Z", "2026-11-01T08:20:00.000Z", "all of the rows",
    )  # fmt: skip
    assert chart["dispatched_at"] == "2026-11-01T08:30:00.000Z"
    assert lost["completed_at"] < "2999"
    shown = (alpha.root / "tasks" / "timed" / "task.md").read_text()
    assert 'created_at: "2026-11-01T08:00:00.000Z"' in shown
    assert alpha.call("db", "verify").returncode == 0


def test_importing_again_takes_only_what_is_new(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    clawflow(alpha)
    alpha.call("db", "import")
    (alpha.root / "mailbox" / "archive" / "notes.txt").unlink()
    again = alpha.call("db", "import", "--json")
    assert json.loads(again.stdout) == {"messages": 0, "tasks": [], "known": 6, "problems": []}
    assert again.returncode == 0


def test_not_beside_a_running_daemon(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.start()
    refused = alpha.call("db", "import")
    assert refused.returncode == 73
    assert "running" in refused.stderr or "lock" in refused.stderr


SKELETON = """---
task_id:      report
mode:         coordinating
status:       planning
from:         boss
created_at:   2026-02-13T10:00:00Z
updated_at:   2026-02-13T10:00:00Z
---

# Task: Report

## Original Instructions
Report on Q3.

## DAG

subtasks:
  st-extract:
    agent:        
    description:  
    depends_on:   []
    status:       pending


## Subtask Results

### st-extract



## Synthesised Output

"""  # noqa: W291 - as message.py of clawflow writes it


def test_a_skeleton_that_nobody_filled_in_is_planned_by_its_agent(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    (alpha.root / "tasks" / "report").mkdir()
    (alpha.root / "tasks" / "report" / "task.md").write_text(SKELETON)
    account = json.loads(alpha.call("db", "import", "--json").stdout)
    assert (account["tasks"], account["problems"]) == (["report"], [])
    alpha.run()
    assert alpha.phase("report") == "completed"
    assert not alpha.events("task.edit_refused")
    spec = json.loads(alpha.task("report")["spec"])
    assert spec["instructions"] == "Report on Q3.\n\nPlan these subtasks: st-extract."


def test_the_script_of_the_page_makes_a_plan_of_open_issues() -> None:
    page = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
    script = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    blocks = [{"issue_id": "bd-2", "depends_on_id": name, "type": "blocks"} for name in ("bd-1", "bd-3")]
    issues = [
        {"id": "bd-1", "title": "Design", "status": "in_progress", "description": "All of it."},
        {"id": "bd-2", "title": "Build", "status": "open", "dependencies": blocks},
        {"id": "bd-3", "title": "Done", "status": "closed"},
    ]
    given = "\n".join(map(json.dumps, issues))
    made = subprocess.run([sys.executable, "-c", script], input=given, capture_output=True, text=True, check=True)
    message = parse_message(made.stdout.encode(), "issues.md").message
    assert isinstance(message, TaskMessage)
    assert message.plan is not None
    assert [(one.key, one.depends_on) for one in message.plan.children] == [("bd-1", ()), ("bd-2", ("bd-1",))]
