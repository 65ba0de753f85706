"""Finished tasks leave tasks/ after a time, and files that came with mail go; mail, events and what is open stay."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Found
from tests.e2e.support import Agent, task

pytestmark = pytest.mark.slow

WORK = {"default": {"reply": "Result of {title}."}}
TREE = {"one": {"agent": "self", "description": "One"}}


def below(agent: Agent, path: str = "tasks") -> set[str]:
    return {entry.name for entry in (agent.root / path).iterdir()}


def run_twice(agent: Agent) -> None:
    agent.run()  # at its beginning nothing had ended yet
    agent.run()


def test_a_finished_task_is_put_away_whole(found: Found) -> None:
    alpha = found({"alpha": WORK}, tasks={"keep_days": 0})["alpha"]
    alpha.drop("a.md", task("report"))
    alpha.drop("b.md", task("tree", plan=TREE))
    alpha.run()
    (alpha.root / "tasks" / "report" / "my-notes.md").write_text("mine")
    alpha.run()
    assert below(alpha) == {".archive"}
    assert below(alpha, "tasks/.archive") == {"report", "tree"}
    assert "Result of report." in (alpha.root / "tasks/.archive/report/task.md").read_text()
    assert (alpha.root / "tasks/.archive/report/my-notes.md").read_text() == "mine"
    assert [event["data"]["path"] for event in alpha.events("task.put_away")] == [
        "tasks/.archive/report",
        "tasks/.archive/tree",
    ]
    assert sum(path.name != "INDEX.md" for path in (alpha.root / "mailbox/archive").rglob("*.md")) == 2
    alpha.run()
    assert below(alpha) == {".archive"}, "it is not rendered again"
    assert alpha.call("db", "verify").returncode == 0


def test_what_comes_back_is_shown_again_and_put_away_beside_its_predecessor(found: Found) -> None:
    alpha = found({"alpha": WORK}, tasks={"keep_days": 0})["alpha"]
    alpha.drop("a.md", task("report"))
    run_twice(alpha)
    assert alpha.call("retry", "report").returncode == 0
    run_twice(alpha)
    assert below(alpha, "tasks/.archive") == {"report", "report~2"}
    assert "Result of report." in (alpha.root / "tasks/.archive/report~2/task.md").read_text()


def test_what_is_open_or_fresh_stays(found: Found) -> None:
    alpha = found({"alpha": WORK})["alpha"]
    alpha.drop("a.md", task("report"))
    run_twice(alpha)
    assert below(alpha) == {"report"}


def test_files_that_came_with_mail_go_unless_a_task_that_received_them_is_open(found: Found) -> None:
    rules = [{"match": {"task": "stuck"}, "fail": {"error": "overloaded"}}, {"reply": "Text."}]
    alpha = found({"alpha": {"rules": rules}}, tasks={"keep_days": 0}, retry={"max_attempts": 2})["alpha"]
    done, stuck, orphan = (f"{letter * 64}.md" for letter in "abc")
    (alpha.root / "mailbox/attachments").mkdir()
    for name in (done, stuck, orphan):
        (alpha.root / "mailbox/attachments" / name).write_text("A file.")
    alpha.drop("a.md", task("report", attachments=done))
    alpha.drop("b.md", task("stuck", attachments=stuck))
    run_twice(alpha)
    assert below(alpha, "mailbox/attachments") == {stuck}
    assert alpha.call("resolve", "--failed", "stuck", "--now").returncode == 0
    run_twice(alpha)
    assert below(alpha, "mailbox/attachments") == set()
