"""`mailboxd show|why`: one task in detail."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING

import click

from mailboxd.cli import elsewhere, repeating, task_output
from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.cli.text import columns, dated, entries, fit, lasted, room, say, sections, state, table, when
from mailboxd.core import entrance
from mailboxd.core.budget import money
from mailboxd.core.explain.milestones import given_by
from mailboxd.core.explain.why import cause_of, endings, explain
from mailboxd.core.local_time import told as local
from mailboxd.core.outcomes import PromptText
from mailboxd.core.reviews import place_of
from mailboxd.core.sanitize import for_terminal
from mailboxd.core.times import to_epoch, to_text
from mailboxd.core.vocabulary import TERMINAL, Waiting, WaitsFor, state_of, state_words
from mailboxd.errors import UnavailableError, WorldError
from mailboxd.formats import health
from mailboxd.formats.config.operator_zone import place_of as zone_place
from mailboxd.formats.mailbox import lock
from mailboxd.ledger import attention, work_at_peers
from mailboxd.ledger.attention_queries import failed_at, need_of, unseen_failures
from mailboxd.ledger.later import repetition_called
from mailboxd.ledger.overview_queries import finished_at

if TYPE_CHECKING:
    from mailboxd.core.explain.model import Cause, Snapshot
    from mailboxd.core.explain.overview_details import WhyDetails
    from mailboxd.core.explain.task_details import (
        AttemptRow,
        CauseLine,
        MessageRow,
        OpenQuestion,
        OrderGiven,
        ShownTask,
        SpentSoFar,
        ToldRow,
        TurnRow,
        VoteRow,
    )
    from mailboxd.core.explain.why import Explanation
    from mailboxd.ledger.reports import Report


_LINE = 500
_MOST_ROWS = 40
"""Rows of a table, and subtasks of a task in a tree; the others are counted."""
_MOST_LINES = 300
"""Lines of a tree."""


@verb(
    "show",
    "show q3-report",
    "show q3-report.extract --json",
    "show q3-report --tree",
    "show q3-report --spec",
    "show q3-report --timeline",
    "show q3-report --prompt 1 | sha256sum",
    "show q3-report --graph > q3.svg",
    "show 3f9k2q",
    view=True,
)
@task_argument()
@click.option("--tree", "view", flag_value="tree", help="It and its subtasks, with state, agent and dependencies.")
@click.option(
    "--all", "everything", is_flag=True, help=f"With --tree: all, also of a task with more than {_MOST_ROWS}."
)
@click.option("--spec", "view", flag_value="spec", help="What it must achieve, and what its spec lacks.")
@click.option("--timeline", "view", flag_value="timeline", help="When it and its subtasks were worked on.")
@click.option("--graph", "view", flag_value="graph", help="It and its subtasks as a graph of dependencies, in SVG.")
@click.option(
    "--prompt",
    "turn",
    type=click.IntRange(1),
    metavar="N",
    help="The exact text that its turn N was asked, if it is kept.",
)
def show_command(session: Session, task: str, view: str | None, everything: bool, turn: int | None) -> None:
    """Show a task in full, one view of it, or a request for approval.

    In full: its spec, attempts, subtasks, results, reviews and messages. TASK may also be the short id of a request for
    approval, or HOST.AGENT:ID: then its exact action, digest and history are shown.

    Of a task with subtasks --tree shows how many are complete; of an executing one, for how long. Of a large tree, the
    views show active and urgent tasks, and similar ones as one with a count. Of work that repeats you see when it is
    done next, and its runs. To open a failed task takes it off your inbox, and a result that you open is read; --json
    does neither.
    """
    if everything and view != "tree":
        raise click.UsageError("--all goes with --tree")
    if view is None and turn is None and _is_request(session, task):
        from mailboxd.cli.commands import approvals

        approvals.show(session, task)
        return
    with session.report() as report:
        if view is None and (one := repetition_called(report, task)) is not None:
            repeating.show(session, report, one)
            return
        task_id = report.find(task)
        if turn is not None:
            _prompt(session, report, task_id, turn)
            return
        if not session.as_json:
            _open(session, report, task_id)
        match view:
            case "tree":
                _tree(session, report, task_id, everything)
            case "graph":
                from mailboxd.formats.drawing.svg import graph_svg
                from mailboxd.ledger.diagrams import task_graph

                graph = task_graph(report, task_id)
                session.show(graph.as_json(), [graph_svg(graph, f"Tasks of {task}")])
            case "timeline":
                _timeline(session, report, task_id)
            case "spec":
                _spec(session, report, task_id)
            case _:
                from mailboxd.ledger.task_queries import details

                snapshot = report.task_snapshot([task_id], session.clock.now(), lock.holder(session.workspace()))
                snapshot = _with_others(session, report, snapshot)
                cause, asked = cause_of(snapshot.tasks[task_id], snapshot), snapshot.tasks[task_id].question
                standing = (cause.text, session.runnable(cause.command))
                question: OpenQuestion | None = {"to": asked.to, "text": asked.text, "at": asked.at} if asked else None
                below = [cause for cause in explain(snapshot, task_id).causes if cause.depth]
                waits = [f"{cause.task} {cause.text}" for cause in below if cause.at_peer is not WaitsFor.NOTHING]
                found: ShownTask = {**details(report, task_id), "question": question, "at_peers": waits}
                ending = [(cause.text, session.runnable(cause.hint)) for cause in endings(snapshot, found["local_id"])]
                ws = session.workspace()
                program = session.program(ws)
                session.show(
                    found, _task_lines(found, standing, ending, snapshot.now, program, partial(zone_place, ws.config))
                )


def _prompt(session: Session, report: Report, task_id: str, number: int) -> None:
    """The exact bytes that a turn was asked; escaped on a terminal only."""
    from mailboxd.ledger.task_queries import prompt_of

    turn, prompt, raw = prompt_of(report, task_id, number)
    sha256 = prompt["sha256"]
    if raw is None:
        larger = prompt.get("text") == PromptText.LEFT_OUT
        why = "it is larger than archive.prompt_bytes" if larger else "archive.prompts was not `text`"
        raise UnavailableError(f"the text of turn {number} was not kept, for {why}; its SHA-256 is {sha256}")
    if session.as_json:
        session.show({**turn, "text": raw.decode("utf-8", "surrogateescape")}, ())
    elif sys.stdout.isatty():
        session.show(None, map(for_terminal, raw.decode("utf-8", "replace").splitlines()))
    else:
        say(raw, newline=False)


def _with_others(session: Session, report: Report, snapshot: Snapshot) -> Snapshot:
    """The snapshot with the last tools of the turns that run, and the names that its work has at peers."""
    from mailboxd.perform.agents import last_tool

    tools = last_tool.of_calls(session.workspace().turns, snapshot.turns, snapshot.now)
    return replace(snapshot, tools=tools, taken=work_at_peers.names(report, snapshot, os.environ))


def _is_request(session: Session, name: str) -> bool:
    """Whether this names a request for approval, and no task."""
    from mailboxd.ledger.task_queries import is_request

    if elsewhere.found(name):
        return True
    with session.report() as report:
        try:
            report.find(name)
        except UnavailableError:
            return repetition_called(report, name) is None and is_request(report, name)
    return False


def _open(session: Session, report: Report, task_id: str) -> None:
    """A failed task that a person has opened leaves the inbox, which is said once; the result of another is read."""
    if (finished := finished_at(report, task_id)) is not None:
        session.read(session.workspace(), {task_id: finished})
    if (ended := failed_at(report, task_id)) is None:
        return
    listed = task_id in dict(unseen_failures(report, session.seen(session.workspace())))
    if session.see({task_id: ended}) and listed:
        session.tell("it has failed; now that you have opened it, it is off your inbox", err=True)


def _timeline(session: Session, report: Report, task_id: str) -> None:
    from mailboxd.cli.timeline import timeline_lines
    from mailboxd.ledger.diagrams import folded_timeline

    now = session.clock.now()
    rows, (began, ended) = folded_timeline(report, task_id, now)
    found = {"began": to_text(began), "ended": to_text(ended), "rows": [asdict(row) for row in rows]}
    session.show(found, timeline_lines(rows, (began, ended), to_epoch(now), columns()))


def _spec(session: Session, report: Report, task_id: str) -> None:
    from mailboxd.formats.protocol.spec import spec_sections
    from mailboxd.ledger.task_queries import spec_of

    found, spec = spec_of(report, task_id)
    weak = f": its spec is weak: {found['lacks']}" if found["lacks"] else ""
    head = for_terminal(f"{found['task']}: {found['title']}\n  {state_words(found['phase'], found['need'])}{weak}")
    session.show(found, [head, *sections(spec_sections(spec))])


def _task_lines(
    found: ShownTask,
    standing: tuple[str, str],
    ending: Sequence[tuple[str, str]],
    now: str,
    program: str,
    place: Callable[[], tzinfo | None] = lambda: None,
) -> Iterator[str]:
    """Everything about a task; `standing` is what it waits for, `ending` what is held to end it, each with its command;
    `place` is the zone of the operator.
    """
    yield f"{found['local_id']}: {fit(found['title'], 200)}"
    why = found["error"] if found["phase"] in TERMINAL else standing[0]
    policy, spec = found["policy"], found["spec"]
    begins = found["not_before"] if found["not_before"] == policy["not_before"] else None
    times = (
        ("created", found["created_at"]),
        ("changed", found["updated_at"]),
        ("pauses until", None if begins else found["not_before"]),
        ("due", found["due"]),
        ("ended", found["completed_at"]),
    )
    own_times = [("begins", begins), ("deadline", policy["deadline"])]
    needs = ", ".join(
        f"{need['local_id']} ({state_words(need['phase'], need['need'])})" for need in found["dependencies"]
    )
    shown = [
        ("state", state(found) + (f": {fit(why, _LINE)}" if why else "")),
        ("", f"-> {for_terminal(standing[1])}" if found["need"] else ""),
        *(("" if n else "at a peer", fit(waits, _LINE)) for n, waits in enumerate(found["at_peers"][:_MOST_ROWS])),
        *(row for text, hint in ending for row in (("ending", text), ("", f"-> {for_terminal(hint)}"))),
        ("agent", f"{found['agent']}, {found['mode']}, from {found['from']}"),
        ("id", found["id"] + (f", subtask of {found['parent']}" if found["parent"] else "")),
        *((label, dated(at, now)) for label, at in times if at),
        *((label, f"{local(at, place())}, {when(at, now)}") for label, at in own_times if at),
        ("held", found["held"] or ""),
        ("labels", for_terminal(", ".join(policy["labels"]))),
        ("model", for_terminal(policy["model"] or "")),
        ("replies to", for_terminal(found["reply_to"] or "")),
        ("spent", _spent(found["spent"])),
        ("escalated", fit(found["escalated"]["why"], _LINE)),
        ("needs", ", ".join(needs)),
        *(("" if number else "in doubt", fit(doubt["text"], _LINE)) for number, doubt in enumerate(found["doubts"])),
    ]
    yield from entries(shown)
    yield from sections(
        [
            ("Question", found["question"]["text"] if found["question"] else ""),
            ("Instructions", spec["instructions"]),
            ("Context", spec["context"]),
            ("Expected output", spec["expected_output"]),
            ("To be fixed", found["findings"]),
            ("Results", found["results"]),
            ("Error", found["error"]),
            ("Notes", found["notes"]),
        ]
    )
    yield from _tables(found, now, program)


def _tables(found: ShownTask, now: str, program: str) -> Iterator[str]:
    attempts = [
        (str(a["ordinal"]), _who(a), _status(a), when(a["started_at"], now), _took(a), a["error_summary"])
        for a in found["attempts"]
    ]
    yield from _table("Attempts", ("NO", "AGENT", "STATUS", "STARTED", "TOOK", "DETAILS"), attempts)
    by_agent = [a for a in found["attempts"] if a["run_id"] and not a["worker_ref"]]
    known = [(str(a["ordinal"]), a["run_id"] or "", a["session_key"]) for a in by_agent]
    yield from _table("In OpenClaw", ("NO", "RUN", "SESSION"), known)
    turns = [
        (str(t["number"]), t["purpose"] or "", t["outcome"] or "runs", _agent(t), _model(t), _cost(t), _asked(t))
        for t in found["turns"]
    ]
    yield from _table("Turns", ("NO", "FOR", "OUTCOME", "AGENT", "MODEL", "COST", "PROMPT (SHA-256)"), turns)
    shown, left_out = task_output.most_urgent(found["children"], _MOST_ROWS)
    children = [
        (c["key"], state(c), c["agent"], ", ".join(c["depends_on"]), c["result_summary"] or c["error"]) for c in shown
    ]
    left_out = f"{left_out}: `{program} show {found['local_id']} --tree --all`" if left_out else ""
    yield from _table("Subtasks", ("KEY", "STATE", "AGENT", "NEEDS", "DETAILS"), children, left_out)
    reviews = [(r["gate"], given_by(r), r["verdict"], r["summary"]) for r in found["reviews"]]
    yield from _table("Reviews", ("GATE", "REVIEWER", "VERDICT", "DETAILS"), reviews)
    listed = [
        (r["reviewer"], f["severity"], place_of(f["file"], f["line"], f["artifact_uri"]), f["message"])
        for r in found["reviews"]
        for f in r["findings"]
    ]
    votes = [_vote(one) for one in found["votes"]]
    yield from _table("Findings", ("REVIEWER", "SEVERITY", "WHERE", "WHAT"), listed)
    yield from _table("Vote", ("KEY", "AGENT", "SAID", "COUNTS", "WHY"), votes)
    asked = [
        (
            a["short_id"],
            a["purpose"],
            "void" if a["void"] else a["status"],
            a["approved_by"] or a["resolved_by"],
            a["state"],
            a["requested_action"],
            a["summary"] or a["note"],
        )
        for a in found["approvals"]
    ]
    yield from _table("Approvals", ("ID", "FOR", "STATUS", "BY", "STATE", "WHAT", "DETAILS"), asked)
    given = [(when(g["at"], now), g["by"], _order_given(g), g["note"]) for g in found["given"]]
    yield from _table("Said with orders", ("WHEN", "BY", "ORDER", "WORDS"), given)
    made = [(a["kind"], a["summary"], a["uri"], _hash(a["sha256"]), a["produced_by"]) for a in found["artifacts"]]
    yield from _table("Artifacts", ("KIND", "WHAT", "WHERE", "SHA-256", "BY"), made)
    told = [(when(t["at"], now), _told_how(t), t["what"], t["why"] or t["text"]) for t in found["told"]]
    yield from _table("Told", ("WHEN", "WHOM", "WHAT", "WORDS"), told)
    messages = [
        (m["direction"], m["type"] or "", _peer(m), m["verdict"], m["path"] or m["name"], entrance.told(m))
        for m in found["messages"]
    ]
    yield from _table("Messages", ("", "TYPE", "WITH", "VERDICT", "FILE", "CAME"), messages, cut=4)


_WAITS: dict[str, str] = {
    Waiting.LOOKUP: "its outcome is looked up",
    Waiting.REPLY: "waits for a reply",
    Waiting.ANSWER: "waits for an answer",
    Waiting.CHILDREN: "waits for subtasks",
}


def _status(attempt: AttemptRow) -> str:
    return _WAITS.get(attempt["waiting_for"], attempt["status"])


def _who(attempt: AttemptRow) -> str:
    tool = attempt["worker_ref"] or attempt["model"]
    return f"{attempt['executor']} with {tool}" if tool else attempt["executor"]


def _took(attempt: AttemptRow) -> str:
    cost = attempt["usage"]["cost_usd"]
    took = [lasted(attempt["seconds"])] if attempt["seconds"] is not None else []
    return ", ".join([*took, *([money(cost)] if cost else [])])


def _spent(spent: SpentSoFar) -> str:
    """The cost including subtasks; the turns are the task's own."""
    if not (spent["turns"] or spent["tokens"]):
        return ""
    of_usd = f" of {money(spent['budget_usd'])}" if spent["budget_usd"] is not None else ""
    of_tokens = f" of {spent['budget_tokens']}" if spent["budget_tokens"] is not None else ""
    turns = f"{spent['turns']} turn{'s' * (spent['turns'] != 1)}"
    return f"{money(spent['usd'])}{of_usd}, {spent['tokens']}{of_tokens} tokens; {turns}"


