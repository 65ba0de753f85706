"""`mailboxd send --check`: what a file would become; `inbox --edit`: a rejected file is corrected and sent again."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from mailboxd.cli.commands import approvals
from tests.cli.stage import Stage

PLAN = """# Prices

## Acceptance Criteria

- Each price has a source

## DAG

```yaml
subtasks:
  look: {agent: self, description: Look}
  tell: {agent: self, description: Tell, depends_on: [look]}
```
"""


def take(stage: Stage, name: str, text: str) -> None:
    (stage.ws.inbox / name).write_text(text)
    assert stage.receive() != "rejected"


def test_a_file_is_described_as_the_task_that_it_would_become(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "prices.md"
    file.write_text(f"---\npriority: 5\nbudget_usd: 2\n---\n{PLAN}")
    found = stage.json("send", "--check", str(file))
    assert (found["verdict"], found["type"], found["sender"], found["doubts"]) == ("accepted", "task", "operator", [])
    task = found["task"]
    assert (task["title"], task["agent"], task["priority"], task["budget_usd"]) == ("Prices", "alpha", 5, 2.0)
    assert task["acceptance_criteria"] == ["Each price has a source"]
    assert [(one["id"], one["depends_on"]) for one in task["subtasks"]] == [("look", []), ("tell", ["look"])]

    said = stage.run("send", "--check", str(file)).stdout
    assert "prices.md would become a task of alpha, from operator:" in said
    assert f"to send it: cp -- {file} {stage.ws.inbox}/" in said
    assert stage.json("ls") == [], "nothing is recorded"
    assert list(stage.ws.inbox.iterdir()) == [], "nothing is sent"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("---\ndeadline: a\ndeadline: b\n---\nx\n", "duplicate-key"),
        ("# Task\n\n## Goal\n\n## Instructions\n", "no-text"),
        (PLAN.replace("[look]", "[gone]"), "unknown-dependency"),
        ("", "empty"),
    ],
)
def test_a_file_that_would_be_rejected_is_refused_with_the_same_reason(
    stage: Stage, tmp_path: Path, text: str, rule: str
) -> None:
    (tmp_path / "a.md").write_text(text)
    result = stage.run("send", "--check", str(tmp_path / "a.md"), "--json")
    assert result.exit_code == 65
    assert f"({rule})" in json.loads(result.stderr)["error"]["message"]


def test_a_text_that_was_taken_before_and_a_backup_are_named_as_such(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "milk.md"
    file.write_text("Buy milk.\n")
    take(stage, "milk.md", "Buy milk.\n")
    (doubt,) = stage.json("send", "--check", str(file))["doubts"]
    assert doubt == "it was taken on 2026-11-21 from inbox/milk.md: it would not be done again"
    (task,) = stage.json("ls")
    said = stage.run("send", "--check", str(file)).stdout
    assert "to send it" not in said
    assert f"to have that done again: mailboxd -w {stage.ws.root} retry {task['local_id']}" in said
    backup = file.rename(tmp_path / "milk.md.bak")
    assert "by its name it is a backup of milk.md" in stage.run("send", "--check", str(backup)).stdout


SENT = "---\ntype: task\ntask_id: print\nfrom: beta\n{}---\n\n# Print the {}\n\nOn paper.\n"


@pytest.mark.parametrize(
    ("text", "verdict", "said"),
    [
        (SENT.format("sent_at: 2026-11-22T00:00:00Z\n", "map"), "duplicate", "taken before, for print"),
        (SENT.format("attempt: 2\n", "chart"), "accepted", "would be taken: it is about print"),
        ("---\ntype: steer\ntask_id: print\nfrom: beta\n---\nIn blue.\n", "accepted", "it is about print"),
        ("---\ntype: steer\ntask_id: draw\nfrom: beta\n---\nIn blue.\n", "orphan", "no task that is known here"),
    ],
)
def test_a_message_about_known_work_is_judged_by_that(
    stage: Stage, tmp_path: Path, text: str, verdict: str, said: str
) -> None:
    take(stage, "1.md", SENT.format("", "map"))
    (tmp_path / "2.md").write_text(text)
    assert stage.json("send", "--check", str(tmp_path / "2.md"))["verdict"] == verdict
    shown = stage.run("send", "--check", str(tmp_path / "2.md")).stdout
    assert said in shown
    assert ("to send it" in shown) is (verdict == "accepted")
    assert [task["title"] for task in stage.json("ls")] == ["Print the map"], "nothing is recorded"


def test_a_circle_with_known_work_is_found_before_the_file_is_dropped(stage: Stage, tmp_path: Path) -> None:
    take(stage, "fold.md", "---\nafter: print\n---\n# Fold it\n\nTwice.\n")
    (tmp_path / "print.md").write_text("---\nafter: fold\n---\n# Print it\n\nTwice.\n")
    result = stage.run("send", "--check", str(tmp_path / "print.md"))
    assert (result.exit_code, "wait for each other forever" in result.stderr) == (65, True)


def test_criteria_of_several_lines_stand_below_each_other(stage: Stage) -> None:
    text = "# Sign\n\n## Acceptance Criteria\n\n- Given a guest\n- When she reads\n- Then she smiles\n- No blue\n"
    assert (
        "  acceptance criteria Given a guest\n"
        "                      When she reads\n"
        "                      Then she smiles\n"
        "                      No blue\n"
    ) in stage.run("send", "--check", "-", text=text).stdout


def test_standard_input_is_checked_too(stage: Stage) -> None:
    assert "would become a task of alpha" in stage.run("send", "--check", "-", text="Buy milk.\n").stdout


def test_a_rejected_file_is_opened_corrected_and_sent_again(stage: Stage, tmp_path: Path) -> None:
    broken = "---\ndeadline: soon\n---\nBuy milk.\n"
    (stage.ws.inbox / "milk.md").write_text(broken)
    assert stage.receive() == "rejected"
    item = stage.item("rejected")
    assert f"{stage.program} inbox --edit " in item["command"]
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/soon/2026-12-01T00:00:00Z/ "$1"\n')
    editor.chmod(0o755)
    id_ = item["command"].split()[5]
    result = stage.run("inbox", "--edit", id_, env={"EDITOR": str(editor), "VISUAL": None})
    assert result.exit_code == 0, result.output
    assert "sent again as inbox/milk.md" in result.stderr
    assert "2026-12-01" in (stage.ws.inbox / "milk.md").read_text()

    unchanged = stage.run("inbox", "--edit", id_, env={"EDITOR": "true", "VISUAL": None})
    assert "nothing was sent" in unchanged.stdout
    assert stage.run("inbox", "--edit", "nobody").exit_code == 69


def refused(stage: Stage) -> str:
    """A rejected file; returns the id that its command names."""
    (stage.ws.inbox / "milk.md").write_text("---\ndeadline: soon\n---\nBuy milk.\n")
    assert stage.receive() == "rejected"
    return str(stage.item("rejected")["command"].split()[5])


def editor(folder: Path, *edits: str) -> dict[str, str | None]:
    """An editor that makes the first of these edits (of sed) when it is opened first, and so on; then none."""
    (folder / "edits").write_text("".join(f"{edit}\n" for edit in edits))
    program = folder / "editor"
    program.write_text(
        f'#!/bin/sh\ncd {folder}\nedit=$(head -n 1 edits)\nsed -i 1d edits\n[ -z "$edit" ] || sed -i "$edit" "$1"\n'
    )
    program.chmod(0o755)
    return {"EDITOR": str(program), "VISUAL": None}


def test_what_is_still_wrong_is_said_and_asked_about_before_it_is_sent(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approvals, "can_ask", lambda: True)
    id_ = refused(stage)
    env = editor(tmp_path, "s/soon/later/", "s/later/2026-12-01/")
    result = stage.run("inbox", "--edit", id_, env=env, text="edit\n")
    assert result.exit_code == 0, result.output
    assert "milk.md:2: deadline: " in result.stderr
    assert "sent again as inbox/milk.md" in result.stderr
    assert "deadline: 2026-12-01" in (stage.ws.inbox / "milk.md").read_text()
    assert not [*(stage.ws.state / "drafts").iterdir()]


def test_what_is_still_wrong_is_kept_as_a_draft_or_given_up(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = refused(stage)
    result = stage.run("inbox", "--edit", id_, env=editor(tmp_path, "s/soon/later/; s/milk/bread/"))
    assert (result.exit_code, f"`{stage.program} inbox --edit {id_}` opens it" in result.stderr) == (65, True)
    monkeypatch.setattr(approvals, "can_ask", lambda: True)
    result = stage.run("inbox", "--edit", id_, env=editor(tmp_path, "s/later/never/"), text="keep\n")
    assert (result.exit_code, "kept as a draft" in result.stdout) == (0, True)
    unchanged = stage.run("inbox", "--edit", id_, env={"EDITOR": "true", "VISUAL": None})
    assert "nothing was sent; the draft is kept" in unchanged.stdout
    assert not [*stage.ws.inbox.iterdir()]
    result = stage.run("inbox", "--edit", id_, env=editor(tmp_path, "s/never/2026-12-01/"))
    assert result.exit_code == 0, result.output
    assert "Buy bread." in (stage.ws.inbox / "milk.md").read_text(), "the draft had it"
    (stage.ws.inbox / "milk.md").unlink()
    result = stage.run("inbox", "--edit", id_, env=editor(tmp_path, "s/soon/later/"), text="give-up\n")
    assert (result.exit_code, "nothing was sent" in result.stdout) == (0, True)
    assert not [*(stage.ws.state / "drafts").iterdir(), *stage.ws.inbox.iterdir()]


def test_what_an_editor_saves_in_another_encoding_is_kept_and_a_file_that_is_gone_is_said(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    id_ = refused(stage)
    result = stage.run("inbox", "--edit", id_, env=editor(tmp_path, r"s/soon/M\xe4rz/"))
    assert (result.exit_code, "is not UTF-8" in result.stderr) == (2, True), result.output
    (kept,) = tmp_path.glob("mailboxd-*.md")
    assert str(kept) in result.stderr
    assert kept.read_bytes() == b"---\ndeadline: M\xe4rz\n---\nBuy milk.\n"
    gone = stage.run("inbox", "--edit", id_, env={"EDITOR": "rm", "VISUAL": None})
    assert (gone.exit_code, "the editor left no file" in gone.stderr) == (2, True)
    assert not [*stage.ws.inbox.iterdir()]


def test_a_draft_that_became_too_large_or_no_text_is_not_sent(stage: Stage, tmp_path: Path) -> None:
    id_ = refused(stage)
    large = "s/soon/2026-12-01/; s/milk/" + "a" * 2_000 + "/; " + "; ".join(["s/a/aa/g"] * 11)
    result = stage.run("inbox", "--edit", id_, env=editor(tmp_path, large))
    assert (result.exit_code, "too-large" in result.stderr) == (65, True), result.output
    assert not [*stage.ws.inbox.iterdir()]
    (draft,) = (stage.ws.state / "drafts").iterdir()
    draft.write_bytes(b"\xff")
    result = stage.run("inbox", "--edit", id_, env=editor(tmp_path, "s/soon/2026-12-01/"))
    assert result.exit_code == 0, result.output
    assert "Buy milk." in (stage.ws.inbox / "milk.md").read_text(), "the rejected file was opened"


@pytest.mark.parametrize(
    ("head", "lines"),
    [
        ("deadline: 2026-12-01", ["deadline            Tue 1 Dec 2026 23:59:59 CET"]),
        ("not_before: mon 8:00", ["not before          Mon 30 Nov 2026 08:00 CET"]),
        ("repeat: daily at 07:00", ["repeats             daily at 07:00", "missed              once"]),
    ],
)
def test_dates_are_shown_as_what_they_were_read_as(stage: Stage, head: str, lines: list[str]) -> None:
    stage.clock.text = "2026-11-28T12:00:00.000Z"
    with stage.ws.config.open("a") as file:
        file.write("zone: Europe/Berlin\n")
    result = stage.run("send", "--check", "-", text=f"---\n{head}\n---\nPaint.\n")
    assert result.exit_code == 0, result.output
    for line in lines:
        assert line in result.stdout


def test_the_dates_of_a_subtask_are_shown_too(stage: Stage) -> None:
    stage.clock.text = "2026-11-28T12:00:00.000Z"
    with stage.ws.config.open("a") as file:
        file.write("zone: Europe/Berlin\n")
    child = "  a:\n    description: Buy paint\n    not_before: 2026-12-01 17:00:00\n"
    plan = f"subtasks:\n{child}  b:\n    description: Paint\n"
    text = f"---\ndeadline: 2026-12-24\n---\nPaint.\n\n## DAG\n\n{plan}"
    told = stage.run("send", "--check", "-", text=text)
    assert told.exit_code == 0, told.output
    assert told.stdout.count("not before Tue 1 Dec 2026 17:00 CET") == 1
    assert told.stdout.count("24 Dec 2026") == 1, "the deadline that it has of the task is told once"
