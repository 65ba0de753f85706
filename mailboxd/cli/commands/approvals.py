"""`mailboxd approve|reject|ask-changes`: approvals are listed, shown, and decided as the operator."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli import elsewhere
from mailboxd.cli.groups import Group
from mailboxd.cli.operator_actions import carry_out_any
from mailboxd.cli.session import MOST_COMPLETIONS, Session, Text, verb
from mailboxd.cli.text import columns, dated, entries, fit, folded_list, pad, say, sections, stamp
from mailboxd.core.endings import until
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import MailboxdError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mailboxd.core.events import Event
    from mailboxd.core.explain.task_details import ApprovalDetails, ApprovalRow, DeclaredAction, RequestRow
    from mailboxd.engine.engine import Engine


_LINE = 300


def approval_arguments(*, required: bool = True) -> Callable[[Any], Any]:
    """The arguments ID: a request's short id, its unique beginning or more of the id's end, or the task that asks."""
    shown = "ID..." if required else "[ID...]"
    return click.argument("ids", metavar=shown, required=required, nargs=-1, shell_complete=_complete)


def _complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Short ids of pending approvals."""
    from click.shell_completion import CompletionItem

    from mailboxd.ledger import task_queries

    with suppress(MailboxdError), ctx.ensure_object(Session).report() as report:
        found = task_queries.approvals_with_prefix(report, incomplete, MOST_COMPLETIONS)
        return [CompletionItem(short_id, help=for_terminal(what)) for short_id, what in found]
    return []


def decide(
    session: Session, names: Sequence[str], decision: str, note: str = "", digest: str = "",
    *, sure: bool = False, now: bool = False,
) -> int | None:  # fmt: skip
    """Decide these approvals in one transaction, or one of another host by mail, and print the outcome.

    A terminal shows them and asks first, unless the person is `sure`. A rejection is held for some seconds where a
    daemon runs, unless it is to be `now`. Raises Refused (then nothing is recorded), UnavailableError, ConfigError,
    WorldError, Abort.
    """
    from mailboxd.core.approvals import ApprovalDecision
    from mailboxd.engine.intake import decisions, held_orders
    from mailboxd.formats.mailbox import lock

    if decision != "approved" and not note.strip():
        raise click.UsageError("--note is empty; give a reason")
    if any(map(elsewhere.found, names)):
        return _decide_elsewhere(session, names, decision, note, digest, sure=sure)
    rows = [_read(session, name) for name in names]
    digests = {row["id"]: row["digest"] for row in rows}
    if not session.as_json and is_terminal():
        for name, row in zip(names, rows, strict=True):
            _print(session, name, row)
        pending = [row for row in rows if row["status"] == "pending"]
        if pending and not sure and can_ask():
            _ask(decision, pending)
    names = list(digests)
    if decision == "rejected" and not now and lock.holder(session.workspace()) is not None:
        carry_out_any(
            session, lambda engine, user: held_orders.hold_rejection(engine, names, note, user, digest=digest), {}
        )
        return None
    decided: list[dict[str, Any]] = []

    def act(engine: Engine, user: str) -> Sequence[Event]:
        events: list[Event] = []
        for done in decisions.decide(engine, names, ApprovalDecision(decision), note, user, digest=digest):
            row = done.row
            if not done.events:
                say(
                    f"{row.short_id} was already {row.status} by {row.resolved_by} at {stamp(row.resolved_at)}",
                    err=True,
                )
            events += done.events
            shown = {name: getattr(row, name) for name in ("id", "short_id", "requested_action", "digest")}
            decided.append(shown | {"task": done.task, "decision": decision, "by": user})
        return events

    carry_out_any(session, act, {"approvals": decided})
    return None


def _ask(decision: str, rows: Sequence[ApprovalDetails]) -> None:
    """Ask whether to decide so about what was shown; no is the default. Raises Abort."""
    for row in rows:
        width = columns()
        say(textwrap.fill(for_terminal(f"{row['short_id']}: {_what(row)}"), width, break_on_hyphens=False))
        say(textwrap.fill(for_terminal(f"risk: {row['risk'] or 'none declared'}"), width))
        say(f"digest: {row['digest'] or 'none'}")
    verb = {"approved": "Approve", "rejected": "Reject"}.get(decision, "Request changes to")
    click.confirm(f"{verb} {'this' if len(rows) == 1 else f'these {len(rows)} requests'}?", abort=True, err=True)


