"""Runs an action's program, its own command or `openclaw message send`, without a shell and in its own session."""

from __future__ import annotations

import json
import os
import re
import select
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd.core.approvals import Action, Performed
from mailboxd.core.sanitize import first_line
from mailboxd.errors import WorldError
from mailboxd.formats.mailbox.files import directory
from mailboxd.host.system import system
from mailboxd.perform.actions.result import (
    ActionContext,
    ActionResult,
    Impossible,
    NotNow,
    combined_output,
    raise_if_transient,
    summary_of,
)  # fmt: skip
from mailboxd.perform.agents.alive import kill_writers
from mailboxd.perform.agents.call_dir import CALL, cut_output, output_size, world, written
from mailboxd.perform.agents.openclaw import child_environment
from mailboxd.perform.agents.process import Child, adopt, spawn

GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""
_POLL_MS = 250


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """A program that has ended. `rc` is negative for a signal; `stopped` is why mailboxd stopped it, or empty."""

    rc: int | None
    stopped: str
    stdout: bytes
    stderr: bytes
    secrets: Mapping[str, str] = field(default_factory=dict)

    @property
    def output(self) -> str:
        return combined_output(self.stdout, self.stderr, self.secrets)


def parts_of(path: str) -> list[str]:
    """The components of a path. Raises Impossible if it has `.`, `..` or NUL."""
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") for part in parts) or "\0" in path:
        raise Impossible(f"{path} is not a plain path: write it without . and ..")
    return parts


@contextmanager
def working_directory(root: Path, cwd: str) -> Iterator[str]:
    """The directory in which a command runs, kept open so that it cannot be exchanged meanwhile. Raises Impossible."""
    if cwd.startswith("/"):
        yield cwd
        return
    names = parts_of(cwd)
    with ExitStack() as held:
        try:
            fd = held.enter_context(directory(root, *names))
        except OSError as error:
            raise_if_transient(cwd or str(root), error)
            raise Impossible(f"{cwd or root} is not a directory of the workspace: {error.strerror}") from error
        yield system.path_of(fd)


def run_program(
    context: ActionContext, call_dir: Path, argv: Sequence[str], cwd: str, env: Mapping[str, str], seconds: float
) -> ProgramResult:
    """Run a program to its end; its files are in the directory `call_dir`, which is new.

    Raises NotStarted, Impossible or NotNow if nothing ran, else WorldError.
    """
    child = None
    try:
        with working_directory(context.root, cwd) as here:
            child = spawn(call_dir, argv, env, here)
        stopped = _wait(child, context, seconds)
    except BaseException as why:
        # a signal may arrive before `spawn` returns: then the program is found by its lock
        if isinstance(why, WorldError) and child is None and not os.path.lexists(call_dir / CALL):
            raise NotNow(str(why)) from why
        if begun := child or (None if isinstance(why, Exception) else adopt(call_dir)):
            _end(begun)
        raise
    exit_ = child.reap(0)
    if output_size(call_dir) > context.output_cap:
        kill_writers(call_dir)  # processes that left its process group
        cut_output(call_dir, context.output_cap)
    with world(call_dir):
        stdout, *_ = written(call_dir, "stdout", context.output_cap)
        stderr, *_ = written(call_dir, "stderr", context.output_cap)
    return ProgramResult(exit_.rc if exit_ else None, stopped, stdout, stderr)


def _wait(child: Child, context: ActionContext, seconds: float) -> str:
    """Wait for its end; returns why it was stopped, or an empty text."""
    poll = select.poll()
    poll.register(child.pidfd, select.POLLIN)
    deadline, kill_at, stopped = context.monotonic() + seconds, None, ""
    while not poll.poll(_POLL_MS):
        now = context.monotonic()
        is_too_long = output_size(child.directory) > context.output_cap
        if is_too_long:
            cut_output(child.directory, context.output_cap)
        if kill_at is not None:
            if now >= kill_at:
                child.kill()
            continue
        if now >= deadline:
            stopped = f"it did not end within {seconds:.0f} s"
        elif is_too_long:
            stopped = f"it wrote more than {context.output_cap} bytes"
        if stopped:
            child.terminate()
            kill_at = now + GRACE
    return stopped


def _end(child: Child) -> None:
    """Stop the program and its process group, since this process was told to stop."""
    poll = select.poll()
    poll.register(child.pidfd, select.POLLIN)
    child.terminate()
    if not poll.poll(int(GRACE * 1000)):
        child.kill()
        poll.poll(int(GRACE * 1000))
    with suppress(WorldError):
        child.reap(0)


