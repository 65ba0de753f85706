"""A new tasks/ID/task.md is judged like the same file in the inbox: by one table, with the same hints."""

from __future__ import annotations

from typing import Any

import pytest

from mailboxd.errors import MessageError
from mailboxd.formats.protocol import no_task
from mailboxd.formats.protocol.deadlines import Calendar
from mailboxd.formats.protocol.head import Place
from mailboxd.formats.protocol.messages import TaskMessage, parse_message
from mailboxd.formats.protocol.taskmd import TaskFile, parse_task_file
from tests.dialects.desk import NOW
from tests.dialects.test_files import CASES, raw_of

PLACE = Place("alpha", lambda: ("alpha", "beta", "gamma", "delta"), Calendar(NOW), NOW)
BY_NAME = ("backup-by-editor.md", "desktop-ini.txt")
"""What is no task by its name, which a task.md does not have."""
OTHERWISE = ("issues.jsonl", "type-bug.md", "voice-note.txt", "notes.org")
"""A list is refused for another reason, a task.md has no type, and its title is as long as its first line."""
REPEATED = ("repeat-with-deadline.md", "repeat-of-an-agent.md", "repeat-without-a-model.md")
"""A task.md is not repeated at all."""
SAME = [
    case
    for case in CASES
    if "task" not in case and case["name"] not in (*BY_NAME, *OTHERWISE, *REPEATED) and case["reaction"] != "repeat"
]


def mailed(raw: bytes, name: str) -> tuple[TaskMessage, tuple[str, ...]] | MessageError:
    try:
        if (refused := no_task.refusal(name, raw)) is not None:
            return refused
        parsed = parse_message(raw, name, place=PLACE)
    except MessageError as error:
        return error
    assert isinstance(parsed.message, TaskMessage)
    return parsed.message, parsed.warnings


def put(raw: bytes, name: str) -> TaskFile | MessageError:
    try:
        return parse_task_file(raw, f"tasks/{name.rpartition('.')[0]}/task.md", is_new=True, place=PLACE)
    except MessageError as error:
        return error


@pytest.mark.parametrize("case", SAME, ids=lambda case: str(case["name"]))
def test_a_new_task_md_is_judged_like_a_file_in_the_inbox(case: dict[str, Any]) -> None:
    name = case.get("drop_as", case["name"])
    mail, file = mailed(raw_of(case), name), put(raw_of(case), name)
    if isinstance(mail, MessageError):
        assert isinstance(file, MessageError), mail
        assert (file.rule, file.problem, file.hint) == (mail.rule, mail.problem, mail.hint)
        return
    assert not isinstance(file, MessageError), file
    message, doubts = mail
    assert file.overrides == message.overrides()
    assert (file.agent or None, file.depends_on or None) == (message.agent, message.depends_on)
    assert file.spec().acceptance_criteria == message.spec().acceptance_criteria
    assert file.title == message.title
    assert {*file.head_doubts} == {*doubts}
    assert ("already done" in file.spec().context) == ("already done" in message.spec().context)


def test_a_task_md_of_ours_is_not_judged_by_the_words_of_people() -> None:
    text = "---\ntask_id: a-1\nstatus: {}\n---\n\n# Task: Paint\n\n## Results\n\n<<<<<<< a\n=======\n>>>>>>> b\n"
    for status in ("blocked", "in-progress", "done"):
        read = put(text.format(status).encode(), "a-1.md")
        assert isinstance(read, TaskFile)
        assert (read.status, read.head_doubts) == (status, ())


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["reaction"] == "repeat"], ids=lambda case: case["name"]
)
def test_a_task_md_is_one_task_and_refused_if_it_is_to_repeat(case: dict[str, Any]) -> None:
    file = put(raw_of(case), case["name"])
    assert isinstance(file, MessageError)
    assert (file.rule, "mailbox/inbox/" in file.hint) == ("bad-repeat", True)
