"""`mailboxd status`, `mailboxd inbox` and `mailboxd ls`: the overview, what waits for a person, the tasks."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli import morning
from mailboxd.cli.session import Session, agent_of, verb
from mailboxd.cli.task_output import attention_lines, coming_json, coming_text
from mailboxd.cli.text import MOST_ENTRIES, columns, counted, fit, folded_list, pad, room, state, table
from mailboxd.core.sanitize import for_terminal
from mailboxd.core.spending import standing_json
from mailboxd.core.stopping import stopped
from mailboxd.core.times import moment, to_epoch
from mailboxd.core.vocabulary import STATES, Phase, in_states
from mailboxd.errors import EXIT_NO, EXIT_OK, MailboxdError, MessageError
from mailboxd.formats import health
from mailboxd.formats.config.operator_zone import zone_of
from mailboxd.formats.health import Grade, Trouble
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.unread import unread, unread_mail
from mailboxd.ledger import attention, overview
from mailboxd.ledger.attention import Attention, Need
from mailboxd.ledger.later import count_later, later

if TYPE_CHECKING:
    from mailboxd.core.explain.model import Ending, Snapshot
    from mailboxd.core.explain.overview_details import (
        BreakerDetails,
        CallDetails,
        Coming,
        HealthDetails,
        MessageCounts,
        OpenTask,
        StatusDetails,
        TroubleDetails,
        UnreadableStatus,
    )
    from mailboxd.core.explain.task_details import ListedTask, TaskOfList, TaskRow
    from mailboxd.core.spending import CapDetails
    from mailboxd.formats.mailbox.layout import Workspace
    from mailboxd.host.clock import Clock
    from mailboxd.ledger.reports import Report


_SHOWN = 10


@verb(
    "status",
    "status",
    "status --host",
    "status --json",
    "-w ~/agents/analyst status --all",
    exits={EXIT_NO: "health is red"},
)
@click.option("--host", "everywhere", is_flag=True, help="All workspaces of this user, and the other hosts of the hub.")
@click.option("--all", "everything", is_flag=True, help="Everything: all lines, the daemon, its calls, files, limits.")
def status_command(session: Session, everywhere: bool, everything: bool) -> int:
    """Show what to decide, what failed, finished and runs, what begins later, and what today has cost.

    Where nothing waits, that is six lines at most. Health is named when it is not green: amber (degraded, or soon to
    be); red (something has stopped, the daemon has not responded for 60 s, or an invalid configuration keeps it from
    starting); or off (no daemon, and the last one stopped cleanly). A result is unread until `mailboxd show` has
    printed it. --all and --json also account for every incoming file: received = archived + rejected + pending.

    `mailboxd fleet` has one line for each workspace.
    """
    if everywhere:
        return _of_host(session, everything)
    ws = session.workspace()
    well, program = _health(ws, session.clock), session.program(ws)
    try:
        with session.report() as report, report.snapshot():
            seen = session.seen(ws)
            read = None if everything else overview.MOST
            waiting = attention.of(ws, report, session.clock, program, seen, most=read, paused=session.paused())
            agent = agent_of(ws) or report.agent() or ""
            whole = session.as_json or everything
            phases = report.phases() if whole else waiting.open.phases
            today = overview.of(ws, report, waiting, phases, session.clock, agent, seen, most=read)
            well["grade"] = waiting.graded(Grade(well["grade"]), lock.holder(ws))
            found: StatusDetails | UnreadableStatus | None
            shown: Iterable[str]
            if whole:
                found, counts = _found(session, ws, report, waiting, phases, None if session.as_json else _SHOWN)
                found["health"], found["overview"] = well, today.as_json()
                lines = morning.lines(today, room(), program, most=None, health=_unwell(well, program))
                shown = (*lines, *_lines(found, counts, program))
            else:
                coming = "" if today.running.total else _coming(ws, report, session)
                found, shown = None, morning.lines(today, room(), program, next_=coming, health=_unwell(well, program))
    except MailboxdError as error:
        if well["grade"] != Grade.RED:
            raise
        found = {"workspace": str(ws.root), "health": well, "error": str(error)}
        shown = _unreadable_lines(found)
    session.show(found, shown)
    return EXIT_NO if well["grade"] == Grade.RED else EXIT_OK


def _unwell(well: HealthDetails, program: str) -> Iterator[str]:
    """The grade that is not green, and what mends itself; the rest is among what waits."""
    if well["grade"] in (Grade.GREEN, Grade.OFF):
        return
    troubles = [one for one in well["troubles"] if not one["needs_person"]]
    for one in troubles:
        yield for_terminal(f"{well['grade']}: {one['where']}: {one['why']} (`{program} doctor {one['slug']}`)")
    if not troubles:
        yield str(well["grade"])


def _of_host(session: Session, everything: bool) -> int:
    found = morning.everywhere(session, most=None if everything else overview.MOST)
    most = None if everything else morning.MOST_LINES
    lines = morning.lines(found, room(), "mailboxd", most=most, several=True) if found.places else ()
    session.show(found.as_json(), lines, "there are no known workspaces; `mailboxd setup` begins with your agents")
    return EXIT_NO if any(place.grade is Grade.RED for place in found.places) else EXIT_OK


def _coming(ws: Workspace, report: Report, session: Session) -> str:
    """What happens next by itself, in words; empty if nothing does."""
    now, pid, tasks = session.clock.now(), lock.holder(ws), report.next_to_change()
    if not tasks and not report.holds_orders():
        return ""
    snapshot = report.task_snapshot(tasks, now, pid, neighbours=False)
    coming = _next(snapshot, 0)
    works = pid is not None and not health.stopping(ws, pid, now)
    return "" if coming is None else for_terminal(coming_text(coming, now, works))


def _is_invalid(found: StatusDetails) -> bool:
    """Whether the configuration is: that is the first item."""
    return any(item["kind"] == Need.CONFIG for item in found["attention"][:1])


def _health(ws: Workspace, clock: Clock) -> HealthDetails:
    now = clock.now()
    grade, troubles = health.read(ws, lock.holder(ws), now, clock.monotonic())
    return {"grade": grade, "troubles": [_trouble_json(trouble, now) for trouble in troubles]}


def _trouble_json(trouble: Trouble, now: str) -> TroubleDetails:
    return {
        "slug": trouble.slug,
        "where": trouble.where,
        "why": trouble.why,
        "grade": trouble.grade,
        "since": trouble.since or None,
        "needs_person": trouble.needs_person(now),
    }


def _found(
    session: Session,
    ws: Workspace,
    report: Report,
    waiting: Attention,
    tasks: Mapping[str, int],
    most: int | None,
) -> tuple[StatusDetails, dict[str, int]]:
    """The whole status, of the open tasks only the first `most`; and the number of tasks by `state_words`."""
    pid, now = lock.holder(ws), session.clock.now()
    paused = session.paused()
    counts = waiting.states(tasks)
    snapshot = report.task_snapshot(report.next_to_change(), now, pid, neighbours=False)
    messages, unjudged = _messages(ws, report)
    open_count, open_tasks = report.open_roots(most)
    found: StatusDetails = {
        "at": now,
        "workspace": str(ws.root),
        "agent": agent_of(ws) or report.agent(),
        "zone": zone_of(ws.config),
        "daemon": health.daemon_details(ws, pid, now),
        "calls": report.room() if pid is not None else None,
        "tasks": dict(tasks),
        "states": in_states(counts),
        "open": waiting.open.total,
        "open_tasks": [_open_task(row) for row in open_tasks],
        "open_tasks_count": open_count,
        "paused": None if paused is None else {"by": paused.by, "at": paused.at, "note": paused.note},
        "later": later(report, now, 1_000 if most is None else most)[:most],
        "later_count": count_later(report, now),
        "attention": waiting.as_json(),
        "attention_count": waiting.total,
        "breakers": [
            {"agent": agent, "state": "open" if shut.until else "half_open", "until": shut.until, "why": shut.reason}
            for agent, shut in snapshot.breakers.items()
        ],
        "paced": dict(snapshot.paced),
        "limits": report.limits(),
        "spending": _spending(report, now, session.program(ws)),
        "messages": messages,
        "next": _next(snapshot, unjudged - len(unread_mail(ws))),
    }
    return found, counts


def _open_task(row: TaskRow) -> OpenTask:
    return {
        "local_id": row["local_id"],
        "title": row["title"],
        "state": row["state"],
        "phase": row["phase"],
        "need": row["need"],
        "status": row["status"],
        "reason": row["reason"],
    }


def _spending(report: Report, now: str, program: str) -> list[CapDetails]:
    """What is spent of the caps of the day: the agent's, and that of all agents of this machine."""
    standing = report.spending(now)
    return [] if standing is None else standing_json(standing, program)


