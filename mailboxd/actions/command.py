"""Running one program for an action: words, no shell, a session of its own, until its time is over."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mailboxd.actions.result import End, Impossible, NotNow, Setting, printed, require_possible
from mailboxd.agents.call_dir import CALL, cut_output, output_size, world, written
from mailboxd.agents.openclaw import child_environment
from mailboxd.agents.process import Child, adopt, kill_writers, spawn
from mailboxd.core.approvals import Performed
from mailboxd.core.sanitize import first_line
from mailboxd.errors import WorldError
from mailboxd.mailbox.files import directory

GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""
_LOOK_MS = 250


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that ran. `rc` is negative for a signal; `stopped` says why we ended it."""

    rc: int | None
    stopped: str
    stdout: bytes
    stderr: bytes

    secrets: Mapping[str, str] = field(default_factory=dict)

    @property
    def output(self) -> str:
        return printed(self.stdout, self.stderr, self.secrets)


def parts_of(path: str) -> list[str]:
    """The names of a path within the workspace. Raises Impossible if it leads elsewhere."""
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") for part in parts) or "\0" in path:
        raise Impossible(f"{path} is not a plain path: write it without . and ..")
    return parts


@contextmanager
def standing(root: Path, cwd: str) -> Iterator[str]:
    """The directory a command runs in, held open: whatever becomes of its path meanwhile. Raises Impossible."""
    if cwd.startswith("/"):
        yield cwd
        return
    names = parts_of(cwd)
    with ExitStack() as held:
        try:
            fd = held.enter_context(directory(root, *names))
        except OSError as error:
            require_possible(cwd or str(root), error)
            raise Impossible(f"{cwd or root} is no directory of the workspace: {error.strerror}") from error
        yield f"/proc/self/fd/{fd}"


def run(setting: Setting, place: Path, argv: Sequence[str], cwd: str, env: Mapping[str, str], seconds: float) -> Ran:
    """Run it to its end; its files are in the directory `place`, which is new.

    Raises NotStarted, Impossible and NotNow (then nothing has run), another WorldError.
    """
    child = None
    try:
        with standing(setting.root, cwd) as here:
            child = spawn(place, argv, env, here)
        stopped = _wait(child, setting, seconds)
    except BaseException as why:
        # a signal may come when it has begun and we do not hold it yet: then it is found by its lock
        if isinstance(why, WorldError) and child is None and not os.path.lexists(place / CALL):
            raise NotNow(str(why)) from why
        if begun := child or (None if isinstance(why, Exception) else adopt(place)):
            _end(begun)
        raise
    exit_ = child.reap(0)
    if output_size(place) > setting.output_cap:
        kill_writers(place)  # what has left its process group
        cut_output(place, setting.output_cap)
    with world(place):
        stdout, _ = written(place, "stdout", setting.output_cap)
        stderr, _ = written(place, "stderr", setting.output_cap)
    return Ran(exit_.rc if exit_ else None, stopped, stdout, stderr)


def _wait(child: Child, setting: Setting, seconds: float) -> str:
    """Wait for the end; why it was stopped, if it was."""
    poll = select.poll()
    poll.register(child.pidfd, select.POLLIN)
    deadline, kill_at, stopped = setting.monotonic() + seconds, None, ""
    while not poll.poll(_LOOK_MS):
        now = setting.monotonic()
        is_too_long = output_size(child.directory) > setting.output_cap
        if is_too_long:
            cut_output(child.directory, setting.output_cap)
        if kill_at is not None:
            if now >= kill_at:
                child.kill()
            continue
        if now >= deadline:
            stopped = f"it did not end within {seconds:.0f} s"
        elif is_too_long:
            stopped = f"it wrote more than {setting.output_cap} bytes"
        if stopped:
            child.terminate()
            kill_at = now + GRACE
    return stopped


def _end(child: Child) -> None:
    """We are told to stop: so is the program, with all of its group."""
    poll = select.poll()
    poll.register(child.pidfd, select.POLLIN)
    child.terminate()
    if not poll.poll(int(GRACE * 1000)):
        child.kill()
        poll.poll(int(GRACE * 1000))
    with suppress(WorldError):
        child.reap(0)


def judged(ran: Ran) -> End:
    """What its end says: an exit status of its own is a proof, a signal is none."""
    last = next((line for line in map(first_line, reversed(ran.output.splitlines())) if line), "")
    if ran.stopped:
        return End(Performed.UNKNOWN, _said(ran.stopped, last), ran.output)
    if ran.rc == 0:
        return End(Performed.DONE, _said("exit status 0", last), ran.output)
    if ran.rc is None or ran.rc < 0:
        return End(Performed.UNKNOWN, _said(f"killed by signal {-(ran.rc or 0)}", last), ran.output)
    return End(Performed.FAILED, _said(f"exit status {ran.rc}", last), ran.output)


def _said(how: str, last: str) -> str:
    return f"{how}: {last}" if last else how


# ---------------------------------------------------------------------------------------------------------------------
# What the daemon hands to its runner: the environment of the effect, as one variable.
#
# Lobster's shells are login shells, which set PATH and whatever else a profile says. This they leave alone.

NAME = "MAILBOXD_EFFECT_ENVIRONMENT"


def handed_over(setting: Setting) -> dict[str, str]:
    """All that an effect may be given of the daemon's environment; which of it one is given, is decided there."""
    environ = setting.environ
    asked = {name: environ[name] for name in setting.rules.environment if name in environ}
    return {NAME: json.dumps(child_environment(environ, setting.openclaw_environment) | asked)}


def taken_over(environ: Mapping[str, str]) -> dict[str, str]:
    """What was handed over. Raises ValueError if it is not what we write."""
    taken = json.loads(environ.get(NAME, "{}"))
    if not isinstance(taken, dict) or not all(isinstance(value, str) for value in taken.values()):
        raise ValueError(f"{NAME} holds no variables")
    return taken
