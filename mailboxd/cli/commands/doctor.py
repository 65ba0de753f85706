"""`mailboxd doctor`: what keeps this workspace from working, and how to fix it."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.bars import checking
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import colored, columns, say
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import EXIT_CONFIG, EXIT_NO, EXIT_OK

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mailboxd.operate.doctor.facts import CheckResult, Facts
    from mailboxd.operate.doctor.target import Target

    Results = list[tuple[str, CheckResult]]


def _complete(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names that begin so."""
    from click.shell_completion import CompletionItem

    from mailboxd.cli.commands.explain import entries, runbook

    return [CompletionItem(name) for name in sorted(entries(runbook())) if name.startswith(incomplete)]


@verb(
    "doctor",
    "doctor",
    "doctor --strict --json",
    "doctor --canary",
    "doctor --quick",
    "doctor circuit",
    exits={EXIT_NO: "a problem was found"},
)
@click.option("--quick", is_flag=True, help="Only the workspace, without OpenClaw, in less than a second.")
@click.option("--canary", is_flag=True, help="Run one real turn of the agent, which calls the model once.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--names", is_flag=True, help="List what NAME can be.")
@click.argument("name", required=False, shell_complete=_complete)
def doctor_command(session: Session, name: str | None, quick: bool, canary: bool, strict: bool, names: bool) -> int:
    """Diagnose machine, OpenClaw and workspace, with a fix for each.

    With NAME it explains that instead, and what to do: an alarm, a finding, a rule, a kind of wait or an exit code, as
    `status`, `why --json`, errors and this command (in brackets) print them.

    Takes 10 to 20 seconds, changes nothing, and also works outside a workspace. The gateway plugin, if installed, is
    sent a message that it must refuse.

    --quick checks only the workspace: ownership, permissions, directories, links, configuration, keys, database,
    leftovers.

    --canary also runs one harmless turn of the agent and, with the plugin, sends a message to the agent's own mailbox,
    which is archived without effect.
    """
    from mailboxd.operate.doctor.target import find_workspace, target_at

    if (name or names) and (quick or canary or strict or (name and names)):
        raise click.UsageError("NAME and --names explain, and diagnose nothing: leave the other options out")
    if name or names:
        from mailboxd.cli.commands import explain

        explain.names(session) if name is None else explain.show(session, name)
        return EXIT_OK
    if quick and canary:
        raise click.UsageError("--quick runs no --canary")
    place = (session.workspace(), "") if quick else find_workspace(Path.cwd(), session.path)
    target = target_at(*place, os.environ)
    results = examine(session, target, canary=canary, local=quick)
    status = conclude(session, str(target.ws.root) if target.ws is not None else None, results, strict=strict)
    return EXIT_CONFIG if quick and target.settings.problem else status


def examine(session: Session, target: Target, *, canary: bool, local: bool = False) -> Results:
    """All results about the target, which is closed then; displayed as well, unless JSON was requested."""
    with closing(target):
        return _examine(session, target, canary=canary, local=local)


def _examine(session: Session, target: Target, *, canary: bool, local: bool) -> Results:
    from mailboxd.operate.doctor import diagnose

    facts = diagnose.collect(target, os.environ, session.clock, checking, local=local)
    checking("")
    results = [(group, _pasted(session, result)) for group, result in diagnose.judge(facts)]
    if not session.as_json:
        show(results)
    if canary:
        found = _canary(session, target, facts, results)
        canary_results = [("canary", _pasted(session, diagnose.as_configured(facts, result))) for result in found]
        results += canary_results
        if not session.as_json:
            show(canary_results)
    return results


def _pasted(session: Session, result: CheckResult) -> CheckResult:
    return replace(result, fixes=tuple(map(session.runnable, result.fixes)))


def _canary(session: Session, target: Target, facts: Facts, results: Results) -> Iterable[CheckResult]:
    from mailboxd.operate.doctor.agent import run_canary
    from mailboxd.operate.doctor.facts import error, note

    if target.ws is None or not target.settings.agent:
        return [error("canary-turn", "no workspace, so no agent to run", "mailboxd -w DIRECTORY doctor")]
    if any(result.level == "error" for group, result in results if group not in ("workspace", "configuration")):
        return [note("canary-turn", "no turn was run: fix the errors above first", "mailboxd doctor")]
    session.tell(f"canary: running one real turn of agent {target.settings.agent}; it calls the model once", err=True)
    plugin = facts.plugin is not None and facts.plugin.installed and not facts.plugin.problem
    running = facts.daemon is not None and facts.daemon.pid is not None
    return run_canary(target, session.clock, session.pause, plugin=plugin, daemon=running)


# Output of `doctor`

_MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "note": ("·", None), "ok": ("✓", "green")}
_TITLES = {
    "configuration": "the configuration",
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
    levels = {level: counts[level] for level in _MARKS}
    totals = [f"{count} {level}{'s' * (count != 1)}" for level, count in levels.items() if count and level != "ok"]
    lines = ["what a [name] means and what to do: `mailboxd doctor NAME`", ", ".join(totals)]
    session.answer(
        {"workspace": workspace, "healthy": not bad, "counts": levels, "findings": as_json(results)},
        "\n".join(lines) if totals else "no problems found",
    )
    return EXIT_NO if bad else EXIT_OK


def show(results: Results) -> None:
    """Print each result under the title of its group, and each fix on its own line."""
    last = ""
    for group, result in results:
        if group != last:
            say(_TITLES[group])
            last = group
        mark, colour = _MARKS[result.level]
        sign = colored(mark, colour)
        named = "" if result.level == "ok" else f" [{result.id}]"
        text = " ".join(for_terminal(result.text + named).split())
        lines = textwrap.wrap(text, columns() - 4, break_on_hyphens=False)
        say(f"  {sign} " + "\n    ".join(lines))
        for fix in result.fixes:
            say(f"    -> {for_terminal(fix)}")  # never wrapped: it is to be copied
    say()


def as_json(results: Results) -> list[dict[str, Any]]:
    """The results for `--json`."""
    return [{"group": group, **asdict(result)} for group, result in results]