def _messages(ws: Workspace, report: Report) -> tuple[MessageCounts, int]:
    """The counts of files, and how many in the inbox have not been processed."""
    known, unfiled = report.messages(), report.unfiled()
    # The table first: a file moved meanwhile must not be counted twice.
    unjudged = sum(1 for name in ws.mail() if name not in unfiled)
    judged = known.pop("judged")
    pending = judged - known["archived"] - known["rejected"] + unjudged
    return {
        "received": judged + unjudged,
        "archived": known["archived"],
        "rejected": known["rejected"],
        "sent": known["sent"],
        "pending": pending,
    }, unjudged


def _next(snapshot: Snapshot, unjudged: int) -> Coming | None:
    if unjudged > 0:
        return {"at": None, "task": None, "what": f"{unjudged} in the inbox {'is' if unjudged == 1 else 'are'} read"}
    from mailboxd.core.explain import why

    causes = [*why.endings(snapshot), *(why.cause_of(task, snapshot) for task in snapshot.tasks.values())]
    return coming_json(why.first_to_happen(causes, snapshot.now))


def _unreadable_lines(found: UnreadableStatus) -> Iterator[str]:
    yield f"workspace  {for_terminal(found['workspace'])}"
    yield f"health     {found['health']['grade']}"
    for trouble in found["health"]["troubles"]:
        yield f"           {for_terminal(trouble['where'])}: {for_terminal(trouble['why'])}"
        yield f"             -> mailboxd doctor {for_terminal(trouble['slug'])}"
    yield f"           {for_terminal(found['error'])}"


