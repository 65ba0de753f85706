"""All errors, named by whose fault they are.

As in Postfix: the world's (stop and be restarted), the operator's (stop until it is fixed), a peer's (set the one
message aside and continue). Anything else is a bug. A failed agent is a value (`core.outcomes.Outcome`), never an
exception.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass

EXIT_OK = 0
EXIT_NO = 1
EXIT_USAGE = 2
EXIT_WAITING_FOR_YOU = 3
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
    """A received file cannot be accepted. It is kept in rejected/ with this reason.

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


_MOST_HINT = 1_000
"""Bytes of the hint of several errors: it is one line in a log."""


@dataclass
class MessageErrors(MessageError):
    """Several errors of one text, in the order of their lines. It reads as the first one, with the others behind it."""

    all: tuple[MessageError, ...] = ()

    @classmethod
    def of(cls, errors: Sequence[MessageError]) -> MessageError:
        """The error of a text that has these: the only one as it is."""
        first, *others = errors
        if not others:
            return first
        hint, left = first.hint, len(others)
        for one in others:
            more = f" Also line {one.line}: {one.problem}. {one.hint}".rstrip()
            if len(hint.encode()) + len(more.encode()) > _MOST_HINT:
                hint += f" And {left} more."
                break
            hint, left = f"{hint}{more}".strip(), left - 1
        return cls(first.rule, first.problem, hint, first.path, first.line, first.field, tuple(errors))


@dataclass
class PlanError(MailboxdError):
    """A plan cannot be carried out: a cycle, an unknown dependency, too many children ... Nothing of it is adopted."""

    rule: str
    problem: str
    hint: str = ""

    exit_code = EXIT_BAD_MESSAGE

    def __str__(self) -> str:
        text = f"{self.problem} ({self.rule})"
        return f"{text}. {self.hint}" if self.hint else text


@dataclass
class Refused(MailboxdError):
    """The state does not allow the input. Recorded, without effect."""

    rule: str
    problem: str
    hint: str = ""

    exit_code = EXIT_NO

    def __str__(self) -> str:
        text = f"{self.problem} ({self.rule})"
        return f"{text}. {self.hint}" if self.hint else text


class ConfigError(MailboxdError):
    """The operator's configuration is wrong. The text names the file, the key and the remedy.

    `fix` is a command that mends it, if there is one.
    """

    exit_code = EXIT_CONFIG
    fix = ""

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(text)
        if fix:
            self.fix = fix


class WorldError(MailboxdError):
    """Disk, database or operating system failed. The service restarts and recovers."""

    exit_code = EXIT_TRY_AGAIN


class StoreError(WorldError):
    """The database cannot be read or written: full, locked, damaged. What was not committed has not happened.

    Nothing may continue after it: code that catches a WorldError raises this one again.
    """


class NoRoomError(StoreError):
    """No space for the database: the disk, its inodes, a quota or a limit. It can be retried later."""


class BusyError(StoreError):
    """Another process keeps the database locked. It can be retried later."""


class DamagedError(StoreError):
    """The database is damaged, missing, or another workspace's: the operator has to repair it; none is created."""


class OutdatedError(DamagedError):
    """The database is older than the files around it, or its log was changed: the operator has to decide."""

    exit_code = EXIT_CONFIG


class FailingDiskError(StoreError):
    """The disk failed (EIO). A later fsync proves nothing, so nothing is retried and the process ends."""


def world_error(text: str, cause: OSError) -> WorldError:
    """The error for a failed system call, by whether it may be retried."""
    return FailingDiskError(text) if cause.errno == errno.EIO else WorldError(text)


NOT_NOW = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""A temporary lack of resources."""


def shortage(error: BaseException) -> str:
    """Which resource this process lacks (memory, threads, descriptors), in a sentence; empty for other errors."""
    short = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in NOT_NOW)
    short = short or (isinstance(error, RuntimeError) and str(error) == "can't start new thread")
    # the loader's message without memory for a library
    short = short or (isinstance(error, ImportError) and any(word in str(error) for word in _NOT_LOADED))
    if not short:
        return ""
    return (
        f"this process gets no more memory, threads or file descriptors ({str(error) or type(error).__name__}). Raise "
        "the limit (`ulimit -a`; MemoryMax=, TasksMax=, LimitNOFILE=), or let something else end"
    )


_NOT_LOADED = ("cannot allocate memory", "Cannot allocate memory", "failed to map segment")


def require_seen(what: str, problem: OSError) -> None:
    """Raise WorldError if the machine could not even look at a file: that is not the sender's fault."""
    if problem.errno in NOT_NOW or problem.errno == errno.EIO:
        raise world_error(f"{what}: {problem.strerror}", problem) from problem


class LockedError(WorldError):
    """Another daemon holds this workspace."""

    exit_code = EXIT_LOCKED


class UnavailableError(MailboxdError):
    """Something required is missing: the workspace, the task, a program."""

    exit_code = EXIT_UNAVAILABLE
