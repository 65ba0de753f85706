"""`mailboxd show TASK`: everything that is on record about a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.cli.text import fit, folded, pad, phase, say, table, to_json


@verb("show", "show q3-report", "show q3-report.extract --json", "show tsk_01JD")
@task_argument()
def command(session: Session, task: str) -> None:
    """Show a task: its spec, attempts, children, results, reviews and messages.

    TASK is a local id, an id (tsk_...), or a unique beginning of one.
    """
    from mailboxd.store.details import details

    with session.report() as report:
        found = details(report, report.find(task))
    say(to_json(found)) if session.as_json else _print(found)


def _print(found: dict[str, Any]) -> None:
    say(f"{found['local_id']}: {fit(found['title'], 200)}")
    _entry("phase", f"{phase(found['phase'])}  ({found['status']}): {fit(found['reason'], 500)}")
    _entry("agent", f"{found['agent']}, {found['mode']}, given by {found['from']}")
    _entry("id", found["id"] + (f", child of {found['parent']}" if found["parent"] else ""))
    _entry("times", f"created {found['created_at']}, updated {found['updated_at']}")
    for name, label in (("not_before", "pauses until"), ("due", "due"), ("completed_at", "ended")):
        if found[name]:
            _entry(label, found[name])
    if found["dependencies"]:
        _entry("needs", ", ".join(f"{need['local_id']} ({need['phase']})" for need in found["dependencies"]))
    _texts(found)
    _tables(found)


def _texts(found: dict[str, Any]) -> None:
    spec = found["spec"]
    for label, text in (
        ("Instructions", spec["instructions"]),
        ("Context", spec["context"]),
        ("Expected output", spec["expected_output"]),
        ("To be mended", found["findings"]),
        ("Results", found["results"]),
        ("Planned actions", found["planned_actions"]),
        ("Error", found["error"]),
        ("Notes", found["notes"]),
    ):
        if text.strip():
            say(f"\n{label}\n{folded(text.strip(), '  ')}")


def _tables(found: dict[str, Any]) -> None:
    attempts = [
        (str(a["ordinal"]), a["executor"], _status(a), a["started_at"], a["error_summary"]) for a in found["attempts"]
    ]
    _table("Attempts", ("NO", "AGENT", "STATUS", "STARTED", "SAYS"), attempts)
    children = [
        (c["key"], phase(c["phase"]), c["agent"], ", ".join(c["depends_on"]), c["result_summary"] or c["error"])
        for c in found["children"]
    ]
    _table("Children", ("KEY", "PHASE", "AGENT", "NEEDS", "SAYS"), children)
    reviews = [(r["gate"], r["reviewer"], r["verdict"], r["summary"]) for r in found["reviews"]]
    _table("Reviews", ("GATE", "REVIEWER", "VERDICT", "SAYS"), reviews)
    messages = [
        (m["direction"], m["type"] or "", _peer(m), m["verdict"], m["path"] or m["name"]) for m in found["messages"]
    ]
    _table("Messages", ("", "TYPE", "WITH", "VERDICT", "FILE"), messages)


def _status(attempt: dict[str, Any]) -> str:
    return f"{attempt['status']}, waits: {attempt['waiting_for']}" if attempt["waiting_for"] else str(attempt["status"])


def _peer(message: dict[str, Any]) -> str:
    return (message["from"] if message["direction"] == "in" else message["to"]) or ""


def _table(label: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    if rows:
        say(f"\n{label}")
        for line in table(head, rows):
            say(f"  {line}")


def _entry(name: str, text: str) -> None:
    say(f"  {pad(name, 12)} {text}")