def _lines(found: StatusDetails, counts: dict[str, int], program: str) -> Iterator[str]:
    for name, texts in _entries(found, counts, program):
        for number, text in enumerate(texts):
            yield f"{'' if number else name:<9}  {text}".rstrip()


def _entries(found: StatusDetails, counts: dict[str, int], program: str) -> Iterator[tuple[str, Iterable[str]]]:
    """The entries of the status, each with its name and its lines. `program` is how a command begins."""
    yield "workspace", [for_terminal(found["workspace"])]
    daemon, files = found["daemon"], found["messages"]
    start = "cannot start" if _is_invalid(found) else f"start `{program} run`"
    how = "stopping" if daemon["stopping"] else "running"
    runs = f"{how}, pid {daemon['pid'] or 'unknown'}" if daemon["running"] else f"not running; {start}"
    yield "agent", [found["agent"] or "unknown"]
    yield "daemon", [runs]
    if found["calls"]:
        yield "calls", _wrapped(_calls(found["calls"]))
    yield "tasks", _wrapped(counted(counts) or "none yet")
    filed = f"{files['archived']} archived + {files['rejected']} rejected + {files['pending']} pending"
    yield "messages", [f"{files['received']} received = {filed}; {files['sent']} sent"]
    yield "open", _open(found["open_tasks"], found["open_tasks_count"])
    yield "today", [for_terminal(f"{one['bar']}  {one['text']}") for one in found["spending"]]
    yield "stopped", [_breaker(shut, found["at"]) for shut in found["breakers"][:_SHOWN]]
    yield "paced", [_paced(agent, until, found["at"]) for agent, until in list(found["paced"].items())[:_SHOWN]]
    if found["limits"]:
        yield "limits", _wrapped(_limits(found["limits"]))
    works = daemon["running"] and not daemon["stopping"]
    yield "next", _wrapped(for_terminal(coming_text(found["next"], found["at"], works)))


def _limits(limits: dict[str, int]) -> str:
    """The limits on work, by configuration key."""
    said = ", ".join(f"{name} {count or 'off'}" for name, count in limits.items())
    return f"{said} (`limits:` in .mailboxd/config.yaml)"


def _calls(calls: CallDetails) -> str:
    text = f"{calls['running']} of {calls['most']} are running, at most {calls['most_per_agent']} of one agent"
    if calls["lane"]:
        text += f"; OpenClaw runs {calls['lane']} at once, mailboxd takes at most half"
    if calls["memory"]:
        free, call = calls["memory"]["free"] >> 20, calls["memory"]["call"] >> 20
        text += f"; not enough memory for another: {free} MiB free, {call} MiB per call"
    return text


def _breaker(shut: BreakerDetails, now: str) -> str:
    until = f"gets no turns until {moment(shut['until'], now)}" if shut["until"] else "may try one turn"
    return fit(f"{shut['agent']} {until}: {stopped(shut['why'])}", room() - 11)