def _model(turn: TurnRow) -> str:
    return turn["model"] or ("not reported" if turn["outcome"] else "")


def _agent(turn: TurnRow) -> str:
    return turn["agent"] or ""


def _cost(turn: TurnRow) -> str:
    """Empty if nothing was reported, as by harnesses, which name tokens only."""
    cost = (turn["usage"] or {}).get("cost_usd")
    return money(cost) if cost else ""


def _asked(turn: TurnRow) -> str:
    prompt = turn["prompt"]
    return "" if prompt is None else f"{prompt['sha256'][:16]}…, {prompt['size']:,} bytes"


def _vote(one: VoteRow) -> tuple[str, ...]:
    key = f"{one['vote']}.{one['key']}" if one["vote"] else one["key"]
    said, why = (one["said"], one["why"]) if one["said"] else (one["why"], "")
    return key, one["agent"], said, "yes" if one["counts"] else "no", why


def _hash(sha256: str | None) -> str:
    return "not fetched" if sha256 is None else sha256[:12] or "no text"


def _order_given(one: OrderGiven) -> str:
    return f"{one['order']} {one['about']}" if one["about"] else one["order"]


def _told_how(one: ToldRow) -> str:
    return one["to"] if one["sent"] else f"{one['to']}, not reached"


def _peer(message: MessageRow) -> str:
    return (message["from"] if message["direction"] == "in" else message["to"]) or ""


