"""Whether a workspace is where OpenClaw runs its agent.

A copy, or one that was moved elsewhere, would do another's work: mail and turns of an agent go to the directory that
OpenClaw has for it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mailboxd.errors import MailboxdError
from mailboxd.formats import config
from mailboxd.formats.mailbox.layout import Workspace


@dataclass(frozen=True, slots=True)
class Misplaced:
    """What is wrong, in a sentence, and the command that mends it, which runs as printed.

    A daemon's health has only the sentence, since it is cut after a while; doctor prints both.
    """

    text: str
    command: str


def misplaced(root: Path, agent: str, homes: Mapping[str, str], entry: str = "") -> Misplaced | None:
    """Why the workspace at `root` must not work for `agent`; None if it may, or OpenClaw names no place for it.

    `homes`: the workspace of each agent, as OpenClaw lists them. `entry`: the agent's path in OpenClaw's configuration.
    """
    here, home = str(root), next((home for name, home in homes.items() if name.lower() == agent.lower()), "")
    if not home.startswith("/") or _same(home, here):
        return None
    text = f"OpenClaw runs {agent} in {home}, this workspace is {here}"
    other, there = next((name for name, place in homes.items() if _same(place, here)), ""), _agent_at(home)
    if other and there.lower() == other.lower():
        said = f"{text}, and {there}'s is there: they were exchanged (stop both daemons before you move them back)"
        return Misplaced(said, _exchange(here, home))
    if other:
        return Misplaced(f"{text}, and this directory is {other}'s", _move(here, home, bool(there)))
    if there.lower() == agent.lower():
        said = f"{text}, a copy of it, which does no work (stop this daemon, and remove the copy)"
        return Misplaced(said, shlex.join(["mailboxd", "-w", home, "run"]))
    path = entry or f"agents.entries.{agent}"
    return Misplaced(text, shlex.join(["openclaw", "config", "set", f"{path}.workspace", here]))


def _same(one: str, other: str) -> bool:
    return bool(one) and os.path.realpath(one) == os.path.realpath(other)


def _agent_at(home: str) -> str:
    """The agent whose workspace of mailboxd is in this directory; empty if there is none."""
    try:
        return config.load(Workspace(Path(home)).config).agent
    except MailboxdError:
        return ""


def _exchange(one: str, other: str) -> str:
    """The command that puts two directories into each other's place; the daemons have to be stopped."""
    one, other, aside = (shlex.quote(path) for path in (one, other, f"{other}.aside"))
    return f"mv {one} {aside} && mv {other} {one} && mv {aside} {other}"


def _move(here: str, home: str, is_taken: bool) -> str:
    if is_taken:  # by a third one: who belongs where has to be looked up
        return "openclaw agents list"
    parts = " ".join(shlex.quote(f"{here}/{name}") for name in ("mailbox", "tasks", ".mailboxd"))
    return f"mkdir -p {shlex.quote(home)} && mv {parts} {shlex.quote(home)}/"
