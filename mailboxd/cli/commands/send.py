"""`mailboxd send` and `mailboxd export message`: write task messages and other protocol files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.groups import Group
from mailboxd.cli.operator_actions import edited, kept_if_refused, read_text
from mailboxd.cli.operator_shell import require_operator
from mailboxd.cli.session import POLL_INTERVAL, Header, Session, Text, agent_of, verb
from mailboxd.cli.task_output import attention_lines
from mailboxd.cli.text import columns, folded_list, lasted, say, stamp, state, to_json
from mailboxd.core.local_time import told
from mailboxd.core.sanitize import for_terminal
from mailboxd.core.times import to_epoch
from mailboxd.core.vocabulary import POOL, Phase, Runtime, is_id
from mailboxd.engine.sending import (
    Draft,
    admitted,
    calendar_of,
    compose,
    file_name,
    given_to,
    put,
    read_moments,
    signed_by,
    unknown_reviewer,
    with_plan,
)
from mailboxd.errors import (
    EXIT_BAD_MESSAGE,
    EXIT_NO,
    EXIT_TRY_AGAIN,
    EXIT_WAITING_FOR_YOU,
    MailboxdError,
    MessageError,
    Refused,
    UnavailableError,
)
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.system import system
from mailboxd.ledger import attention
from mailboxd.ledger.attention import OF_TASKS, Item, Need

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mailboxd.core.explain.task_details import TaskDetails, TaskRow
    from mailboxd.ledger.reports import Report


# The receiver

_NO_MAILBOX = "there is no mailbox/inbox; `mailboxd init {}` creates one"


def receiver(session: Session, to: str | None) -> tuple[Workspace, str]:
    """The workspace in this directory, or of this agent, and the agent elsewhere to whom its agent is to give the work:
    of another host, or a pool; empty for none.

    A mailbox without mailboxd suffices. Raises UnavailableError unless there is exactly one.
    """
    if to is None:
        return session.workspace(), ""
    if _is_there(Path(to, "mailbox", "inbox"), Path.is_dir):
        return Workspace(Path(to).resolve()), ""
    known = _agents()
    found = [ws for name, ws in known if name.lower() == to.lower()]
    if len(found) == 1:
        return found[0], ""
    if found:
        places = ", ".join(for_terminal(str(ws.root)) for ws in found)
        raise UnavailableError(f"{to} has several workspaces: {places}; choose with --to DIRECTORY")
    if _is_elsewhere(to):
        return session.workspace(), to
    if not is_id(to) or _is_there(Path(to), Path.is_dir):
        raise UnavailableError(f"{to}: {_NO_MAILBOX.format(to)}")
    near = get_close_matches(to, [name for name, _ in known], 1)
    hint = f"did you mean {near[0]}?" if near else "`mailboxd fleet` lists the known ones"
    raise UnavailableError(f"no known workspace has the agent {to}, and no directory is called so; {hint}")


def _is_there(path: Path, is_so: Callable[[Path], bool]) -> bool:
    """Whether a word that somebody wrote is such a path. `pathlib` raises if a part has more than 255 bytes."""
    with suppress(OSError):
        return is_so(path)
    return False


def _is_elsewhere(to: str) -> bool:
    """Whether it is a pool, or may be an agent of another host of the hub; what a hub has is checked with the plan."""
    from mailboxd.hub.files.view import has_hub

    is_name = to.startswith(POOL) or ("." in to and is_id(to) and not Path(to).is_dir())
    return is_name and has_hub(os.environ)


def _agents() -> list[tuple[str, Workspace]]:
    """The agents with an existing workspace, each with its workspace."""
    from mailboxd.formats.user import registry

    found = []
    for ws in registry.workspaces(os.environ):
        try:
            name = agent_of(ws)
        except MailboxdError:
            continue
        if name is not None:
            found.append((name, ws))
    return found


def _complete(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        known = _agents()
    except MailboxdError:
        known = []
    names = [CompletionItem(name, help=str(ws.root)) for name, ws in known if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="dir")]


# Checks before anything is written


def _require_sensible(session: Session, ws: Workspace, said: dict[str, Any], task_id: str) -> None:
    """Raises Refused for a task that exists; UsageError for values that can only be mistakes."""
    if ws.config.exists() and any(said[name] for name in ("harness", "model", "reply_to")):
        _require_allowed(ws, said)
    program = session.program(ws)
    if (file := ws.inbox / file_name(task_id)).exists():
        problem = f"{task_id} was sent before, and {file} has not been read yet"
        raise Refused("task-exists", problem, f"`{program} run` reads it; or choose another --task-id.")
    if not ws.database.exists():
        return
    from mailboxd.ledger.reports import opened
    from mailboxd.ledger.task_queries import sent_before

    with opened(ws.database) as report:
        known, found = report.agents(), sent_before(report, said["sender"], task_id)
    own, reviewers = agent_of(ws), said["reviewers"] or ()
    for name in reviewers if known else ():
        if why := unknown_reviewer(name, [*known, *filter(None, [own])]):
            raise click.UsageError(why)
    if own is not None and reviewers and all(name.lower() == own.lower() for name in reviewers):
        raise click.UsageError(f"{own} does not review its own work; name another reviewer")
    if found is not None:
        raise Refused("task-exists", *_what_became_of(found, session.clock.now(), program))


def _what_became_of(task: TaskRow | TaskDetails, now: str, program: str) -> tuple[str, str]:
    name, ended = task["local_id"], Phase(task["phase"]).is_terminal
    lasts = lasted(to_epoch(now) - to_epoch(task["updated_at"]))
    problem = f"{name} exists: {click.unstyle(state(task))[2:]} {f'{lasts} ago' if ended else f'for {lasts}'}"
    how = f"`{program} retry {name}` runs it again" if ended else f"`{program} edit {name}` adds instructions"
    return problem, f"{how}; or choose another --task-id."


# Waiting

_PRINTED_KINDS = ("task.transitioned", "attempt.started", "attempt.ended", "question.asked", "circuit.opened")


def _wait(session: Session, ws: Workspace, sent: dict[str, Any], limit: float | None) -> int | None:
    """Wait until the task of a message ends or needs a person, for `limit` seconds, and print what became of it.

    Prints progress on standard error; with --json the task as in `show`, or what was sent if no daemon has read it.
    Raises MessageError if the message was rejected, Refused if the task existed.
    """
    from mailboxd.ledger.reports import opened

    session.tell(f"sent {sent['file']}", err=True)
    deadline = None if limit is None else session.clock.monotonic() + limit
    task: TaskDetails | None = None
    items: list[Item] = []
    seen = 0
    while True:
        if ws.database.exists():
            with opened(ws.database) as report, report.snapshot():
                last = report.last_event()
                if last != seen and (task_id := _accepted(session, ws, report, sent["message_id"])):
                    task, items = _look(session, ws, report, task_id, seen)
                seen = last
        is_over = bool(items) or (task is not None and task["completed_at"])
        if is_over or (deadline is not None and session.clock.monotonic() >= deadline):
            break
        session.pause(POLL_INTERVAL)
    shown = [item.as_json() for item in items]
    if session.as_json:
        say(to_json({**(task or sent), "attention": shown}))
    if shown:
        now, program = session.clock.now(), session.program(ws)
        for line in folded_list(
            shown, lambda some: attention_lines(some, now, columns(), program), False, f"{program} inbox --all"
        ):
            say(line, err=session.as_json)
        return EXIT_WAITING_FOR_YOU
    if task is None:
        session.tell(f"{sent['file']} has not been accepted yet; it remains in the inbox", err=True)
        return EXIT_TRY_AGAIN
    name = task["local_id"]
    if not task["completed_at"]:
        session.tell(f"{name} has not ended and continues; see `{session.program(ws)} why {name}`", err=True)
        return EXIT_TRY_AGAIN
    if task["phase"] == "completed":
        session.tell(task["results"])
        if not session.as_json:
            session.read(ws, {task["id"]: task["completed_at"]})
        return None
    session.tell(f"{name} {task['phase']}: {task['error'] or task['reason']}", err=True)
    return EXIT_NO


def _look(session: Session, ws: Workspace, report: Report, task_id: str, seen: int) -> tuple[TaskDetails, list[Item]]:
    """The task as in `show`, and what in its tree waits for a person; prints what was recorded after event `seen`."""
    from mailboxd.ledger.task_queries import details

    for event in report.events(task_id, tree=True, after=seen, brief=True):
        if event["kind"] in _PRINTED_KINDS:
            session.tell(f"{stamp(event['at'])}  {event['text']}", err=True)
    waiting = attention.of(ws, report, session.clock, session.program(ws), session.seen(ws), most=None)
    tree = report.names_below(task_id)
    items = [item for item in waiting.items if item.task in tree and item.kind in {*OF_TASKS, Need.APPROVAL}]
    return details(report, task_id), items


def _accepted(session: Session, ws: Workspace, report: Report, message_id: str) -> str | None:
    """The id of the message's task; None until it is judged. Its local id may differ from the id sent."""
    judged = report.received(message_id)
    if judged is None:
        return None
    if judged["verdict"] == "rejected":
        reason = judged["reason"] or {}
        raise MessageError(
            reason.get("rule", "unreadable"), reason.get("problem", "it was rejected"), reason.get("hint", "")
        )
    if judged["verdict"] != "accepted":
        from mailboxd.ledger.task_queries import details

        found = details(report, str(judged["task"]), children=False)
        raise Refused("task-exists", *_what_became_of(found, session.clock.now(), session.program(ws)))
    return str(judged["task"])