def _table(
    label: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]], left_out: str = "", cut: int | None = None
) -> Iterator[str]:
    """A table of the latest rows; `left_out` says how to see the others, `cut` is as in `table`."""
    if not rows:
        return
    yield f"\n{label}"
    if len(rows) > _MOST_ROWS:
        yield f"  … {len(rows) - _MOST_ROWS} earlier; --json has all"
    yield from table(head, rows[-_MOST_ROWS:], 2, cut)
    if left_out:
        yield f"  … {left_out}"


def _tree(session: Session, report: Report, task_id: str, everything: bool) -> None:
    """The task and its subtasks, of many the most urgent, with a count of the others."""
    found, now = report.tree(task_id), session.clock.now()
    lines = list(task_output.tree_lines(found, now, room()))
    if not everything:
        shown = list(task_output.tree_lines(found, now, room(), _MOST_ROWS))
        if more := len(lines) - min(len(shown), _MOST_LINES):
            how = f"{session.program(session.workspace())} show {found['local_id']} --tree --all"
            lines = [*shown[:_MOST_LINES], f"… {more:,} more lines: `{how}`"]
    session.show(found, lines)


_DEEPEST = 8
_MOST_CAUSES = 40


def _is_task(session: Session, name: str) -> bool:
    """Whether a task of the workspace is called exactly so."""
    from mailboxd.ledger.task_queries import find_exact

    with suppress(UnavailableError, WorldError), session.report() as report:
        return find_exact(report, name) is not None
    return False


