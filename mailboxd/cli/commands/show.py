"""`mailboxd show TASK`: everything that is on record about a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.cli.text import fit, folded, pad, phase, say, table, to_json
from mailboxd.core.text import money


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
    for name, label in (("not_before", "pauses until"), ("due", "due"), ("completed_at", "ended"), ("held", "held")):
        if found[name]:
            _entry(label, found[name])
    if found["policy"]["deadline"]:
        _entry("deadline", found["policy"]["deadline"])
    if found["spent"]["turns"] or found["spent"]["tokens"]:
        _entry("spent", _spent(found["spent"]))
    if found["escalated"]["why"]:
        _entry("escalated", fit(found["escalated"]["why"], 500))
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
        ("Error", found["error"]),
        ("Notes", found["notes"]),
    ):
        if text.strip():
            say(f"\n{label}\n{folded(text.strip(), '  ')}")


def _tables(found: dict[str, Any]) -> None:
    attempts = [
        (str(a["ordinal"]), _who(a), _status(a), a["started_at"], _took(a), a["error_summary"])
        for a in found["attempts"]
    ]
    _table("Attempts", ("NO", "AGENT", "STATUS", "STARTED", "TOOK", "SAYS"), attempts)
    by_agent = [a for a in found["attempts"] if a["run_id"] and not a["worker_ref"]]
    known = [(str(a["ordinal"]), a["run_id"], a["session_key"]) for a in by_agent]
    _table("In OpenClaw", ("NO", "RUN", "SESSION"), known)
    children = [
        (c["key"], phase(c["phase"]), c["agent"], ", ".join(c["depends_on"]), c["result_summary"] or c["error"])
        for c in found["children"]
    ]
    _table("Children", ("KEY", "PHASE", "AGENT", "NEEDS", "SAYS"), children)
    reviews = [(r["gate"], r["reviewer"], r["verdict"], r["summary"]) for r in found["reviews"]]
    _table("Reviews", ("GATE", "REVIEWER", "VERDICT", "SAYS"), reviews)
    asked = [
        (a["short_id"], a["purpose"], a["status"], a["state"], a["requested_action"], a["summary"] or a["note"])
        for a in found["approvals"]
    ]
    _table("Approvals", ("ID", "FOR", "STATUS", "STATE", "WHAT", "SAYS"), asked)
    messages = [
        (m["direction"], m["type"] or "", _peer(m), m["verdict"], m["path"] or m["name"]) for m in found["messages"]
    ]
    _table("Messages", ("", "TYPE", "WITH", "VERDICT", "FILE"), messages)


def _status(attempt: dict[str, Any]) -> str:
    return f"{attempt['status']}, waits: {attempt['waiting_for']}" if attempt["waiting_for"] else str(attempt["status"])


def _who(attempt: dict[str, Any]) -> str:
    tool = attempt["worker_ref"] or attempt["model"]
    return f"{attempt['executor']} with {tool}" if tool else str(attempt["executor"])


def _took(attempt: dict[str, Any]) -> str:
    cost = attempt["usage"]["cost_usd"]
    took = [f"{attempt['seconds']:.1f} s"] if attempt["seconds"] is not None else []
    return ", ".join([*took, *([money(cost)] if cost else [])])


def _spent(spent: dict[str, Any]) -> str:
    """What it and all below it cost; the turns are its own."""
    of_usd = f" of {money(spent['budget_usd'])}" if spent["budget_usd"] is not None else ""
    of_tokens = f" of {spent['budget_tokens']}" if spent["budget_tokens"] is not None else ""
    return f"{money(spent['usd'])}{of_usd}, {spent['tokens']}{of_tokens} tokens; {spent['turns']} turns of its own"


def _peer(message: dict[str, Any]) -> str:
    return (message["from"] if message["direction"] == "in" else message["to"]) or ""


def _table(label: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    if rows:
        say(f"\n{label}")
        for line in table(head, rows, 2):
            say(line)


def _entry(name: str, text: str) -> None:
    say(f"  {pad(name, 12)} {text}")