# Task messages


_MOST_TEXT = 1 << 20
_MOST_PLAN = 4 << 20
_HEADERS = (
    "labels", "gates", "reviewers", "priority", "deadline", "not_before", "max_attempts", "timeout", "idempotent",
    "budget_usd", "budget_tokens", "harness", "model", "reply_to", "repeat", "missed", "overlap",
)  # fmt: skip
TO = click.option(
    "--to", metavar="AGENT", shell_complete=_complete,
    help="This agent or directory, an agent of another host (beta.writer), or a pool (pool:reviewer).",
)  # fmt: skip
TASK_ID = click.option("--task-id", type=Header("task_id", "ID"), help="Default: derived from the title.")
WAIT = click.option("--wait", is_flag=True, help="Wait until the task ends or needs you, and print its result.")
WAIT_TIMEOUT = click.option(
    "--wait-timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop waiting after this long."
)
_HEADER_OPTIONS = (
    click.option("--label", "labels", type=Header("labels", "NAME,..."), help="To find it by: `ls --label`."),
    click.option("--gates", type=Header("gates", "GATE,..."), help="spec_review, spec_gate, quality_gate; or none."),
    click.option("--reviewers", type=Header("reviewers", "ID,..."), help="The reviewing agents."),
    click.option(
        "--priority", type=Header("priority", "N"), help="-100 to 100, or low, high, urgent; higher runs first."
    ),
    click.option(
        "--deadline", type=Text(), metavar="TIME", help='2026-12-01 (its end), "fri 17:00", tomorrow, "in 3 days".'
    ),
    click.option(
        "--not-before", type=Text(), metavar="TIME", help='When it may begin: 2026-12-01, "mon 8:00", "in 2 weeks".'
    ),
    click.option(
        "--repeat", type=Header("repeat", "HOW"), help='"daily at 07:00", "every 2 h", a cron line: a run each time.'
    ),
    click.option(
        "--missed", type=Header("missed", "WORD"), help="Runs that could not start in time: once (default), all, skip."
    ),
    click.option("--overlap", is_flag=True, default=None, help="A run may start while an earlier one is open."),
    click.option("--budget-usd", type=Header("budget_usd", "USD"), help="What it may cost with all its subtasks."),
    click.option("--budget-tokens", type=Header("budget_tokens", "N"), help="The same in tokens, like 200k."),
    click.option(
        "--harness", type=Header("harness", "NAME"), help="One of acp.harnesses, to work in place of the agent."
    ),
    click.option("--model", type=Header("model", "NAME"), help="One of openclaw.models, for its turns."),
    click.option("--reply-to", type=Header("reply_to", "WHERE"), help="One of notify.reply_to, for its result."),
    click.option("--max-attempts", type=Header("max_attempts", "N"), help="1 to 100."),
    click.option("--timeout", type=Header("timeout", "SECONDS"), help="Time limit of one turn, like 600 or 10m."),
    click.option(
        "--idempotent", is_flag=True, default=None, help="The task may be repeated if its outcome is unknown."
    ),
)