def can_ask() -> bool:
    """Whether a person can answer at standard input."""
    return sys.stdin.isatty()


def _decide_elsewhere(
    session: Session, names: Sequence[str], decision: str, note: str, digest: str, *, sure: bool
) -> int | None:
    from mailboxd.engine.intake.decisions import require_digest
    from mailboxd.formats.protocol.messages import ApprovalMessage

    place = elsewhere.found(names[0])
    if place is None or len(names) > 1:
        raise click.UsageError("requests of other hosts are decided one by one")
    row = _read(session, names[0])
    if not session.as_json and is_terminal():
        _print(session, names[0], row)
        if not sure and can_ask():
            _ask(decision, [row])
    require_digest(str(row["digest"]), digest, row["short_id"], names[0])
    said: dict[str, Any] = {"approval_id": row["id"], "decision": decision, "preamble": note}
    return elsewhere.decide(session, place[0], ApprovalMessage, row["task"], **said)


def _print(session: Session, name: str, row: ApprovalDetails) -> None:
    """What is about to be decided."""
    session.show(row, [*_lines(session, name, row), ""])


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def _read(session: Session, name: str) -> ApprovalDetails:
    """The approval of this name, here or on another host. Raises UnavailableError, ConfigError, WorldError."""
    from mailboxd.ledger import task_queries

    if place := elsewhere.found(name):
        return elsewhere.approval(*place)
    with session.report() as report:
        return task_queries.approval_report(report, task_queries.find_approval(report, name))


def _list_lines(rows: Sequence[ApprovalRow], now: str, runnable: Callable[[str], str]) -> Iterator[str]:
    """Each approval with its action, risk, requester and expiry."""
    for row in rows:
        kind = row["side_effect_kind"] if row["purpose"] == "action" else row["purpose"]
        said = row["status"] != "pending" and (row["summary"] or row["note"])
        yield f"{row['short_id']}  {pad(kind, 10)}  {fit(_what(row), _LINE)}"
        about = f"task {row['task']}, requested by {row['requested_by']}, {status_text(row, now)}"
        for text in (about, f"risk: {row['risk']}" if row["risk"] else "", said or ""):
            if text:
                yield f"{'':20}{fit(text, _LINE)}"
        if row["rejection"]:
            yield for_terminal(f"  -> {runnable('mailboxd undo ' + row['task'])}  # takes it back")


def _what(row: RequestRow) -> str:
    back = f"undo {row['origin'][-6:].lower()}: " if row["purpose"] == "undo" else ""
    return back + row["requested_action"]


def status_text(row: ApprovalRow | ApprovalDetails, now: str) -> str:
    """The status in words."""
    if row["status"] == "pending" and (held := row.get("rejection")):  # another host does not say
        return f"is rejected {until(held['at'], now)}, ordered by {held['by']}"
    if row["status"] == "pending":
        return f"expires {dated(row['expires_at'], now)}" if row["expires_at"] > now else "has expired"
    by = f" by {row['resolved_by']}" if row["resolved_by"] else ""
    return f"{'void' if row['void'] else row['status']}{by}" + (f", {row['state']}" if row["state"] else "")


def _lines(session: Session, name: str, row: ApprovalDetails) -> Iterator[str]:
    """Everything needed to decide about the request that a person called `name`."""
    now = session.clock.now()
    yield from textwrap.wrap(for_terminal(f"{row['short_id']}: {_what(row)}"), columns(), break_on_hyphens=False)
    attempt = f", attempt {row['attempt']}" if row["attempt"] else ""
    ended = f"{dated(row['finished_at'], now)}: {row['state']}: {row['summary']}" if row["finished_at"] else ""
    shown = [
        ("id", row["id"]),
        ("task", row["task"] + attempt),
        ("kind", f"{row['side_effect_kind']} ({row['purpose']})"),
        ("status", status_text(row, now)),
        ("risk", row["risk"] or "none declared"),
        ("requested", f"{row['requested_by']}, {dated(row['at'], now)}"),
        ("gate", row["gate"]),
        ("key", row["idempotency_key"]),
        ("digest", row["digest"]),
        ("decided", f"{row['resolved_by']}, {dated(row['resolved_at'], now)}" if row["resolved_by"] else ""),
        ("under", _policy(row)),
        ("note", row["note"]),
        ("started", dated(row["started_at"], now) if row["started_at"] else ""),
        ("ended", ended),
        ("evidence", row["artifact"]),
        ("undone by", ", ".join(f"{undo['short_id']} ({undo['status']})" for undo in row["taken_back"])),
    ]
    yield from entries((name, fit(text or "", _LINE)) for name, text in shown)
    is_pending = row["status"] == "pending"
    yield from sections(
        [
            ("What would happen" if is_pending else "What was requested", row["preview"]),
            ("As declared", _declared(row["action"])),
            ("History", "\n".join(f"{stamp(event['at'])}  {event['text']}" for event in row["history"])),
        ]
    )
    if commands := [session.runnable(command) for command in _commands(name, row)]:
        yield ""
        yield from commands


