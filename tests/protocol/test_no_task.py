"""What lies in an inbox and is no work, and what only looks like it."""

from __future__ import annotations

import pytest

from mailboxd.protocol.no_task import declares_sender, doubt, left_aside, refusal

MERGE = "# Cake\n\n<<<<<<< mine\nFor 40 guests.\n=======\nFor 60 guests.\n>>>>>>> theirs\n"
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
    ],
)
def test_a_name_says_that_a_file_is_no_task(name: str, what: str) -> None:
    assert left_aside(name).startswith(what)


@pytest.mark.parametrize(
    "name", ["backup.md", "back-up-the-members.md", "conflict-of-interest.md", "about-conflict-marks.md", "song (1).md"]
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
