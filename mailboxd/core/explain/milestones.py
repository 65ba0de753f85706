"""The life of a task in at most eight lines, as a person would tell it.

Pure, and made of what is on record about the task (`store.task_queries.details`), not of its events: how many of these
a step writes is of no interest here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from mailboxd.core.sanitize import first_line
from mailboxd.core.vocabulary import FAILED, AttemptStatus, Phase, State, Verdict, state_words

MOST = 8
_FIRST = 2
"""If there are more than `MOST`, this many of the first are kept, and the rest of the last."""


@dataclass(frozen=True, slots=True)
class Milestone:
    """`status` is a state (`state_words`) or the status of an attempt: the style to show it in."""

    at: str
    text: str
    status: str = ""


def milestones(task: Mapping[str, Any], asked: Sequence[Mapping[str, Any]] = ()) -> list[Milestone]:
    """The milestones of a task, oldest first; `asked` holds its questions, as `questions` of the store.

    A question is one line, also with its answer. The task's error is not among them: it is shown by itself.
    """
    found = [Milestone(task["created_at"], f"Received from {task['from']}")]
    if task["children_total"]:
        count = task["children_total"]
        text = f"Split into {count:,} subtask{'s' * (count != 1)}"
        found.append(Milestone(task["children_since"], text))
    found += _attempts(task["attempts"], bool(task["children_total"]), task["error"] or "")
    found += [_question(list(same)) for _, same in groupby(asked, key=lambda row: row["text"])]
    found += _reviews(task["reviews"])
    for row in task["approvals"]:
        found += _approval(row)
    found += _end(task)
    return _folded(sorted(found, key=lambda milestone: milestone.at))


def _question(same: Sequence[Mapping[str, Any]]) -> Milestone:
    """A question, also if one was asked after the other."""
    last = same[-1]
    text = f"Asked {', then '.join(row['to'] for row in same)}: {first_line(last['text'], 120)}"
    if by := last.get("by"):
        return Milestone(last["ended_at"], f"{text} Answered by {by}", State.DONE)
    return Milestone(last["at"], text, State.NEEDS_YOU)


def _attempts(rows: Sequence[Mapping[str, Any]], coordinates: bool, error: str) -> Iterator[Milestone]:
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
        said = last["error_summary"] or ""
        why = "" if said and said in error else first_line(said, 120)
        text = f"{which} by {last['executor']} {status}" + (f": {why}" if why else "")
        yield Milestone(last["finished_at"] or last["started_at"], text, status)


def _reviews(rows: Sequence[Mapping[str, Any]]) -> Iterator[Milestone]:
    for (gate, verdict), alike in groupby(rows, key=lambda row: (row["gate"], row["verdict"])):
        some = list(alike)
        by = ", ".join(dict.fromkeys(given_by(row) for row in some))
        passed = verdict == Verdict.APPROVED
        why = "" if passed else first_line(some[-1]["summary"] or "", 120)
        text = f"{_words(gate)}: {verdict.replace('_', ' ')} by {by}" + (f": {why}" if why else "")
        yield Milestone(some[-1]["at"], text, State.DONE if passed else State.RUNNING)


def given_by(review: Mapping[str, Any]) -> str:
    """The reviewer, and the peer at whose gate the verdict was given, unless it was here."""
    at = f" (given at {review['given_at']})" if review.get("given_at") else ""
    return f"{review['reviewer']}{at}"


def _approval(row: Mapping[str, Any]) -> Iterator[Milestone]:
    what = first_line(row["requested_action"], 100)
    if row["status"] == "pending":
        yield Milestone(row["at"], f"Asks for approval: {what}", State.NEEDS_YOU)
        return
    if row.get("void"):
        before = f"Approved by {row['approved_by']}, and void since" if row["approved_by"] else "Void"
        yield Milestone(row["resolved_at"], f"{before}: {what}: {first_line(row['note'])}", FAILED)
        return
    said = str(row["status"]).replace("_", " ").capitalize()
    good = row["status"] == "approved"
    by = f" by {row['resolved_by']}" if row["resolved_by"] else ""
    yield Milestone(row["resolved_at"], f"{said}{by}: {what}", State.DONE if good else FAILED)
    if row["finished_at"]:
        done = row["state"] == "done"
        how = "Performed" if done else f"Action {row['state']}"
        yield Milestone(row["finished_at"], f"{how}: {what}", State.DONE if done else FAILED)


def _end(task: Mapping[str, Any]) -> Iterator[Milestone]:
    phase = Phase(task["phase"])
    why = first_line(task["reason"] or "", 120) if phase is Phase.CANCELLED and not task["error"] else ""
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