def header_options(command: Any) -> Any:
    """Decorate a command with options for the headers of the task that it sends."""
    for option in reversed(_HEADER_OPTIONS):
        command = option(command)
    return command


_NEW_TASK = "A new task for {}: its title on the first line, then what to do. Leave it empty to send nothing."


@verb(
    "send",
    'send "Summarise inbox/q3.csv in five lines"',
    'send --title "Q3 report" --file brief.md --criterion "Every figure names its month" --budget-usd 2',
    "send --title Release --plan plan.yaml --gates quality_gate --reviewers critic",
    'git log -20 | mailboxd send --title "Release notes" -',
    'send --to writer --wait --wait-timeout 600 "Write the report"',
    'send --to beta.writer "Write the report"  # on another host',
    "send --check brief.md",
    exits={
        EXIT_NO: "the task exists; or with --wait, it failed or was cancelled",
        EXIT_WAITING_FOR_YOU: "--wait: it waits for you, by the command that is printed",
        EXIT_BAD_MESSAGE: "the message or plan is invalid",
        EXIT_TRY_AGAIN: "--wait: the task has not ended in time",
    },
)
@click.argument("instructions", nargs=-1, type=Text())
@click.option("--title", type=Text(), default="", help="Default: the first line of the instructions.")
@click.option("--file", metavar="FILE", help="Read INSTRUCTIONS from FILE (- is standard input).")
@click.option("--context", type=Text(), default="", help="Background information.")
@click.option("--expected-output", type=Text(), default="", help="What the result must contain.")
@click.option("--criterion", "criteria", type=Text(), multiple=True, help="An acceptance criterion (repeatable).")
@click.option("--plan", metavar="FILE", help="A plan to carry out (YAML with `subtasks:`), validated before sending.")
@click.option("--check", metavar="FILE", help="Say what FILE would become in this agent's inbox, and send nothing.")
@TO
@TASK_ID
@click.option("--from", "sender", type=Header("from", "ID"), default="operator", show_default=True, help="The sender.")
@header_options
@WAIT
@WAIT_TIMEOUT
def send_command(session: Session, **said: Any) -> int | None:
    """Send a task to an agent. INSTRUCTIONS are its text (- reads standard input); without any, an editor opens.

    Sections of a specification in it (`## Goal`, `## Scope Out` ...) count as such, and `## DAG` as its plan. A plan
    with an agent that cannot be asked is refused. Writes one message, atomically, to the inbox of this workspace or of
    the agent given by --to. For an agent of another host of the hub, or a pool, this workspace's agent gives it on and
    gets the result.

    --check takes FILE (- is standard input) exactly as the daemon would, beside the tasks and messages that are there,
    and prints the task with its limits, or the refusal with its reason. Nothing is sent or recorded.
    """
    if (file := said.pop("check")) is not None:
        from mailboxd.cli.commands import check

        if said["instructions"] or said["file"] or said["plan"] or said["to"]:
            raise click.UsageError("--check FILE says what the file as it is would become: leave the text and --to out")
        check.show(session, file)
        return None
    require_operator(said["sender"])
    ws, agent = receiver(session, said["to"])
    text = _text(said)
    is_empty = not (text or said["title"].strip() or said["plan"])
    written = (edited(_NEW_TASK.format(agent_of(ws) or ws.root.name), "") or "") if is_empty else ""
    with kept_if_refused(written):
        draft = _draft(ws, said, text or written, session.clock.now())
        if agent:
            draft = given_to(draft, agent, ws, calendar_of(ws, session.clock.now()))
        return send(session, ws, draft, said)


