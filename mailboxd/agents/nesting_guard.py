"""Are we inside work that was given to an agent? A module of its own: the program of a turn asks too and must be fast.

OpenClaw marks the shells of its agents. What mailboxd starts for work that agents had a hand in (harnesses, checks,
actions) it marks itself: a script that an agent wrote must not act as the operator because the daemon ran it.
"""

from __future__ import annotations

from collections.abc import Mapping

MARK = "MAILBOXD_INSIDE"
_PERSONS_OWN = "tui-local"
"""The one value of OPENCLAW_SHELL that marks a shell of a person's: that of OpenClaw's terminal interface."""


def inside_agent(environ: Mapping[str, str]) -> bool:
    """Whether we were started from within such work, where nobody calls agents, decides or gives orders.

    The marks are never stripped. Whoever strips them himself is not kept from anything: see docs/security.md.
    """
    shell = environ.get("OPENCLAW_SHELL", "")
    return shell not in ("", _PERSONS_OWN) or environ.get("OPENCLAW_SUBAGENT_EXEC") == "1" or bool(environ.get(MARK))


def marked(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that runs within such work."""
    return {**environ, MARK: "1"}
