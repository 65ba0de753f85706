"""What waits for a person: shown so that nothing of it can pretend to be ours, and decided in the person's name.

A word about several requests is one transaction: either all of it counts or nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.acting import order_by_hand
from mailboxd.cli.session import Session
from mailboxd.cli.text import fit, folded, pad, plain, say
from mailboxd.errors import EXIT_CONFIG, EXIT_NO, EXIT_UNAVAILABLE, MailboxdError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mailboxd.core.approvals import Approval
    from mailboxd.core.events import Event
    from mailboxd.engine import Engine

EXITS = {
    EXIT_NO: "it is not yours to decide, it is decided, it has expired, or it is not what --digest says",
    EXIT_UNAVAILABLE: "no workspace, or no such approval",
    EXIT_CONFIG: "the configuration is wrong",
}
_MOST_COMPLETIONS = 100
_LINE = 300
_HOUR, _DAY = 3_600, 86_400


def approval_argument(*, required: bool = True, many: bool = False) -> Callable[[Any], Any]:
    """The argument ID: the short id of an approval, or more of the end of its id."""
    name, shown, count = ("ids", "ID...", -1) if many else ("id", "ID", 1)
    shown = shown if required else f"[{shown}]"
    return click.argument(name, metavar=shown, required=required, nargs=count, shell_complete=_complete)


def _complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Short ids of what waits."""
    from click.shell_completion import CompletionItem

    from mailboxd.store import requests

    with suppress(MailboxdError), ctx.ensure_object(Session).report() as report:
        found = requests.ending(report, incomplete, _MOST_COMPLETIONS)
        return [CompletionItem(short_id, help=plain(what)) for short_id, what in found]
    return []


# ---------------------------------------------------------------- deciding


def decide(session: Session, names: Sequence[str], decision: str, note: str = "", digest: str = "") -> None:
    """Decide about the approvals with these names, and say what was decided about what.

    Raises Refused, and then nothing is recorded; UnavailableError, ConfigError, WorldError.
    """
    from mailboxd import byhand
    from mailboxd.core.approvals import Decision

    if decision != "approved" and not note.strip():
        import click

        raise click.UsageError("--note is empty: say why")
    if not session.as_json and is_terminal():
        _show_first(session, names)
    decided: list[dict[str, Any]] = []

    def act(engine: Engine, user: str) -> Sequence[Event]:
        events: list[Event] = []
        for done in byhand.decide(engine, names, Decision(decision), note, user, digest=digest):
            row = done.row
            if not done.events:
                say(f"{row.short_id} is {row.status} already, by {row.resolved_by} at {row.resolved_at}", err=True)
            events += done.events
            decided.append(_short(row, done.task) | {"decision": decision, "by": user})
        return events

    order_by_hand(session, act, approvals=decided)


def _short(row: Approval, task: str) -> dict[str, Any]:
    return {
        "id": row.id,
        "short_id": row.short_id,
        "task": task,
        "requested_action": row.requested_action,
        "digest": row.digest,
    }


def take_back(session: Session, name: str) -> None:
    """Ask for a performed action to be taken back. Raises as `decide`."""
    from mailboxd import byhand
    from mailboxd.core.approvals import RequestUndo
    from mailboxd.core.events import Role

    def act(engine: Engine, user: str) -> Sequence[Event]:
        (row,) = byhand.requested(engine, [name])
        events = engine.hear(row.task, RequestUndo(row.id), Role.OPERATOR, user)
        asked.extend(events)
        return events

    asked: list[Event] = []
    order_by_hand(session, act)
    if not session.as_json:
        told = "what takes it back is a request of its own: see `mailboxd approvals`"
        say(told if asked else "it was taken back already: nothing is left to undo")


def is_terminal() -> bool:
    """Whether a person reads what is said."""
    return sys.stdout.isatty()


def _show_first(session: Session, names: Sequence[str]) -> None:
    from mailboxd.store import requests

    with session.report() as report:
        found = [requests.one(report, requests.find(report, name)) for name in names]
    for row in found:
        print_one(row, session.clock.now())
        say()


# ---------------------------------------------------------------- for people


