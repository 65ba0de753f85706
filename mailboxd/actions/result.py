"""What performing an action needs, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mailboxd.agents.nesting_guard import marked
from mailboxd.core.approvals import Action, ActionRules, Performed, may_not_perform
from mailboxd.errors import NOT_NOW, MailboxdError, WorldError

REPORT = 16_384
"""Bytes of the end of an output that are kept."""
_PLAIN = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")


class Impossible(MailboxdError):
    """An action cannot be performed as it was declared; the text says why, on one line. Nothing has happened."""


class NotNow(WorldError):
    """The machine had no descriptor, no memory or no process to give, and nothing has happened: to be tried again."""


def require_possible(what: str, problem: OSError) -> None:
    """Raises NotNow where that is all that is wrong: no verdict about an action may come of it."""
    if problem.errno in NOT_NOW:
        raise NotNow(f"{what}: {problem.strerror}") from problem


@dataclass(frozen=True, slots=True)
class End:
    """How an action ended: DONE, FAILED (it provably did not happen) or UNKNOWN."""

    state: Performed
    summary: str
    report: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and with what actions are performed."""

    root: Path
    """The workspace."""
    environ: Mapping[str, str]
    """The daemon's own environment, or what it handed over of it."""
    monotonic: Callable[[], float]
    rules: ActionRules
    timeout: int = 300
    """Seconds, the most that one action may take."""
    openclaw: tuple[str, ...] = ("openclaw",)
    openclaw_environment: tuple[str, ...] = ()
    output_cap: int = 16_777_216
    """Bytes; what writes more is stopped."""

    def seconds(self, action: Action) -> int:
        """How long the action may take."""
        return min(action.timeout or self.timeout, self.timeout)

    def secrets(self, action: Action) -> dict[str, str]:
        """The variables that the action asks for by name. Raises Impossible."""
        if (why := may_not_perform(self.rules, action)) is not None:
            raise Impossible(why)
        if missing := [name for name in action.env if name not in self.environ]:
            raise Impossible(f"the daemon does not have the environment variable {', '.join(missing)}")
        return {name: self.environ[name] for name in action.env}

    def variables(self, action: Action) -> dict[str, str]:
        """The whole environment of its command. Raises Impossible."""
        plain = {name: self.environ[name] for name in _PLAIN if self.environ.get(name)}
        return marked(plain | self.secrets(action))


def redacted(text: str, secrets: Mapping[str, str]) -> str:
    """`text` with the names in the place of the values."""
    for name, value in sorted(secrets.items(), key=lambda item: -len(item[1])):
        if value:
            text = text.replace(value, f"${{{name}}}")
    return text


def printed(stdout: bytes, stderr: bytes, secrets: Mapping[str, str]) -> str:
    """The ends of both outputs, with the names of secrets in the place of their values.

    These go first: of a value that a cut goes through nothing could be found again.
    """
    hidden = [redacted(raw.decode("utf-8", "surrogateescape"), secrets) for raw in (stdout, stderr) if raw.strip()]
    return "\n".join(tail(text.encode("utf-8", "surrogateescape")) for text in hidden)


def tail(raw: bytes) -> str:
    """The end of an output, as text that a database takes. One that was too long ends in a hole (`cut_output`)."""
    return raw.rstrip(b"\0")[-REPORT:].decode("utf-8", "replace").replace("\0", "")
