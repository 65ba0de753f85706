"""The life of a task in at most eight lines, as a person would tell it.

Pure, and made of what is on record about the task (`task_details`), not of its events: how many of these a step writes
is of no interest here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from mailboxd.core.sanitize import first_line
from mailboxd.core.vocabulary import FAILED, AttemptStatus, Phase, State, Verdict, state_words

if TYPE_CHECKING:
    from mailboxd.core.explain.task_details import ApprovalRow, AttemptRow, QuestionRow, ReviewRow, Split, TaskDetails

MOST = 8
_FIRST = 2
"""If there are more than `MOST`, this many of the first are kept, and the rest of the last."""


@dataclass(frozen=True, slots=True)
class Milestone:
    """`status` is a state (`state_words`) or the status of an attempt: the style to show it in."""

    at: str
    text: str
    status: str = ""


def milestones(task: TaskDetails, split: Split, asked: Sequence[QuestionRow] = ()) -> list[Milestone]:
    """The milestones of a task, oldest first; `asked` holds its questions.

    A question is one line, also with its answer. The task's error is not among them: it is shown by itself.
    """
    found = [Milestone(task["created_at"], f"Received from {task['from']}")]
    if count := split["children_total"]:
        text = f"Split into {count:,} subtask{'s' * (count != 1)}"
        found.append(Milestone(split["children_since"] or task["created_at"], text))
    found += _attempts(task["attempts"], bool(count), task["error"])
    found += [_question(list(same)) for _, same in groupby(asked, key=lambda row: row["text"])]
    found += _reviews(task["reviews"])
    for row in task["approvals"]:
        found += _approval(row)
    found += _end(task)
    return _folded(sorted(found, key=lambda milestone: milestone.at))


def _question(same: Sequence[QuestionRow]) -> Milestone:
    """A question, also if one was asked after the other."""
    last = same[-1]
    text = f"Asked {', then '.join(row['to'] for row in same)}: {first_line(last['text'], 120)}"
    if last["by"] and last["ended_at"]:
        return Milestone(last["ended_at"], f"{text} Answered by {last['by']}", State.DONE)
    return Milestone(last["at"], text, State.NEEDS_YOU)


def _attempts(rows: Sequence[AttemptRow], coordinates: bool, error: str) -> Iterator[Milestone]:
    """The attempts; those that ended alike, one after the other, as one."""
    for status, alike in groupby(rows, key=lambda row: row["status"]):
        some = list(alike)
        last = some[-1]
        which = f"Attempt {last['ordinal']}"
        if len(some) > 1:
            which = f"Attempts {some[0]['ordinal']} to {last['ordinal']}"
        if status == AttemptStatus.RUNNING:
            doing = "Subtasks under way" if coordinates else f"{last['executor']} at work, attempt {last['ordinal']}"
            yield Milestone(last["started_at"], doing, status)
            continue
        said = last["error_summary"]
        why = "" if said and said in error else first_line(said, 120)
        text = f"{which} by {last['executor']} {status}" + (f": {why}" if why else "")
        yield Milestone(last["finished_at"] or last["started_at"], text, status)


def _reviews(rows: Sequence[ReviewRow]) -> Iterator[Milestone]:
    for (gate, verdict), alike in groupby(rows, key=lambda row: (row["gate"], row["verdict"])):
        some = list(alike)
        by = ", ".join(dict.fromkeys(given_by(row) for row in some))
        passed = verdict == Verdict.APPROVED
        why = "" if passed else first_line(some[-1]["summary"], 120)
        text = f"{_words(gate)}: {verdict.replace('_', ' ')} by {by}" + (f": {why}" if why else "")
        yield Milestone(some[-1]["at"], text, State.DONE if passed else State.RUNNING)


def given_by(review: ReviewRow) -> str:
    """The reviewer, and the peer at whose gate the verdict was given, unless it was here."""
    at = f" (given at {review['given_at']})" if review["given_at"] else ""
    return f"{review['reviewer']}{at}"


def _approval(row: ApprovalRow) -> Iterator[Milestone]:
    what = first_line(row["requested_action"], 100)
    if row["status"] == "pending":
        yield Milestone(row["at"], f"Asks for approval: {what}", State.NEEDS_YOU)
        return
    if row["void"]:
        before = f"Approved by {row['approved_by']}, and void since" if row["approved_by"] else "Void"
        yield Milestone(row["resolved_at"], f"{before}: {what}: {first_line(row['note'])}", FAILED)
        return
    said = row["status"].replace("_", " ").capitalize()
    good = row["status"] == "approved"
    by = f" by {row['resolved_by']}" if row["resolved_by"] else ""
    yield Milestone(row["resolved_at"], f"{said}{by}: {what}", State.DONE if good else FAILED)
    if row["finished_at"]:
        done = row["state"] == "done"
        how = "Performed" if done else f"Action {row['state']}"
        yield Milestone(row["finished_at"], f"{how}: {what}", State.DONE if done else FAILED)


def _end(task: TaskDetails) -> Iterator[Milestone]:
    phase = Phase(task["phase"])
    why = first_line(task["reason"], 120) if phase is Phase.CANCELLED and not task["error"] else ""
    if phase.is_terminal or phase is Phase.CIRCUIT_OPEN:
        state = state_words(phase)
        text = _words(state.rpartition(": ")[2]) + (f": {why}" if why else "")
        yield Milestone(task["completed_at"] or task["updated_at"], text, state)


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _folded(found: list[Milestone]) -> list[Milestone]:
    if len(found) <= MOST:
        return found
    last = found[-(MOST - _FIRST - 1) :]
    between = len(found) - _FIRST - len(last)
    return [*found[:_FIRST], Milestone(last[0].at, f"{between} steps between are in the log"), *last]
