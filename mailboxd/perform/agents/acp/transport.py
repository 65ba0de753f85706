"""The daemon's side of a turn by a harness: its program, directory, environment and artifacts."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mailboxd.core.json_codec import to_json
from mailboxd.core.outcomes import Failed, Made, Outcome, Succeeded, Unknown
from mailboxd.errors import ConfigError
from mailboxd.host.pip_extras import to_add
from mailboxd.perform.agents.acp import turn_files
from mailboxd.perform.agents.acp.turn_files import TurnRequest
from mailboxd.perform.agents.alive import survivors
from mailboxd.perform.agents.call_dir import Exit
from mailboxd.perform.agents.json_output import text_at
from mailboxd.perform.agents.outcome import classify

_ENVIRONMENT = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
_MOST_SHOWN = 100


def require_extra() -> None:
    """Raises ConfigError if the ACP library is not installed."""
    if find_spec("acp") is None:
        raise ConfigError(f"acp.harnesses names a harness, but the ACP library is not installed: run `{to_add('acp')}`")


@dataclass(frozen=True, slots=True)
class HarnessInfo:
    """What a harness reports about itself; `problem` says why it cannot be used."""

    name: str
    """As configured."""
    problem: str = ""
    title: str = ""
    version: str = ""
    loads: bool = False
    """It can load a session, so it can be asked about an interrupted turn."""


def environment(environ: Mapping[str, str], extra: Iterable[str] = ()) -> dict[str, str]:
    """The variables of `environ` that a harness may see: a few, and those its configuration names."""
    return {name: environ[name] for name in (*_ENVIRONMENT, *extra) if name in environ}


def working_directory(root: Path, cwd: str) -> str:
    """The real path of a harness's directory. Raises OSError if it is missing or outside the workspace."""
    real = os.path.realpath(root / cwd, strict=True)
    if not Path(real).is_relative_to(root):
        raise NotADirectoryError(0, f"{cwd} is outside the workspace")
    if not Path(real).is_dir():
        raise NotADirectoryError(0, f"{cwd} is not a directory")
    return real


def instructions(request: TurnRequest, harness: str) -> str:
    """The instructions that precede the task."""
    given = ", ".join(request.capabilities) or "nothing"
    return f"""
# Where you work

You are the harness {harness}. This turn is task_id {request.task_id}, attempt_id {request.attempt_id}.

- Your directory is {request.cwd}. Change nothing outside it.
- Without approval you may: {given}. Anything else waits for approval, which can take long; avoid it if you can.
- Only the text after your last tool call is your answer.
"""


def turn_argv(folder: Path) -> tuple[str, ...]:
    """The program that runs the request in the call's directory."""
    # -P: the working directory is the agent's, and nothing must be imported from it
    return (sys.executable, "-P", "-m", "mailboxd.perform.agents.acp", "--order", str(folder / turn_files.REQUEST))


def turn_request(request: TurnRequest) -> bytes:
    """The content of the request's file."""
    return json.dumps(to_json(request)).encode()


def artifacts(folder: Path) -> tuple[Made, ...]:
    """The files a turn changed, and the permissions it was refused."""
    found = turn_files.read_note(folder, turn_files.CHANGES) or {}
    files, refused = _lines(found.get("files")), _lines(found.get("refused"))
    left = []
    if files:
        shown = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
        left.append(Made("diff", text_at(found, "diff") or "\n".join(files), f"{len(files)} files changed: {shown}"))
    if refused:
        left.append(Made("other", "\n".join(refused), f"{len(refused)} permissions were refused"))
    return tuple(left)


def _lines(value: object) -> list[str]:
    return [text_at({"line": item}, "line") for item in value] if isinstance(value, list) else []


# Tracking about an interrupted turn

QUESTION = """\
Your last turn in this session was interrupted, and its outcome is unknown. What happened?

Do nothing now: read nothing, change nothing, run nothing; every request for permission will be refused.

- If the work was finished, answer with its result, in the format requested then.
- Otherwise answer with the line `NOT FINISHED`, and below it what was done and what was not.
"""
_NOT_FINISHED = "NOT FINISHED"


def resumable_session(folder: Path) -> str | None:
    """The session of a call, if it can be loaded again."""
    found = turn_files.read_note(folder, turn_files.SESSION) or {}
    return text_at(found, "session") or None if found.get("loads") is True else None


def recovered_outcome(exit_: Exit, lost: str) -> Outcome:
    """The outcome of an interrupted turn, as its harness reports it. `lost` says how it was lost."""
    outcome = classify(exit_)
    if not isinstance(outcome, Succeeded):
        return Unknown(f"{lost}; asked about it, the harness could not tell", looked_up=True)
    if outcome.text.lstrip("`*# ").startswith(_NOT_FINISHED):
        return Failed(
            f"{lost}. The harness reports: {outcome.text}", usage=outcome.usage, session_ref=outcome.session_ref
        )
    return outcome


def kill_leftover(folder: Path) -> int:
    """Kill the harness of a call whose program has ended; returns the number of processes.

    A forged harness.json can only hit processes of this user, which its author could kill anyway.
    """
    left = survivors(turn_files.read_note(folder, turn_files.HARNESS) or {})
    for pid in left:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(left)
