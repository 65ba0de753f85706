"""Everything that can go wrong, named by whose fault it is.

Three grades, as Postfix has them: the world's fault (stop, be restarted), the operator's
(stop, be mended), a peer's (set the one message aside, carry on). What is none of these is our bug.
An agent that fails is a value (`core.inputs.Outcome`), never an exception.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

EXIT_OK = 0
EXIT_NO = 1
EXIT_USAGE = 2
EXIT_BAD_MESSAGE = 65
EXIT_UNAVAILABLE = 69
EXIT_BUG = 70
EXIT_LOCKED = 73
EXIT_TRY_AGAIN = 75
EXIT_CONFIG = 78


class MailboxdError(Exception):
    """Base of all errors that mailboxd raises on purpose."""

    exit_code = EXIT_BUG


@dataclass
class MessageError(MailboxdError):
    """A file that somebody sent cannot be accepted. It is kept in rejected/ with this reason.

    `rule` is a stable, documented slug (`missing-field`, `alias`, ...); `line` counts from 1 in the file.
    """

    rule: str
    problem: str
    hint: str = ""
    path: str = ""
    line: int | None = None
    field: str | None = None

    exit_code = EXIT_BAD_MESSAGE

    def __str__(self) -> str:
        place = self.path or "message"
        if self.line is not None:
            place += f":{self.line}"
        if self.field is not None:
            place += f": {self.field}"
        text = f"{place}: {self.problem} ({self.rule})"
        return f"{text}. {self.hint}" if self.hint else text


@dataclass
class PlanError(MailboxdError):
    """A plan cannot be admitted: a cycle, an unknown dependency, too many children ... Nothing of it is taken."""

    rule: str
    problem: str
    hint: str = ""

    exit_code = EXIT_BAD_MESSAGE

    def __str__(self) -> str:
        text = f"{self.problem} ({self.rule})"
        return f"{text}. {self.hint}" if self.hint else text


@dataclass
class Refused(MailboxdError):
    """The state does not allow what was asked for. Recorded, no effect."""

    rule: str
    problem: str
    hint: str = ""

    exit_code = EXIT_NO

    def __str__(self) -> str:
        text = f"{self.problem} ({self.rule})"
        return f"{text}. {self.hint}" if self.hint else text


class ConfigError(MailboxdError):
    """The operator's configuration is wrong. The text names the file, the key and the remedy."""

    exit_code = EXIT_CONFIG


class WorldError(MailboxdError):
    """Disk, database or operating system do not do what they must. The service restarts and recovers."""

    exit_code = EXIT_TRY_AGAIN


class StoreError(WorldError):
    """The database cannot be read or written: full, locked, damaged. What was not committed has not happened.

    Nothing goes on after it: whoever catches a WorldError raises this one again.
    """


class NoRoomError(StoreError):
    """There is no room for the database: the disk, its inodes, a quota or a limit. It can be gone on with later."""


class BusyError(StoreError):
    """Another process keeps the database locked. It can be gone on with later."""


class DamagedError(StoreError):
    """The database is damaged, gone, or another workspace's: a person has to mend it, and nothing is made anew."""


class OutdatedError(DamagedError):
    """The database knows less than the files around it, or its log was changed: a person decides, no restart helps."""

    exit_code = EXIT_CONFIG


class FailingDiskError(StoreError):
    """The disk failed (EIO). What a later fsync says proves nothing: nothing is tried again, the process must end."""


def world_error(text: str, cause: OSError) -> WorldError:
    """What the operating system refused, by whether anything may be tried again."""
    return FailingDiskError(text) if cause.errno == errno.EIO else WorldError(text)


NOT_NOW = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What the machine refuses for lack of something: the same may be granted a moment later."""


def shortage(error: BaseException) -> str:
    """Why the machine lets this process do nothing more: no memory, thread, descriptor. Empty if that is not wrong."""
    short = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in NOT_NOW)
    short = short or (isinstance(error, RuntimeError) and str(error) == "can't start new thread")
    # what the loader says of a library that there is no room for
    short = short or (isinstance(error, ImportError) and any(word in str(error) for word in _NOT_LOADED))
    if not short:
        return ""
    return (
        f"this process gets no more memory, threads or file descriptors ({str(error) or type(error).__name__}). Raise "
        "the limit (`ulimit -a`; MemoryMax=, TasksMax=, LimitNOFILE=), or let something else end"
    )


_NOT_LOADED = ("cannot allocate memory", "Cannot allocate memory", "failed to map segment")


def require_seen(what: str, problem: OSError) -> None:
    """Raise WorldError where the machine could not even look: nobody's work may be judged by that."""
    if problem.errno in NOT_NOW or problem.errno == errno.EIO:
        raise world_error(f"{what}: {problem.strerror}", problem) from problem


class LockedError(WorldError):
    """Another daemon holds this workspace."""

    exit_code = EXIT_LOCKED


class UnavailableError(MailboxdError):
    """Something that has to be there is not: no workspace, no such task, no program."""

    exit_code = EXIT_UNAVAILABLE