def send(session: Session, ws: Workspace, draft: Draft, said: dict[str, Any]) -> int | None:
    """Put the task into the inbox; `said` are the options of `mailboxd send`."""
    if said["wait_timeout"] is not None and not said["wait"]:
        raise click.UsageError("--wait-timeout requires --wait; --timeout limits one turn")
    message_id, task_id = _ids(session, draft.title, said["task_id"])
    times = _times(session, ws, said)
    if said["repeat"] is not None:
        _require_repeatable(said)
        times |= {"next_at": _first(session, ws, said, times)}
    said = {**said, **{name: at for name, at in times.items() if name in _TIMES}}
    _require_sensible(session, ws, said, task_id)
    headers = {name: said[name] for name in _HEADERS if said[name] is not None}
    if said["harness"] is not None:
        headers["runtime"] = Runtime.ACP
    identity = {"task_id": task_id, "from": said["sender"], "message_id": message_id}
    raw = signed_by(ws, said["sender"], compose(draft, {**headers, **identity, "sent_at": session.clock.now()}))
    pid, now = lock.holder(ws), session.clock.now()
    file = str(ws.inbox / put(ws, task_id, raw, "command"))
    sent = {"task_id": task_id, "message_id": message_id, "file": file, "daemon": {"running": pid is not None}, **times}
    cannot_begin = attention.cannot_begin(ws, pid, now)
    if pid is None:
        start = f"`{attention.start(ws, session.program(ws))}` starts the task"
        say(for_terminal(f"no daemon is running there: {cannot_begin[0] if cannot_begin else start}"), err=True)
    elif cannot_begin is not None:
        say(for_terminal(f"{cannot_begin[0]} (`{cannot_begin[1]}` starts the next one)"), err=True)
    if said["wait"]:
        return _wait(session, ws, sent, said["wait_timeout"])
    session.answer(sent, f"{task_id}\n{file}")
    return None


