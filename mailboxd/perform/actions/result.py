"""The context in which actions run, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mailboxd.core.approvals import Action, ActionRules, Performed, may_not_perform
from mailboxd.core.sanitize import first_line
from mailboxd.errors import NOT_NOW, MailboxdError, WorldError
from mailboxd.perform.agents.openclaw import mark_inside

REPORT = 16_384
"""Bytes kept of an output, from its end."""
_PLAIN = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")


class Impossible(MailboxdError):
    """An action cannot be performed as declared; the text says why, on one line. Nothing has happened."""


class NotNow(WorldError):
    """The machine is out of descriptors, memory or processes. Nothing has happened; the caller should retry."""


def raise_if_transient(what: str, problem: OSError) -> None:
    """Raise NotNow if `problem` is a shortage of resources, which says nothing about the action itself."""
    if problem.errno in NOT_NOW:
        raise NotNow(f"{what}: {problem.strerror}") from problem


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The outcome of an action: DONE, FAILED (it provably did not happen) or UNKNOWN."""

    state: Performed
    summary: str
    report: str = ""


@dataclass(frozen=True, slots=True)
class ActionContext:
    """The workspace, environment and limits with which actions are performed."""

    root: Path
    """The workspace."""
    environ: Mapping[str, str]
    """The daemon's environment, or the part of it that was passed to the runner."""
    monotonic: Callable[[], float]
    rules: ActionRules
    timeout: int = 300
    """Seconds; upper limit for each action."""
    openclaw: tuple[str, ...] = ("openclaw",)
    openclaw_environment: tuple[str, ...] = ()
    output_cap: int = 16_777_216
    """Bytes; a program that writes more is stopped."""

    def seconds(self, action: Action) -> int:
        """The action's timeout."""
        return min(action.timeout or self.timeout, self.timeout)

    def secrets(self, action: Action) -> dict[str, str]:
        """The environment variables that the action requests. Raises Impossible."""
        if (why := may_not_perform(self.rules, action)) is not None:
            raise Impossible(why)
        if missing := [name for name in action.env if name not in self.environ]:
            raise Impossible(f"the daemon does not have the environment variable {', '.join(missing)}")
        return {name: self.environ[name] for name in action.env}

    def variables(self, action: Action) -> dict[str, str]:
        """The complete environment of its command. Raises Impossible."""
        return mark_inside(plain_environment(self.environ) | self.secrets(action))


def plain_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that every program gets: the runner, Lobster, commands, checks."""
    return {name: environ[name] for name in _PLAIN if environ.get(name)}


def summary_of(how: str, output: str) -> str:
    """How a program ended, with the last line that has words of what it printed."""
    last = next(filter(None, map(first_line, reversed(output.splitlines()))), "")
    return f"{how}: {last}" if last else how


def redacted(text: str, secrets: Mapping[str, str]) -> str:
    """`text` with each secret replaced by its name."""
    for name, value in sorted(secrets.items(), key=lambda item: -len(item[1])):
        if value:
            text = text.replace(value, f"${{{name}}}")
    return text


def combined_output(stdout: bytes, stderr: bytes, secrets: Mapping[str, str]) -> str:
    """The ends of both outputs, with secrets replaced by their names.

    Replaced before cutting: half a value would not be recognized.
    """
    hidden = [redacted(raw.decode("utf-8", "surrogateescape"), secrets) for raw in (stdout, stderr) if raw.strip()]
    return "\n".join(tail(text.encode("utf-8", "surrogateescape")) for text in hidden)


def tail(raw: bytes) -> str:
    """The end of an output, as text without NUL. An output that was cut (`cut_output`) ends in NUL bytes."""
    return raw.rstrip(b"\0")[-REPORT:].decode("utf-8", "replace").replace("\0", "")