def print_list(rows: Sequence[dict[str, Any]], now: str) -> None:
    """What waits, each with what exactly, the risk, by whom and how long."""
    for row in rows:
        kind = row["side_effect_kind"] if row["purpose"] == "action" else row["purpose"]
        say(f"{row['short_id']}  {pad(kind, 10)}  {fit(_what(row), _LINE)}")
        _below(f"task {row['task']}, asked by {row['requested_by']}, {standing(row, now)}")
        if row["risk"]:
            _below(f"risk: {row['risk']}")
        if row["status"] != "pending" and (row["summary"] or row["note"]):
            _below(row["summary"] or row["note"])


def _what(row: dict[str, Any]) -> str:
    back = f"take back {row['origin'][-6:].lower()}: " if row["purpose"] == "undo" else ""
    return back + str(row["requested_action"])


def _below(text: str) -> None:
    say(f"{'':20}{fit(text, _LINE)}")


def standing(row: dict[str, Any], now: str) -> str:
    """How it stands, in words."""
    if row["status"] == "pending":
        return _expiry(row["expires_at"], now)
    by = f" by {row['resolved_by']}" if row["resolved_by"] else ""
    return f"{'void' if row['void'] else row['status']}{by}" + (f", {row['state']}" if row["state"] else "")


def _expiry(at: str, now: str) -> str:
    from mailboxd.core.times import to_epoch

    seconds = int(to_epoch(at) - to_epoch(now))
    if seconds <= 0:
        return "has expired"
    if seconds < _HOUR:
        return f"expires in {seconds // 60} min {seconds % 60} s"
    if seconds < 2 * _DAY:
        return f"expires in {seconds // _HOUR} h {seconds % _HOUR // 60} min"
    return f"expires in {seconds // _DAY} days"


def print_one(row: dict[str, Any], now: str) -> None:
    """Everything that a person needs who decides about it."""
    say(f"{row['short_id']}: {fit(_what(row), _LINE)}")
    attempt = f", attempt {row['attempt']}" if row["attempt"] else ""
    for name, text in (
        ("id", row["id"]),
        ("task", row["task"] + attempt),
        ("kind", f"{row['side_effect_kind']} ({row['purpose']})"),
        ("status", f"{standing(row, now)}" + (f" ({row['expires_at']})" if row["status"] == "pending" else "")),
        ("risk", row["risk"] or "none is named"),
        ("asked by", f"{row['requested_by']}, {row['at']}"),
        ("gate", row["gate"]),
        ("key", row["idempotency_key"]),
        ("digest", row["digest"]),
        ("decided", f"{row['resolved_by']}, {row['resolved_at']}" if row["resolved_by"] else ""),
        ("note", row["note"]),
        ("begun", row["started_at"]),
        ("ended", f"{row['finished_at']}: {row['state']}: {row['summary']}" if row["finished_at"] else ""),
        ("evidence", row["artifact"]),
        ("taken back", ", ".join(f"{undo['short_id']} ({undo['status']})" for undo in row["taken_back"])),
    ):
        if text:
            say(f"  {pad(name, 12)} {fit(text, _LINE)}")
    _texts(row)


def _texts(row: dict[str, Any]) -> None:
    for label, text in (
        ("What would happen" if row["status"] == "pending" else "What was asked", row["preview"]),
        ("As it was declared", _declared(row["action"])),
        ("History", "\n".join(f"{event['at']}  {event['text']}" for event in row["history"])),
    ):
        if text.strip():
            say(f"\n{label}\n{folded(text.strip(chr(10)), '  ')}")
    if row["status"] == "pending":
        seen = f" --digest {row['digest'][:12]}" if row["digest"] else ""
        say(f"\nmailboxd approve {row['short_id']}{seen}")
        for word in ("reject", "request-changes"):
            say(f'mailboxd {word} {row["short_id"]} --note "..."')
    elif row["action"].get("undo") and row["started_at"]:
        say(f"\nmailboxd undo {row['short_id']}")


def _declared(action: dict[str, Any]) -> str:
    from mailboxd.core.actions import Action
    from mailboxd.core.wire import from_json
    from mailboxd.messages.actions import action_lines

    return action_lines((from_json(Action, action),))