def _require_repeatable(said: dict[str, Any]) -> None:
    """Raises UsageError."""
    if said["wait"]:
        raise click.UsageError("--wait waits for one task; `mailboxd show` lists the runs of work that repeats")
    if said["deadline"]:
        raise click.UsageError("--deadline with --repeat: every run would have this one deadline; see --timeout")


def _first(session: Session, ws: Workspace, said: dict[str, Any], times: dict[str, str]) -> str:
    """When work that repeats is done first, which is said."""
    from mailboxd.formats.protocol.repeats import RuleTimes, first_after, read_repeat
    from mailboxd.host import zone

    calendar, rule = calendar_of(ws, session.clock.now()), read_repeat(said["repeat"])
    place = zone.named(rule.zone) if rule.zone else calendar.zone or zone.named("")
    begins = times.get("not_before")
    first = first_after(RuleTimes(rule, place, begins or calendar.now), calendar.now, begins)
    session.tell(f"it repeats {said['repeat']}, first {told(first, place)}", err=True)
    return first


def _times(session: Session, ws: Workspace, said: dict[str, Any]) -> dict[str, str]:
    """The times among the options, as they were read, which is said. Raises UsageError."""
    if not any(said[name] for name in _TIMES):
        return {}
    calendar = calendar_of(ws, session.clock.now())
    try:
        times = read_moments(said, calendar)
    except MessageError as error:
        raise click.UsageError(f"--{str(error.field).replace('_', '-')}: {error.problem}. {error.hint}") from None
    for name, at in times.items():
        session.tell(f"{_TIMES[name]} {calendar.told(at)}", err=True)
    return times


_TIMES = {"deadline": "its deadline is", "not_before": "it begins"}


def _require_allowed(ws: Workspace, said: dict[str, Any]) -> None:
    """Raises UsageError for a harness, model or address that the receiver's configuration does not allow."""
    from mailboxd.core.model import Policy
    from mailboxd.core.specs import refused_address, refused_model, unknown_harness
    from mailboxd.formats import config
    from mailboxd.formats.config.settings import settings

    allowed, harness = settings(config.load(ws.config)), said["harness"]
    policy = Policy(model=said["model"] or "", runtime=Runtime.ACP if harness else Runtime.OPENCLAW)
    why = unknown_harness(allowed.harnesses, harness) if harness else None
    why = why or refused_model(policy, allowed.models)
    if why or (said["reply_to"] and (why := refused_address(said["reply_to"], allowed.reply_to))):
        raise click.UsageError(why)


