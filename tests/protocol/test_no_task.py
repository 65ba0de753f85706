"""What lies in an inbox and is no work, and what only looks like it."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from mailboxd.errors import MessageError
from mailboxd.formats.protocol.head import Place
from mailboxd.formats.protocol.left_aside import declares_sender, doubt, left_aside
from mailboxd.formats.protocol.messages import parse_message
from mailboxd.formats.protocol.no_task import refusal

MERGE = "# Cake\n\n<<<<<<< mine\nFor 40 guests.\n=======\nFor 60 guests.\n>>>>>>> theirs\n"
BUG = (
    "**Describe the bug**\nA clear and concise description of what the bug is.\n\n**To Reproduce**\nSteps to reproduce "
    "the behavior:\n1. Go to '...'\n2. Click on '....'\n3. See error\n\n**Screenshots**\nIf applicable, add "
    "screenshots to help.\n\n**Desktop:**\n - OS: [e.g. iOS]\n - Version [e.g. 22]\n\n**Additional context**\n"
    "Add any other context about it here.\n"
)
PULL = (
    "# Description\n\nPlease include a summary of the change.\n\nFixes # (issue)\n\n## Type of change\n\nPlease delete "
    "options that are not relevant.\n\n- [ ] Bug fix\n- [ ] New feature\n\n# Checklist:\n\n- [ ] It follows the style\n"
)
BLANK = "# New task\n\n## Goal\n<!-- why -->\n\n## Acceptance Criteria\n- [ ]\n"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("notes.md.bak", "a backup of notes.md"),
        ("notes.md.BAK2", "a backup of notes.md"),
        ("notes.bak.md", "a backup of notes"),
        ("notes.md.orig", "a backup of notes.md"),
        ("notes.md.~3~", "a backup of notes.md"),
        ("Backup of notes.md", "a backup of notes.md"),
        ("notes.sync-conflict-20261126-101010-ABCDEFG.md", "a copy"),
        ("notes (Mira's conflicted copy 2026-11-26).md", "a copy"),
        ("Notiz (Konfliktkopie von Mira).md", "a copy"),
        ("notes_conflict-20261126-101010.md", "a copy"),
        ("web page.url", "a shortcut"),
        ("PULL_REQUEST_TEMPLATE.md", "a template"),
        ("merge-request-template.md", "a template"),
        ("issue_template.md", "a template"),
        ("task.md.j2", "a template"),
        ("mail.hbs", "a template"),
    ],
)
def test_a_name_says_that_a_file_is_no_task(name: str, what: str) -> None:
    assert left_aside(name).startswith(what)


@pytest.mark.parametrize(
    "name",
    [
        "backup.md",
        "back-up-the-members.md",
        "conflict-of-interest.md",
        "about-conflict-marks.md",
        "song (1).md",
        "template.md",
        "write-a-pull-request-template.md",
        "issue-template-for-bugs.md",
    ],
)
def test_a_name_that_only_speaks_of_it_says_nothing(name: str) -> None:
    assert not left_aside(name)


@pytest.mark.parametrize(
    ("name", "text", "rule", "says"),
    [
        ("cake.md", MERGE, "merge-marks", "lines 3 to 7"),
        ("t.md", "# Task\n\n## Goal\n\n## Instructions\n", "no-text", "'Goal'"),
        ("t.md", f"---\ntitle: x\n---\n{BLANK}", "no-text", "'New task'"),
        ("t.md", '---\ntitle: "{{ title }}"\n---\nDo it.\n', "unfilled", "'{{ title }}'"),
        ("t.md", "# {{ what }}\n\nDo it.\n", "unfilled", "'{{ what }}'"),
        ("t.md", "---\ncreated: <% tp.date.now() %>\n---\nDo it.\n", "unfilled", ""),
        ("r.csv", "task,who\nChairs,beta\n", "list-of-tasks", "'task', 'who'"),
        ("r.txt", "task;who;due\nChairs;beta;\nTables;gamma;\n", "list-of-tasks", "'task', 'who', 'due'"),
        ("b.jsonl", '{"id": 1, "title": "a", "status": "closed"}\n', "list-of-tasks", "1 of them done"),
        ("b.json", '[{"summary": "a"}]', "list-of-tasks", "1 object "),
        ("i.md", f"---\nname: Bug report\nabout: Tell\nlabels: x\n---\n\n{BUG}", "unfilled", "template for issues"),
        ("i.yml", "# form\nname: Bug\ndescription: B\nbody:\n  - type: textarea\n    id: x\n", "unfilled", "issues"),
        ("i.yml", "---\nname: Bug\ndescription: A bug\nbody:\n  - type: 'input'\n    id: x\n", "unfilled", "issues"),
        ("config.yml", "blank_issues_enabled: false\n", "unfilled", "issues"),
        ("t.md", BUG, "unfilled", "A clear and concise"),
        ("t.md", "---\ntitle: <title>\n---\nDo it.\n", "unfilled", "'<title>'"),
        ("t.md", "---\ndue: YYYY-MM-DD\n---\nDo it.\n", "unfilled", "'YYYY-MM-DD'"),
        ("t.md", "---\nfällig: TT.MM.JJJJ\n---\nDo it.\n", "unfilled", "'TT.MM.JJJJ'"),
        ("t.md", "# Task\n\n## Goal\n\nTODO: describe\n\n## Instructions\n\nTBD\n", "unfilled", "TODO: describe"),
        ("t.md", "# Paint the fence\n\nTODO: describe the task\n", "unfilled", "TODO: describe"),
        ("t.md", "<describe the task here>\n", "unfilled", "<describe"),
        ("t.md", "# <title>\n\n- **Owner:** <owner>\n- Due: {{date}}\n", "unfilled", ""),
        ("t.md", "# {{title}}\n\n{{description}}\n", "unfilled", "{{title}}"),
        ("t.md", "## What\n\n_Describe the problem here._\n\n## Why\n\n[Explain why]\n", "unfilled", "_Describe"),
        ("t.md", "# Paint\n\n<!-- describe the task -->\n", "unfilled", "describe the task"),
        ("t.md", PULL, "unfilled", "Please include"),
        ("t.md", "## Summary\n<!-- what\nand why -->\n\n## Steps\n1. ...\n2. ...\n", "unfilled", "'...'"),
        ("p.md", "---\nname: p\ndescription: Use it\ntools: Read\n---\nYou read.\n", "agent-definition", "tools"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_task_is_refused_with_what_it_is(name: str, text: str, rule: str, says: str) -> None:
    found = refusal(name, text.encode())
    assert found is not None
    assert found.rule == rule
    assert says in found.problem
    assert found.hint


@pytest.mark.parametrize(
    "text",
    [
        "# Explain\n\nLines like these:\n\n```\n<<<<<<< mine\n=======\n>>>>>>> theirs\n```\n",
        "Title\n=======\n\nA text.\n",
        "# Order the cake",
        "# Order the cake\n\n## For 40 guests\n\n## With candles\n",
        "# Explain templates\n\nWhat does {{ name }} mean?\n",
        "Buy milk, bread, eggs\nand butter, oil, salt\n",
        '{"title": "Call Ann", "instructions": "Ask her."}',
        "---\nname: Ann\ndescription: a letter\n---\nWrite to her.\n",
        "task, who is it for?\nThe one, that you know.\n",
        "# Paint the fence\n\nTODO\n",
        "# Call Ann\n\n## Notes\n\nn/a\n",
        "# Docs\n\nTODO: describe the new API in the README\n",
        "# Trip\n\n## Pack\n<!-- for Italy -->\n- [ ] tent\n- [ ] stove\n",
        "# Improve the form\n\n```yaml\nname: Bug\ndescription: A bug\nbody:\n  - type: input\n```\n",
        "# Bug\n\n**Describe the bug**\nIt squeaks.\n\n**Expected**\nA clear and concise description of it.\n",
        "---\nname: Ann\n---\nWrite to her about the template.\n",
        "Read <https://example.org/a> and answer <ann@example.org>.\n",
        "# Mend it\n\n<https://example.org/a>\n",
        "# Mend it\n\n[The page](https://example.org)\n",
        "# Release\n\n## Checklist\n\n- [ ] tag it\n- [ ] tell Ann\n",
        "---\ntitle: YYYY-MM-DD is the format\n---\nExplain it.\n",
        "name: Ann\nage: 3\n\nWrite to her.\n",
    ],
)
def test_a_text_that_only_looks_like_it_is_a_task(text: str) -> None:
    assert refusal("t.md", text.encode()) is None


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_message_that_names_its_sender_is_never_among_them(end: str) -> None:
    raw = f"---\ntype: task\ntask_id: t\nfrom: gamma\n---\n{MERGE}".replace("\n", end).encode()
    assert declares_sender(raw)
    assert refusal("notes.md.bak", raw) is None


def test_a_description_is_taken_with_a_doubt() -> None:
    assert doubt("README.md") == "a file called README.md mostly describes something; it was taken as one task"
    assert not doubt("read me the news.md")


@pytest.mark.parametrize(
    "text",
    [
        *("-" * 1_000_000, "From " * 200_000, "- [x] a\n" * 100_000, "---\na: b\n---\n" + "---\nx: y\n" * 100_000),
        "\n".join(f"- a{number}: x" for number in range(50_000)),
        *("title: x\n" + "a: b\n" * 100_000, "[26.11.26, 10:32:11] Mira: x\n" * 30_000, "**" + "a" * 500_000),
        *(
            "to" + " " * 100_000 + "x\n",
            "# to" + "\t" * 100_000 + "x\n",
            "to" + " " * 50_000 + ":" + " " * 50_000 + "x\n",
            *(f"{blank * 100_000}x\n" for blank in (" ", "\t", "\u3000")),
            *(f"# Task: a\n\n{mark * 100_000}x\n" for mark in ("\t", ".", "_", "\u3000", "\u2026")),
        ),
    ],
    ids=lambda text: repr(text[:20].split("\n")[0]),
)
def test_hostile_files_cost_little(text: str) -> None:
    place = Place("alpha", lambda: tuple(f"agent{number}" for number in range(200)))
    started = time.process_time()
    refusal("a.md", text.encode())
    with suppress(MessageError):
        parse_message(text.encode(), "a.md", max_bytes=1 << 21, place=place)
    assert time.process_time() - started < 5  # takes a second at most; what backtracks takes minutes
