"""`mailboxd status`: how the workspace stands, on one screen."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mailboxd.cli.session import Session, agent_of, verb
from mailboxd.cli.text import columns, fit, pad, phase, plain, say, to_json
from mailboxd.core import why
from mailboxd.workspace import lock
from mailboxd.workspace.files import directory, world_errors
from mailboxd.workspace.names import is_temporary

if TYPE_CHECKING:
    from mailboxd.core.picture import Picture
    from mailboxd.store.report import Report
    from mailboxd.workspace.layout import Workspace

_SHOWN = 10


@verb("status", "status", "status --json", "-w ~/agents/analyst status")
def command(session: Session) -> None:
    """Show whether the daemon runs, what is open, what is blocked and why, and what happens next.

    Every file that came in is accounted for: received = archived + rejected + pending.
    """
    ws = session.workspace()
    with session.report() as report, report.snapshot():
        found = _found(ws, report, session.clock.now())
    say(to_json(found)) if session.as_json else _print(found)


def _found(ws: Workspace, report: Report, now: str) -> dict[str, Any]:
    pid = lock.holder(ws)
    tasks = report.phases()
    picture = report.picture([*report.blocked(), *report.moving()], now, pid, neighbours=False)
    blocked = [why.cause_of(picture.tasks[task], picture) for task in report.blocked() if task in picture.tasks]
    messages, unjudged = _messages(ws, report)
    return {
        "workspace": str(ws.root),
        "agent": agent_of(ws),
        "daemon": {"running": pid is not None, "pid": pid or None},
        "tasks": tasks,
        "open": sum(count for word, count in tasks.items() if word not in ("completed", "failed", "cancelled")),
        "open_tasks": [
            {name: row[name] for name in ("local_id", "title", "phase", "status", "reason")}
            for row in report.tasks()
            if row["phase"] not in ("completed", "failed", "cancelled")
        ],
        "blocked": [
            {"task": cause.task, "kind": cause.kind, "why": cause.text, "until": cause.at, "hint": cause.hint}
            for cause in blocked
        ],
        "messages": messages,
        "next": _next(picture, unjudged),
    }


def _messages(ws: Workspace, report: Report) -> tuple[dict[str, int], int]:
    """What the table says and what lies in the inbox; and how many files of it nobody has judged yet."""
    known, unfiled = report.messages(), report.unfiled()
    # The table first: a file that is moved meanwhile must not be counted twice.
    with world_errors(f"read the inbox {ws.inbox}"), directory(ws.root, "mailbox", "inbox") as fd:
        names = [entry.name for entry in os.scandir(fd) if not is_temporary(entry.name)]
    unjudged = sum(1 for name in names if _storable(name) not in unfiled)
    judged = known.pop("judged")
    pending = judged - known["archived"] - known["rejected"] + unjudged
    return {"received": judged + unjudged, **known, "pending": pending}, unjudged


def _storable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _next(picture: Picture, unjudged: int) -> dict[str, Any] | None:
    if unjudged:
        return {"at": None, "task": None, "what": f"{unjudged} in the inbox {'is' if unjudged == 1 else 'are'} judged"}
    cause = why.first_to_happen([why.cause_of(task, picture) for task in picture.tasks.values()], picture.now)
    return None if cause is None else {"at": cause.at, "task": cause.task, "what": cause.then}


# ---------------------------------------------------------------- for people


def _print(found: dict[str, Any]) -> None:
    daemon = found["daemon"]
    runs = (
        f"running, pid {daemon['pid'] or 'unknown'}" if daemon["running"] else "not running: `mailboxd run` starts it"
    )
    counted = ", ".join(f"{count} {word}" for word, count in found["tasks"].items()) or "none yet"
    files = found["messages"]
    _entry("workspace", plain(found["workspace"]))
    _entry("agent", found["agent"] or "no configuration: `mailboxd init` writes one")
    _entry("daemon", runs)
    _entry("tasks", counted)
    _entry(
        "messages",
        f"{files['received']} received = {files['archived']} archived + {files['rejected']} rejected"
        f" + {files['pending']} pending; {files['sent']} sent",
    )
    _open(found["open_tasks"])
    for number, cause in enumerate(found["blocked"][:_SHOWN]):
        _entry("" if number else "blocked", fit(f"{cause['task']}: {cause['why']}", columns() - 11))
        if cause["hint"]:
            _entry("", f"  -> {cause['hint']}")
    if len(found["blocked"]) > _SHOWN:
        _entry("", f"and {len(found['blocked']) - _SHOWN} more")
    _entry("next", _sentence(found["next"], daemon["running"]))


def _open(tasks: list[dict[str, Any]]) -> None:
    size = max((len(row["local_id"]) for row in tasks[:_SHOWN]), default=0)
    for number, row in enumerate(tasks[:_SHOWN]):
        text = f"{pad(phase(row['phase']), 19)} {row['local_id']:<{size}}  "
        _entry("" if number else "open", text + fit(row["title"], max(columns() - 33 - size, 10)))
    if len(tasks) > _SHOWN:
        _entry("", f"and {len(tasks) - _SHOWN} more: `mailboxd ls`")


def _sentence(coming: dict[str, Any] | None, running: bool) -> str:
    if coming is None:
        return "nothing happens by itself"
    text = f"{coming['task']}: {coming['what']}" if coming["task"] else coming["what"]
    text += f" ({coming['at']})" if coming["at"] else ""
    return text if running else f"once a daemon runs: {text}"


def _entry(name: str, text: str) -> None:
    say(f"{name:<9}  {text}".rstrip())