def command_result(ran: ProgramResult) -> ActionResult:
    """The result of a command: an exit status proves what happened, a signal does not."""
    state, how = Performed.UNKNOWN, ran.stopped
    if not how and (ran.rc is None or ran.rc < 0):
        how = f"killed by signal {-(ran.rc or 0)}"
    elif not how:
        state, how = Performed.FAILED if ran.rc else Performed.DONE, f"exit status {ran.rc}"
    return ActionResult(state, summary_of(how, ran.output), ran.output)


# The environment of the effect, passed from the daemon to its runner in one variable, since Lobster's shells are login
# shells, whose profiles change PATH and others.

ENVIRONMENT_VARIABLE = "MAILBOXD_EFFECT_ENVIRONMENT"


def export_environment(context: ActionContext) -> dict[str, str]:
    """All variables that an effect may get; the runner chooses those of its action."""
    environ = context.environ
    requested = {name: environ[name] for name in context.rules.environment if name in environ}
    return {ENVIRONMENT_VARIABLE: json.dumps(child_environment(environ, context.openclaw_environment) | requested)}


def import_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables from `export_environment`. Raises ValueError if they cannot be parsed."""
    variables = json.loads(environ.get(ENVIRONMENT_VARIABLE, "{}"))
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        raise ValueError(f"{ENVIRONMENT_VARIABLE} is not an object of texts")
    return variables


# Messages over a channel of OpenClaw, which cannot be asked later whether a message was sent, retries, and may queue a
# failed one. So only an error from before it contacts the channel proves that nothing was sent.

_NOTHING_SENT = re.compile(
    r"Gateway not reachable at \S+ \(ECONNREFUSED\)|Unknown channel |Unknown account |Channel is unavailable: "
    r"|send requires text |Action send requires a target"
)
"""How OpenClaw 2026.9.6 begins errors from before anything is sent."""
_ATTACHMENT = re.compile(r"^\W*MEDIA:", re.IGNORECASE | re.MULTILINE)
_DIRECTIVE = re.compile(r"\[\[\s*(?:audio_as_voice|reply_to|react)", re.IGNORECASE)


def message_problem(text: str) -> str | None:
    """Why OpenClaw would not send the text unchanged; None if it would."""
    if not text.strip():
        return "the message has no text"
    if "\0" in text:
        return "the message has a NUL byte"
    if "\\n" in text:
        return "the message has a backslash before an n, which OpenClaw sends as a line break; write the break itself"
    if _ATTACHMENT.search(text):
        return "a line of the message begins with MEDIA:, which OpenClaw treats as an attachment; rephrase it"
    if found := _DIRECTIVE.search(text):
        return f"the message has {found[0]}, which OpenClaw treats as a directive; rephrase it"
    return None


def message_argv(openclaw: tuple[str, ...], action: Action) -> tuple[str, ...]:
    """The command line. Values follow `=`, so that one beginning with a dash is not an option."""
    account = (f"--account={action.account}",) if action.account else ()
    to = (f"--channel={action.channel}", f"--target={action.target}", *account)
    return (*openclaw, "message", "send", *to, f"--message={action.text}", "--json")


def message_result(ran: ProgramResult) -> ActionResult:
    """The result of `openclaw message send`."""
    answer = _answer(ran.stdout)
    if ran.stopped:
        return ActionResult(Performed.UNKNOWN, ran.stopped, ran.output)
    if ran.rc == 0 and answer is not None and answer.get("ok") is not False:
        message_id = answer.get("messageId")
        return ActionResult(Performed.DONE, f"sent, as message {message_id}" if message_id else "sent", ran.output)
    error = answer.get("error") if answer is not None else None
    message = str(error.get("message", "")) if isinstance(error, dict) else ""
    if answer is not None and "sentBeforeError" not in answer and _NOTHING_SENT.match(message):
        return ActionResult(Performed.FAILED, f"not sent: {first_line(message)}", ran.output)
    how = first_line(message) or f"exit status {ran.rc}, and its answer cannot be parsed"
    return ActionResult(Performed.UNKNOWN, f"it may have been sent: {how}", ran.output)


def _answer(stdout: bytes) -> dict[str, object] | None:
    try:
        answer = json.loads(stdout)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