def _text(said: dict[str, Any]) -> str:
    """The instructions that are given as arguments or in a file; empty: none. Raises UsageError."""
    words = list(said["instructions"])
    source = said["file"] or ("-" if words == ["-"] else None)
    if source is not None and words not in ([], ["-"]):
        raise click.UsageError("give the instructions as arguments or with --file, not both")
    if not source and len(words) == 1 and _is_there(Path(words[0]), Path.is_file):
        file = shlex.quote(words[0])
        raise click.UsageError(
            f"{file} is a file: --file {file} sends its text, --plan {file} carries out the plan in it;"
            f" for these words as the instructions: `echo {file} | mailboxd send -`"
        )
    return (read_text(source, _MOST_TEXT) if source else " ".join(words)).strip()


def _draft(ws: Workspace, said: dict[str, Any], text: str, now: str) -> Draft:
    title = said["title"].strip() or text.partition("\n")[0].lstrip("# ")[:200]
    if not title:
        raise click.UsageError("give INSTRUCTIONS, --file or --title")
    dag = ""
    if said["plan"] is not None:
        from mailboxd.formats.protocol.plan import parse_dag

        plan = parse_dag(read_text(said["plan"], _MOST_PLAN), path=said["plan"], calendar=calendar_of(ws, now))
        dag = admitted(plan, ws)
    draft = Draft(title, text, said["context"], said["expected_output"], said["criteria"], dag)
    return with_plan(draft, ws, calendar_of(ws, now) if "DAG" in text else None)


def _ids(session: Session, title: str, task_id: str | None) -> tuple[str, str]:
    from mailboxd.host.ids import Ids, readable

    message_id = Ids().new("msg", session.clock.now())
    return message_id, task_id or readable(message_id[-6:].lower(), title)


_OUTPUT = click.option(
    "-o", "--output", metavar="FILE", help="Write to FILE, which must not exist (default: standard output)."
)
_TASK_ID = click.option("--task-id", type=Header("task_id", "ID"), required=True, help="The task id.")
_SENDER = click.option("--from", "sender", type=Header("from", "ID"), required=True, help="The sender.")


@click.group("message", cls=Group)
def message_command() -> None:
    """Write a protocol message (dispatch or reply) or a task.md, to a file or standard output."""


@message_command.verb(
    "dispatch",
    'export message dispatch --to scout --title "Extract" --instructions "..."',
    'export message dispatch --task-id q3 --subtask-id extract --from analyst --title "Extract" --instructions "..."',
)
@TASK_ID
@click.option("--subtask-id", type=Header("subtask_id", "ID"), help="The subtask being delegated.")
@click.option("--from", "sender", type=Header("from", "ID"), help="The sender; default: this workspace's agent.")
@click.option("--to", type=Header("to", "ID"), help="The receiver.")
@click.option("--title", type=Text(), required=True, help="The title, on one line.")
@click.option("--context", type=Text(), default="", help="Background information.")
@click.option("--instructions", type=Text(), default="", help="What to do.")
@click.option("--expected-output", type=Text(), default="", help="What the result must contain.")
@_OUTPUT
def dispatch(session: Session, output: str | None, **said: Any) -> None:
    """Write a message that delegates work to an agent."""
    draft = Draft(said["title"], said["instructions"], said["context"], said["expected_output"])
    message_id, task_id = _ids(session, draft.title, said["task_id"])
    sender = said["sender"] or agent_of(session.workspace())
    identity = {"task_id": task_id, "subtask_id": said["subtask_id"], "from": sender, "to": said["to"]}
    _write(session, output, compose(draft, {**identity, "message_id": message_id, "sent_at": session.clock.now()}))


