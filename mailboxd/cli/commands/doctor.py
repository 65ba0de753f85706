"""`mailboxd doctor`: what keeps this workspace from working, and how to fix it."""

from __future__ import annotations

import os
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import columns, fit, say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import EXIT_CONFIG, EXIT_NO, EXIT_OK

if TYPE_CHECKING:
    from mailboxd.doctor.diagnose import Target
    from mailboxd.doctor.facts import CheckResult, Facts

    Results = list[tuple[str, CheckResult]]


_CLEAR_LINE = "\r\x1b[K"


@verb(
    "doctor",
    "doctor",
    "doctor --strict --json",
    "doctor --canary",
    "doctor --quick",
    exits={EXIT_NO: "a problem was found"},
)
@click.option("--quick", is_flag=True, help="Only the workspace, without OpenClaw, in less than a second.")
@click.option("--canary", is_flag=True, help="Run one real turn of the agent, which calls the model once.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
def doctor_command(session: Session, quick: bool, canary: bool, strict: bool) -> int:
    """Diagnose the machine, OpenClaw, its gateway and the workspace, with a fix for every problem.

    Takes 10 to 20 seconds, changes nothing, and also works outside a workspace. The gateway plugin, if installed, is
    sent a message that it must refuse.

    --quick checks only the workspace: ownership, permissions, directories, links, configuration, keys, database,
    leftovers.

    --canary also runs one harmless turn of the agent and, with the plugin, sends a message to the agent's own mailbox,
    which is archived without effect.
    """
    from mailboxd.doctor import diagnose

    if quick and canary:
        raise click.UsageError("--quick runs no --canary")
    if quick:
        return _check_workspace(session, strict=strict)
    target = diagnose.target_at(*diagnose.find_workspace(Path.cwd(), session.path), os.environ)
    results = examine(session, target, canary=canary)
    return conclude(session, str(target.ws.root) if target.ws is not None else None, results, strict=strict)


def examine(session: Session, target: Target, *, canary: bool) -> Results:
    """All results about the target; displayed as well, unless JSON was requested."""
    from mailboxd.doctor import diagnose

    facts = diagnose.collect(target, os.environ, session.clock, _progress)
    _progress("")
    results = list(diagnose.judge(facts))
    if not session.as_json:
        show(results)
    if canary:
        canary_results = [("canary", result) for result in _canary(session, target, facts, results)]
        results += canary_results
        if not session.as_json:
            show(canary_results)
    return results


def _canary(session: Session, target: Target, facts: Facts, results: Results) -> Iterable[CheckResult]:
    from mailboxd.doctor.agent import run_canary
    from mailboxd.doctor.facts import error, note

    if target.ws is None or not target.settings.agent:
        return [error("canary-turn", "no workspace, so no agent to run", "mailboxd -w DIRECTORY doctor")]
    if any(result.level == "error" for group, result in results if group != "workspace"):
        return [note("canary-turn", "no turn was run: fix the errors above first", "mailboxd doctor")]
    if not session.as_json:
        say(f"canary: running one real turn of agent {target.settings.agent}; it calls the model once", err=True)
    plugin = facts.plugin is not None and facts.plugin.installed and not facts.plugin.problem
    running = facts.daemon is not None and facts.daemon.pid is not None
    return run_canary(target, session.clock, session.pause, plugin=plugin, daemon=running)


def _progress(name: str) -> None:
    """Show on a terminal what is being checked; an empty name clears the line."""
    if sys.stderr.isatty():
        say(_CLEAR_LINE + (fit(f"checking {name} ...", columns() - 1) if name else ""), err=True, newline=False)


def _check_workspace(session: Session, *, strict: bool) -> int:
    from mailboxd.doctor import diagnose

    ws = session.workspace()
    target = diagnose.target_at(ws, "", os.environ)
    facts = diagnose.collect(target, os.environ, session.clock, lambda _name: None, local=True)
    results = list(diagnose.judge(facts))
    if not session.as_json:
        show(results)
    status = conclude(session, str(ws.root), results, strict=strict)
    return EXIT_CONFIG if target.settings.problem else status


# Output of `doctor`

_MARKS = {"ok": ("✓", "green"), "note": ("·", None), "warning": ("!", "yellow"), "error": ("✗", "red")}
_TITLES = {
    "machine": "this machine",
    "openclaw": "OpenClaw",
    "agent": "the agent",
    "workspace": "the workspace",
    "unknown": "not checked",
    "canary": "canary",
}


def conclude(session: Session, workspace: str | None, results: Results, *, strict: bool) -> int:
    """Print the totals, or everything as JSON; return the exit status."""
    counts = Counter(str(result.level) for _, result in results)
    bad = counts["error"] + (counts["warning"] if strict else 0)
    if session.as_json:
        shown = as_json(results)
        levels = {level: counts[level] for level in _MARKS}
        say(to_json({"workspace": workspace, "healthy": not bad, "counts": levels, "findings": shown}))
    else:
        if counts.keys() - {"ok"}:
            say("what a [name] means and what to do: `mailboxd explain NAME`")
        say(_totals(counts))
    return EXIT_NO if bad else EXIT_OK


def show(results: Results) -> None:
    """Print each result under the title of its group, and each fix on its own line."""
    last = ""
    for group, result in results:
        if group != last:
            say(_TITLES[group])
            last = group
        mark, colour = _MARKS[result.level]
        sign = click.style(mark, fg=colour) if colour else mark
        named = "" if result.level == "ok" else f" [{result.id}]"
        text = " ".join(for_terminal(result.text + named).split())
        lines = textwrap.wrap(text, columns() - 4, break_on_hyphens=False)
        say(f"  {sign} " + "\n    ".join(lines))
        for fix in result.fixes:
            say(f"    -> {for_terminal(fix)}")  # never wrapped: it is to be copied
    say()


def as_json(results: Results) -> list[dict[str, Any]]:
    """The results for `--json`."""
    return [
        {"group": group, "id": one.id, "level": one.level, "text": one.text, "mends": list(one.fixes)}
        for group, one in results
    ]


def _totals(counts: Counter[str]) -> str:
    totals = [
        f"{counts[level]} {level}{'' if counts[level] == 1 else 's'}"
        for level in ("error", "warning", "note")
        if counts[level]
    ]
    return ", ".join(totals) or "no problems found"
