"""Checks of the machine: Python, memory, clock."""

from __future__ import annotations

from collections.abc import Iterator

from mailboxd.ledger.integrity import DatabaseCheck
from mailboxd.operate.doctor.facts import CheckResult, Facts, edit, error, ok, warning
from mailboxd.perform.agents.openclaw_versions import shown

MIN_PYTHON = (3, 11, 0)
_MB = 1_000_000


def python(facts: Facts) -> Iterator[CheckResult]:
    found = shown(facts.python)
    if facts.python < MIN_PYTHON:
        wanted = shown(MIN_PYTHON)
        yield error("python", f"Python {found} is too old; {wanted} is needed", "uv python install 3.13")
    else:
        yield ok("python", f"Python {found}")


def inside_agent(facts: Facts) -> Iterator[CheckResult]:
    if facts.inside_agent:
        yield error(
            "inside-agent",
            "this is a shell inside an agent's turn (OPENCLAW_SHELL): OpenClaw runs no agents from here, and the "
            "daemon refuses to start",
            "mailboxd doctor  # in your own shell; do not unset the variable",
        )


def memory(facts: Facts, free: int) -> Iterator[CheckResult]:
    one, turns = facts.settings.call_bytes, facts.settings.turns
    room = free // one
    available = f"{free // _MB:,} MB of memory are available"
    if room < 1:
        text = f"{available}; one turn needs {one // _MB} MB, so none starts"
        yield error("memory", text, "ps -eo rss,pid,args --sort -rss | head")
    elif room < turns:
        text = f"{available}: room for {room} of the {turns} turns that limits.turns allows; the others wait"
        yield warning("memory", text, edit(facts.settings.path, f"limits.turns: {room}"))
    else:
        yield ok("memory", f"{available}: {turns} concurrent turns need {turns * one // _MB:,} MB")


def clock(facts: Facts, database: DatabaseCheck) -> Iterator[CheckResult]:
    if facts.now and database.latest > facts.now:
        text = (
            f"the clock was set back: it is {facts.now}, the newest event is from {database.latest}; timers fire late"
        )
        yield warning("clock", text, "sudo timedatectl set-ntp true")