@message_command.verb(
    "reply",
    'export message reply --task-id q3 --subtask-id extract --from scout --status done --results "12 figures"',
    'export message reply --task-id q3 --subtask-id extract --from scout --status failed --error "no access"',
)
@_TASK_ID
@click.option("--subtask-id", type=Header("subtask_id", "ID"), help="The subtask being answered.")
@_SENDER
@click.option("--status", type=click.Choice(["done", "failed"]), required=True, help="The outcome.")
@click.option("--results", type=Text(), default="", help="The results (with --status done).")
@click.option("--error", type=Text(), default="", help="What went wrong (with --status failed).")
@click.option("--partial-results", "partial", type=Text(), default="", help="Results from before the failure.")
@_OUTPUT
def reply(session: Session, output: str | None, **said: Any) -> None:
    """Write a message that reports the outcome of work."""
    from mailboxd.formats.protocol.markdown import Section
    from mailboxd.formats.protocol.messages import ReplyMessage, render_message

    done = said["status"] == "done"
    if done is not bool(said["results"]) or done is bool(said["error"] or said["partial"]):
        raise click.UsageError("--status done goes with --results, --status failed with --error and --partial-results")
    texts = (("Results", said["results"]), ("Error", said["error"]), ("Partial Results", said["partial"]))
    message = ReplyMessage(
        task_id=said["task_id"],
        subtask_id=said["subtask_id"],
        from_=said["sender"],
        status=said["status"],
        completed_at=session.clock.now(),
        sections=tuple(Section(heading, text) for heading, text in texts if text.strip()),
    )
    _write(session, output, render_message(message))


@message_command.verb(
    "task",
    'export message task --task-id q3 --from operator --title "Q3 report" --instructions "..." -o tasks/q3/task.md',
)
@_TASK_ID
@_SENDER
@click.option("--title", type=Text(), required=True, help="The title, on one line.")
@click.option(
    "--mode",
    type=click.Choice(["direct", "coordinating"]),
    default="direct",
    show_default=True,
    help="Executed as a whole, or split into subtasks.",
)
@click.option("--status", help="Default: pending; planning if coordinating.")
@click.option("--context", type=Text(), default="", help="Background information.")
@click.option("--instructions", type=Text(), default="", help="What to do.")
@click.option("--expected-output", type=Text(), default="", help="What the result must contain.")
@click.option("--results", type=Text(), default="", help="The results.")
@_OUTPUT
def task(session: Session, output: str | None, **said: Any) -> None:
    """Write a task.md, which starts a task when it appears under tasks/."""
    from mailboxd.core.vocabulary import Mode
    from mailboxd.formats.protocol.prompts import Templates
    from mailboxd.formats.protocol.taskmd import STATUSES, TaskFile, render_task_file

    mode = Mode(said["mode"])
    status = said["status"] or STATUSES[mode][0]
    if status not in STATUSES[mode]:
        raise click.UsageError(f"{status!r} is not a status of a {mode} task: {', '.join(STATUSES[mode])}")
    extra = (("Context", said["context"]), ("Expected Output", said["expected_output"]))
    now = session.clock.now()
    file = TaskFile(
        task_id=said["task_id"],
        title=said["title"],
        mode=mode,
        status=status,
        sender=said["sender"],
        created_at=now,
        updated_at=now,
        instructions=said["instructions"],
        results=said["results"] if mode is Mode.DIRECT else "",
        synthesised=said["results"] if mode is Mode.COORDINATING else "",
        extra_sections=tuple((heading, text) for heading, text in extra if text.strip()),
    )
    _write(session, output, render_task_file(file, Templates(None)))


def _write(session: Session, output: str | None, raw: bytes) -> None:
    """Write to a file, atomically, or to standard output."""
    if output is None:
        session.write(raw.decode())
        return
    from mailboxd.formats.mailbox.files import directory, publish, world_errors

    path = Path(output)
    with world_errors(f"write {output}"), directory(path.parent) as fd:
        try:
            publish(fd, path.name, raw)
        except FileExistsError:
            raise click.UsageError(f"{output}: the file already exists") from None
        system.sync(fd)
    if session.as_json:
        say(to_json({"file": output}))