def _paced(agent: str, until: str, now: str) -> str:
    text = f"{agent} has used its turns of this hour, until {moment(until, now)} (limits.turns_per_agent_hour)"
    return fit(text, room() - 11)


def _open(tasks: list[OpenTask], count: int) -> Iterator[str]:
    size = max((len(row["local_id"]) for row in tasks), default=0)
    for row in tasks:
        text = f"{pad(state(row), 19)} {row['local_id']:<{size}}  "
        yield text + fit(row["title"], max(room() - 33 - size, 10))
    if count > len(tasks):
        yield f"and {count - len(tasks)} more: `mailboxd ls`"


def _wrapped(text: str) -> list[str]:
    """A text, wrapped to the screen."""
    return textwrap.wrap(text, columns() - 11, break_long_words=False, break_on_hyphens=False)


@verb(
    "inbox",
    "inbox",
    "inbox --json | jq -r '.[].command'",
    "inbox --dismiss 4k2x9a",
    "inbox --dismiss q3-report",
    "inbox --dismiss all",
    "inbox --edit 4k2x9a",
)
@click.option(
    "--dismiss",
    "dismissed",
    metavar="ID",
    multiple=True,
    help="A file, the end of an id, or TASK with its doubts; or all.",
)
@click.option(
    "--edit",
    "edited",
    metavar="ID",
    help="Correct a rejected file in your editor, and send it if it is taken now.",
)
@click.option("--all", "everything", is_flag=True, help=f"All items, also of more than {MOST_ENTRIES}.")
def inbox_command(session: Session, dismissed: tuple[str, ...], edited: str | None, everything: bool) -> None:
    """List everything that waits for you, each with the command that moves it on.

    These are questions, approvals, tasks that stopped, used-up budgets and caps of the day, specs and reviews that need
    help, failed tasks that you have not opened, rejected files and refused edits of task.md, messages and plans that
    may mean something else than they say, and a configuration, daemon, gateway or peer that does not work.

    A rejected file or refused edit leaves the list when its next version is accepted, or with --dismiss; its copy
    stays. A failed task leaves it when you open it (`mailboxd show`) or dismiss it, for you alone; so does a file that
    is no task, until it changes.
    """
    if dismissed:
        _dismiss(session, dismissed)
        return
    if edited:
        _edit(session, edited)
        return
    ws = session.workspace()
    program, paused = session.program(ws), session.paused()
    with session.report() as report:
        found = attention.of(ws, report, session.clock, program, session.seen(ws), most=None, paused=paused)
    items, now = found.as_json(), session.clock.now()
    lines = folded_list(
        items, lambda some: attention_lines(some, now, room(), program), everything, f"{program} inbox --all"
    )
    session.show(items, lines, "nothing waits for you")


def _dismiss(session: Session, names: tuple[str, ...]) -> None:
    """Take these items off the inbox: failed tasks and unread files for this user, the others for everybody."""
    from mailboxd.cli.operator_actions import carry_out_any
    from mailboxd.cli.operator_shell import require_operator
    from mailboxd.engine import operator_commands
    from mailboxd.ledger.attention_queries import dismissible
    from mailboxd.ledger.seen_items import not_noted

    require_operator()
    everything = operator_commands.ALL in names
    with session.report() as report:
        lying = unread(session.workspace(), report, to_epoch(session.clock.now()))
        files = {one.path: one.changed for one in lying if not one.command and (everything or one.path in names)}
        failed, others = dismissible(report, [name for name in names if name not in files])
    if (failed or files or everything) and not session.see(None if everything else failed, files):
        raise not_noted(os.environ)
    facts = {"seen": sorted([*failed, *files])}
    if others:
        carry_out_any(session, lambda engine, user: operator_commands.dismiss(engine, others, user), facts)
    else:
        session.answer(facts | {"events": []}, f"dismissed: {', '.join(names)}")