def _commands(name: str, row: ApprovalDetails) -> Iterator[str]:
    """What can be ordered now. A request of another host is called by its agent, too."""
    agent, colon, _ = name.rpartition(":")
    short_id = f"{agent}{colon}{row['short_id']}"
    if row.get("rejection"):
        yield f"mailboxd undo {row['task']}  # first: nothing else is taken while it is being rejected"
    elif row["status"] == "pending":
        seen = f" --digest {row['digest'][:12]}" if row["digest"] else ""
        yield f"mailboxd approve {short_id}{seen}"
        yield f'mailboxd reject {short_id} --note "..."'
        yield f'mailboxd ask-changes {short_id} --note "..."'
    elif row["action"].get("undo") and row["started_at"] and not colon:
        yield f"mailboxd undo --action {short_id}"


def _policy(row: ApprovalDetails) -> str:
    """Who was allowed to decide it, and where all of the policy is; empty if that is not known."""
    if (policy := row.get("policy")) is None:
        return ""
    named = ", ".join(policy["fields"].get("approvals.approvers", ())) or "every user of the workspace"
    return f"the policy of event {policy['event']}: approvers: {named} (mailboxd log --kind config.changed)"


def _declared(action: DeclaredAction) -> str:
    from mailboxd.core.approvals import Action
    from mailboxd.core.json_codec import from_json
    from mailboxd.formats.protocol.spec import action_lines

    return action_lines((from_json(Action, action),))


def _list(session: Session, everything: bool, task: str | None) -> None:
    """List the requests that await a decision, or all."""
    from mailboxd.ledger import task_queries

    session.tell_invalid_configuration()

    with session.report() as report:
        rows = task_queries.list_approvals(
            report, everything=everything, task_id=report.find(task) if task is not None else None
        )
    none = "no approvals yet" if everything else "nothing awaits your decision"
    now = session.clock.now()
    how = f"{session.program(session.workspace())} approve --history" + (f" --task {task}" if task else "")
    session.show(rows, folded_list(rows, lambda some: _list_lines(some, now, session.runnable), everything, how), none)


def show(session: Session, name: str) -> None:
    """Show an approval: its exact action, digest and history. Raises as `_read`."""
    row = _read(session, name)
    session.show(row, _lines(session, name, row))


def _prefix(_: click.Context, __: click.Parameter, value: Any) -> str:
    """Also refuses an empty value: in a script that is an unset variable."""
    if value is None:
        return ""
    if re.fullmatch(r"[0-9a-fA-F]{8,64}", value, re.ASCII) is None:
        raise click.BadParameter("give 8 to 64 hexadecimal digits, as shown by `mailboxd show ID`")
    return str(value)


_YES = click.option("-y", "--yes", "sure", is_flag=True, help="Do not ask on a terminal.")