@verb("why", "why q3-report", "why q3-report.extract --json", "why db-locked")
@task_argument()
def why_command(session: Session, task: str) -> None:
    """Explain what a task waits for, and what happens next.

    The task comes first, then, indented, what it is waiting for, down to the cause. TASK may also be a name that
    `mailboxd doctor --names` lists, which is explained unless a task is called so.
    """
    if not _is_task(session, task):
        from mailboxd.cli.commands import explain as runbook

        if runbook.showed(session, task):
            return
    pid = lock.holder(session.workspace())
    with session.report() as report, report.snapshot():
        if (one := repetition_called(report, task)) is not None:
            repeating.show(session, report, one)
            return
        task_id = report.find(task)
        snapshot = _with_others(session, report, report.task_snapshot([task_id], session.clock.now(), pid))
        notices, need = report.notices(task_id), need_of(report, task_id)
    cannot_begin = attention.cannot_begin(session.workspace(), pid, snapshot.now)
    told, standing = explain(snapshot, task_id, cannot_begin), snapshot.tasks[task_id]
    lines = [f"{standing.local_id}  {state({'phase': standing.phase, 'need': need})}"]
    goes_on = standing.phase.is_terminal or (pid is not None and cannot_begin is None)
    lines += _why_lines(told, session.runnable, snapshot.now, goes_on)
    lines += [f"note: {when(notice['at'], snapshot.now)}: {for_terminal(notice['text'])}" for notice in notices]
    last = told.last_activity
    found: WhyDetails = {
        "task": standing.local_id,
        "state": state_of(standing.phase, need),
        "phase": standing.phase,
        "daemon": health.daemon_details(session.workspace(), pid, snapshot.now),
        "because": [_cause_line(cause, session.runnable(cause.hint)) for cause in told.causes],
        "notices": notices,
        "last_sign": {"seq": last.seq, "at": last.at, "text": last.text} if last else None,
        "next": task_output.coming_json(told.next),
    }
    session.show(found, lines)


