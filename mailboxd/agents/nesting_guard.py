"""Detect whether this process runs inside an agent's work, where it must not act as the operator.

OpenClaw marks the shells of its agents. mailboxd marks the harnesses, checks and actions that it starts, so that a
script written by an agent does not get an operator's rights because the daemon ran it.
"""

from __future__ import annotations

from collections.abc import Mapping

MARK = "MAILBOXD_INSIDE"
_TERMINAL_UI = "tui-local"
"""The value of OPENCLAW_SHELL in OpenClaw's terminal interface, a person's shell."""


def inside_agent(environ: Mapping[str, str]) -> bool:
    """Whether this process was started inside an agent's work. Removing the marks is possible: see docs/security.md."""
    shell = environ.get("OPENCLAW_SHELL", "")
    return shell not in ("", _TERMINAL_UI) or environ.get("OPENCLAW_SUBAGENT_EXEC") == "1" or bool(environ.get(MARK))


def marked(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with the mark, for a program that runs an agent's work."""
    return {**environ, MARK: "1"}