@verb(
    "approve",
    "approve",
    "approve 3f9k2q",
    "approve 3f9k2q --digest 9c1185a5c5e9",
    "approve beta.writer:3f9k2q",
    'approve 3f9k2q 8d0wzx --note "seen on staging"',
    "approve --history --task q3-report",
)
@approval_arguments(required=False)
@click.option("--note", type=Text(), default="", help="Record this with the decision.")
@click.option(
    "--digest",
    metavar="PREFIX",
    default=None,
    callback=_prefix,
    help="Approve only if the digest starts with PREFIX.",
)
@click.option("--history", is_flag=True, help="List all requests, also decided, expired and void ones.")
@click.option("--task", metavar="TASK", help="With --history: only this task and its subtasks.")
@_YES
def approve_command(
    session: Session, ids: tuple[str, ...], note: str, digest: str, history: bool, task: str | None, sure: bool
) -> int | None:
    """Approve requests; each action is performed once. A terminal shows them and asks first.

    Without ID, lists the requests that await your decision. ID is a request's short id (the last six characters of its
    id), a unique beginning of it with three characters or more, or the task that asks, if it has one request;
    `mailboxd show ID` shows the exact action, digest and history.

    Several requests are approved together or not at all. Your system user name is recorded. A request of an agent on
    another host is called HOST.AGENT:ID; it is decided by a signed message, which that host takes if `decide` in its
    hub.yaml names this one.
    """
    if digest and len(ids) > 1:
        raise click.UsageError("--digest applies to one request: approve them one by one")
    if ids and (history or task):
        raise click.UsageError("--history and --task list requests; to approve, leave them out")
    if task and not history:
        raise click.UsageError("--task goes with --history")
    if not ids:
        if note or digest or sure:
            raise click.UsageError("say which request; `mailboxd approve` alone lists them")
        _list(session, history, task)
        return None
    return decide(session, ids, "approved", note, digest, sure=sure)


@verb("reject", 'reject 3f9k2q --note "not before the audit"', 'reject 3f9k2q 8d0wzx --note "superseded" --now')
@approval_arguments()
@click.option("--note", type=Text(), required=True, help="The reason, with which the task fails.")
@click.option("--now", is_flag=True, help="At once: it cannot be undone. Scripts use this.")
@_YES
def reject_command(session: Session, ids: tuple[str, ...], note: str, now: bool, sure: bool) -> int | None:
    """Reject requests: nothing is performed, and their tasks fail. An ACP agent continues without it.

    The daemon waits for ten seconds, in which `mailboxd undo TASK` takes it back; without a daemon it is final at once.
    """
    return decide(session, ids, "rejected", note, sure=sure, now=now)


@verb("ask-changes", 'ask-changes 3f9k2q --note "to the staging site first"')
@approval_arguments()
@click.option("--note", type=Text(), required=True, help="What to change; given to the next attempt.")
@_YES
def ask_changes_command(session: Session, ids: tuple[str, ...], note: str, sure: bool) -> int | None:
    """Send work back with a note. Another attempt gets it, and asks again."""
    return decide(session, ids, "request_changes", note, sure=sure)


def undo(session: Session, name: str) -> None:
    """Request that a performed action be undone, using the command that it declared for this."""
    from mailboxd.core.approvals import RequestUndo
    from mailboxd.core.events import Role
    from mailboxd.engine import operator_commands

    asked: list[Event] = []

    def act(engine: Engine, user: str) -> Sequence[Event]:
        (row,) = operator_commands.requested(engine, [name])
        asked.extend(engine.handle(row.task, RequestUndo(row.id), Role.OPERATOR, user))
        return asked

    carry_out_any(session, act, {})
    session.tell(
        session.runnable("the undo needs approval: see `mailboxd approve`") if asked else "it has already been undone"
    )


@click.group("effect", cls=Group, hidden=True)
def effect_command() -> None:
    """Side effects."""


@effect_command.verb("run", "effect run apr_01J9ZK2T0V8W5N3QXYZ4ABCDEF", operator=True)
@click.argument("approval")
def run(session: Session, approval: str) -> None:
    """Perform an approved action, once. Used by the daemon; calling it yourself is safe but pointless."""
    from mailboxd.engine import open
    from mailboxd.formats import config
    from mailboxd.host import wakeup
    from mailboxd.perform import action_runner
    from mailboxd.perform.actions.command import import_environment

    ws = session.workspace()
    settings = config.load(ws.config)
    with open.engine(ws, settings) as engine:
        setting = action_runner.setting(ws, settings, import_environment(os.environ))
        row = action_runner.run(engine, approval, setting, session.pause)
    wakeup.poke(ws.state)
    facts = {"approval": row.id, "state": row.state, "summary": row.summary}
    session.answer(facts, f"{row.short_id} {row.state or row.status}: {row.summary or row.note}")