def _cause_line(cause: Cause, hint: str) -> CauseLine:
    return {
        "task": cause.task,
        "kind": cause.kind,
        "text": cause.text,
        "depth": cause.depth,
        "at": cause.at,
        "then": cause.then,
        "details": cause.details,
        "hint": hint,
    }


def _why_lines(told: Explanation, runnable: Callable[[str], str], now: str, running: bool) -> Iterator[str]:
    shown = [cause for cause in told.causes if cause.depth < _DEEPEST or cause.kind not in ("dependency", "more")]
    for cause in shown[:_MOST_CAUSES]:
        indent = "  " * (min(cause.depth, _DEEPEST) + 1)
        if cause.depth or cause.text != "is completed":  # which its state has said
            yield f"{indent}{for_terminal(f'{cause.task}: {cause.text}')}"
        if cause.details:
            program = runnable("mailboxd show").removesuffix(" show")
            yield from task_output.question_lines(cause.details, cause.task, f"{indent}    ", room(), program)
        if cause.then and cause.kind != "ending":  # whose text says it
            yield f"{indent}  {when(cause.at, now) if cause.at and cause.at > now else 'next'}: {cause.then}"
        if cause.hint:
            yield f"{indent}  -> {for_terminal(runnable(cause.hint))}"
    if len(told.causes) > len(shown[:_MOST_CAUSES]):
        yield f"  ({len(told.causes) - len(shown[:_MOST_CAUSES])} more; --json shows all)"
    if told.last_activity is not None:
        yield f"last activity: {when(told.last_activity.at, now)}: {for_terminal(told.last_activity.text)}"
    yield f"next: {for_terminal(task_output.coming_text(task_output.coming_json(told.next), now, running))}"
