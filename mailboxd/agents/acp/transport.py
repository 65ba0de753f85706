"""The daemon's side of a turn by a harness: which program runs it, in which directory, with what in its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from mailboxd.agents.acp import turn_files
from mailboxd.agents.acp.turn_files import Order
from mailboxd.agents.call_dir import Exit
from mailboxd.agents.json_output import text_at
from mailboxd.agents.outcome import classify
from mailboxd.core.json_codec import to_json
from mailboxd.core.outcomes import Failed, Made, Outcome, Succeeded, Unknown
from mailboxd.errors import ConfigError

_ENVIRONMENT = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
_MOST_SHOWN = 100


def require_extra() -> None:
    """Raises ConfigError if what speaks ACP is not installed."""
    if find_spec("acp") is None:
        raise ConfigError(
            "acp.harnesses names a harness, and what speaks ACP is not installed: run `pip install 'mailboxd[acp]'`, "
            "or give the harness `backend: acpx`"
        )


def environment(environ: Mapping[str, str], extra: Iterable[str] = ()) -> dict[str, str]:
    """What of `environ` a harness may see: little, and what its configuration names."""
    return {name: environ[name] for name in (*_ENVIRONMENT, *extra) if name in environ}


def directory(root: Path, cwd: str) -> str:
    """The directory that a harness works in, without links. Raises OSError if there is none, or it is elsewhere."""
    real = os.path.realpath(root / cwd, strict=True)
    if not Path(real).is_relative_to(root):
        raise NotADirectoryError(0, f"{cwd} leads out of the workspace")
    if not Path(real).is_dir():
        raise NotADirectoryError(0, f"{cwd} is no directory")
    return real


def place(wanted: Order, harness: str) -> str:
    """What a harness is told beside its task."""
    given = ", ".join(wanted.capabilities) or "nothing"
    beyond = "is refused" if wanted.backend == "acpx" else "waits until a person has decided, which can take long"
    return f"""
# Where you work

You are the harness {harness}. This turn is task_id {wanted.task_id}, attempt_id {wanted.attempt_id}.

- Your directory is {wanted.cwd}. Leave everything outside of it alone.
- You may do without asking: {given}. What needs more {beyond}: do without it where you can.
- What you say after your last tool call is taken as your answer, and nothing before it.
"""


def program(folder: Path, wanted: Order) -> tuple[str, ...]:
    """The program of a turn, whose order is put into the call's directory. Raises OSError."""
    turn_files.write(folder, turn_files.NAME, to_json(wanted))
    # -P: the directory that we run in is the agent's, and must not be a place to import from.
    return (sys.executable, "-P", "-m", "mailboxd.agents.acp", "--order", str(folder / turn_files.NAME))


def made(folder: Path) -> tuple[Made, ...]:
    """What a turn has left in the directory of its harness, and what it was refused."""
    found = turn_files.read_note(folder, turn_files.CHANGES) or {}
    files, refused = _lines(found.get("files")), _lines(found.get("refused"))
    left = []
    if files:
        shown = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
        left.append(Made("diff", text_at(found, "diff") or "\n".join(files), f"{len(files)} files changed: {shown}"))
    if refused:
        left.append(Made("other", "\n".join(refused), f"{len(refused)} permissions were not given"))
    return tuple(left)


def _lines(value: object) -> list[str]:
    return [text_at({"line": item}, "line") for item in value] if isinstance(value, list) else []


# ---------------------------------------------------------------- asking what became of a turn

QUESTION = """\
Your last turn in this session was cut off, and nobody has seen its end. What became of it?

Do nothing now: read nothing, change nothing, run nothing; whatever you ask for will be refused.

- If the work was finished when you were cut off, answer with its result, in the form that you were asked for then.
- Else answer with the line `NOT FINISHED`, and below it what was done, and what was not.
"""
_NOT_FINISHED = "NOT FINISHED"


def session(folder: Path) -> str | None:
    """The session of a call that can be loaded again; None if there is none."""
    found = turn_files.read_note(folder, turn_files.SESSION) or {}
    return text_at(found, "session") or None if found.get("loads") is True else None


def told(exit_: Exit, lost: str) -> Outcome:
    """What became of a turn, as its harness says; it cannot be asked twice. `lost`: how it was lost."""
    outcome = classify(exit_)
    if not isinstance(outcome, Succeeded):
        return Unknown(f"{lost}; asked again, its harness could not say", looked_up=True)
    if outcome.text.lstrip("`*# ").startswith(_NOT_FINISHED):
        return Failed(f"{lost}. Its harness says: {outcome.text}", usage=outcome.usage, session_ref=outcome.session_ref)
    return outcome