def _edit(session: Session, name: str) -> None:
    """Send a corrected copy of a rejected file under its name; the rejected one is kept.

    What would be rejected again is not sent. A person is asked what to do then, and without one it is kept as a draft:
    what was written is lost only if that is wished. Raises MessageError, UnavailableError, WorldError.
    """
    from mailboxd.cli.commands import approvals
    from mailboxd.cli.commands.check import lines
    from mailboxd.cli.operator_actions import in_editor, require_editor
    from mailboxd.cli.operator_shell import require_operator
    from mailboxd.engine.intake.trial import Draft, rejected, send_again, taken

    require_operator()
    ws, config = session.workspace(), session.config()
    with session.report() as report:
        file, before = rejected(report, name)
    require_editor()
    draft = Draft.of(ws, before)
    text, kept = draft.read() or before, f"`{session.program(ws)} inbox --edit {shlex.quote(name)}` opens it"
    while True:
        after = in_editor(text)
        if after is None or after == before:
            is_kept = text != before and after is None
            said = "nothing was sent; the draft is kept" if is_kept else "nothing was changed, and nothing was sent"
            session.answer({"sent": False}, said)
            return
        draft.keep(after)
        try:
            facts = taken(ws, config, session.clock, file, after.encode())
            break
        except MessageError as refused:
            if not approvals.can_ask():
                session.tell(f"kept as a draft, and not sent: {kept}", err=True)
                raise
            session.tell(f"it would be rejected again: {refused}", err=True)
        try:
            choice = click.prompt("What now?", type=click.Choice(["edit", "keep", "give-up"]), default="edit", err=True)
        except click.Abort:
            choice = "keep"
        match choice:
            case "edit":
                text = after
            case "keep":
                session.answer({"sent": False}, f"kept as a draft, and not sent: {kept}")
                return
            case _:
                draft.drop()
                session.answer({"sent": False}, "nothing was sent")
                return
    sent = send_again(ws, file, after, "command")
    draft.drop()
    session.tell(f"sent again as inbox/{sent}", err=True)
    session.show(
        {"sent": True} | facts | {"name": sent},
        map(for_terminal, lines(facts, config.agent, program=session.program(ws))),
    )


_STATES = {state.replace(" ", "-").rpartition(":-")[2]: state for state in STATES}
"""What --state is given, without a space: the four words, and how work has ended."""


class _State(click.Choice[str]):
    """Also with the space that the words are shown with."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(value.strip().replace(" ", "-") if isinstance(value, str) else value, param, ctx)


@verb("ls", "ls", "ls --state needs-you", "ls --label finance", "ls --children --agent scout --json", view=True)
@click.option("--all", "everything", is_flag=True, help="All tasks, also those that have ended.")
@click.option("--children", is_flag=True, help="Include subtasks.")
@click.option("--state", "wanted", type=_State([*_STATES]), help="Only tasks in this state.")
@click.option("--phase", type=click.Choice([str(one) for one in Phase]), help="Only tasks in this phase.")
@click.option("--agent", default="", help="Only tasks executed by this agent.")
@click.option("--label", default="", help="Only tasks with this label.")
def ls_command(
    session: Session, everything: bool, children: bool, wanted: str | None, phase: str | None, agent: str, label: str
) -> None:
    """List the open tasks and the 10 that ended most recently; with an option also subtasks.

    A long list is folded, and --json prints it unfolded; --all also lists all that have ended.
    """
    from mailboxd.ledger.task_queries import Filter, list_tasks

    with session.report() as report:
        kept = Filter(
            state=_STATES[wanted] if wanted else "", phase=phase or "", agent=agent, label=label, children=children
        )
        rows, total = list_tasks(report, kept, limit=-1 if everything or wanted or phase else None)
        held = {held.task: held for held in report.endings()}
    now = session.clock.now()
    listed = [_with_ending(row, held.get(row["local_id"]), now) for row in rows]
    head = ("TASK", "STATE", "AGENT", "CHILDREN", "TITLE")
    options = {"children": children, "state": wanted, "phase": phase, "agent": agent, "label": label}
    given = [f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items() if value]
    how = f"{session.program(session.workspace())} {shlex.join(['ls', '--all', *given])}"
    lines = folded_list(listed, lambda some: table(head, map(_cells, some)) if some else (), everything, how, total)
    session.show(listed, lines, "no matching tasks; `mailboxd send` creates one")


def _with_ending(row: ListedTask, held: Ending | None, now: str) -> TaskOfList:
    if held is None:
        return {**row, "ending": None}
    from mailboxd.core.explain import why

    return {**row, "ending": {"at": held.due, "text": why.ending_text(held, now)}}


def _cells(row: TaskOfList) -> tuple[str, ...]:
    children = f"{row['children_completed']}/{row['children_total']}" if row["children_total"] else ""
    said = row["ending"]["text"] if row["ending"] else row["reason"] if row["phase"] == "cancelled" else ""
    title = f"{row['title']} ({said})" if said else row["title"]
    return row["local_id"], state(row), row["agent"], children, title
