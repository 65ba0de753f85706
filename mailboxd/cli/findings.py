"""What `doctor` and `check` found, for people and as JSON, and how they exit."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.session import Session
from mailboxd.cli.text import columns, plain, say, to_json
from mailboxd.errors import EXIT_NO, EXIT_OK

if TYPE_CHECKING:
    from mailboxd.doctor.finding import Finding

    Judged = list[tuple[str, Finding]]

_MARKS = {"ok": ("✓", "green"), "note": ("·", None), "warning": ("!", "yellow"), "error": ("✗", "red")}
_TITLES = {
    "machine": "this machine",
    "openclaw": "OpenClaw",
    "agent": "the agent",
    "workspace": "the workspace",
    "unknown": "not known",
    "canary": "canary",
}


def conclude(session: Session, workspace: str | None, found: Judged, *, strict: bool) -> int:
    """Say the sum, or all of it as JSON; the exit status."""
    counts = Counter(str(finding.level) for _, finding in found)
    bad = counts["error"] + (counts["warning"] if strict else 0)
    if session.as_json:
        shown = as_json(found)
        levels = {level: counts[level] for level in _MARKS}
        say(to_json({"workspace": workspace, "healthy": not bad, "counts": levels, "findings": shown}))
    else:
        if counts.keys() - {"ok"}:
            say("what each [name] means, and what to do: docs/operations.md#name")
        say(_sum(counts))
    return EXIT_NO if bad else EXIT_OK


def show(found: Judged) -> None:
    """Every finding under the title of its group, each mend on a line of its own."""
    last = ""
    for group, finding in found:
        if group != last:
            say(_TITLES[group])
            last = group
        mark, colour = _MARKS[finding.level]
        sign = click.style(mark, fg=colour) if colour else mark
        named = "" if finding.level == "ok" else f" [{finding.id}]"
        text = " ".join(plain(finding.text + named).split())
        lines = textwrap.wrap(text, columns() - 4, break_on_hyphens=False)
        say(f"  {sign} " + "\n    ".join(lines))
        for mend in finding.mends:
            say(f"    -> {plain(mend)}")  # never broken into lines: it is there to be copied
    say()


def as_json(found: Judged) -> list[dict[str, Any]]:
    """The findings as JSON says them."""
    return [
        {"group": group, "id": one.id, "level": one.level, "text": one.text, "mends": list(one.mends)}
        for group, one in found
    ]


def _sum(counts: Counter[str]) -> str:
    told = [
        f"{counts[level]} {level}{'' if counts[level] == 1 else 's'}"
        for level in ("error", "warning", "note")
        if counts[level]
    ]
    return ", ".join(told) if told else "all is well"
