"""The one error boundary: nobody sees a traceback for a mistake of theirs, and always a report for one of ours.

With `--json` errors are JSON on standard error too: `{"error": {"kind", "exit", "message", ...}}`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from mailboxd.cli.text import Unwritable, flush, say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import (
    EXIT_BUG,
    EXIT_NO,
    EXIT_OK,
    EXIT_TRY_AGAIN,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    MailboxdError,
    UnavailableError,
    WorldError,
    shortage,
)

INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""
_GONE = "the directory that you are in is gone. `cd` to it again: one that was made anew under its name is another one"

_DASH = "- "
_TEXT = 'what begins with - is taken for an option; put -- before a text that begins so: `{} ... -- "- ..."`'


def guarded(action: Callable[[], Any], arguments: Sequence[str]) -> int:
    """The exit status of `action`; what went wrong is told on standard error. `arguments` are the command line."""
    as_json = "--json" in list(arguments)[: arguments.index("--")] if "--" in arguments else "--json" in arguments
    try:
        result = action()
        flush()
        return result if isinstance(result, int) else EXIT_OK
    except MailboxdError as error:
        _tell(_facts(error), as_json)
        return error.exit_code
    except click.ClickException as error:
        wrong = _plainer(error)
        if as_json:
            _tell({"kind": "UsageError", "exit": EXIT_USAGE, "message": wrong.format_message()}, as_json)
        else:
            wrong.show()
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        _silence()
        return EXIT_NO
    except Unwritable as error:
        _tell(_unwritten(error), as_json)
        _silence()
        return EXIT_NO
    except Exception as error:
        if isinstance(error, FileNotFoundError) and not _stands():
            _tell(_facts(UnavailableError(_GONE)), as_json)
            return EXIT_UNAVAILABLE
        if why := shortage(error):
            _tell(_facts(WorldError(why)), as_json)
            return EXIT_TRY_AGAIN
        _tell(_bug(error, arguments), as_json)
        return EXIT_BUG


def _plainer(error: click.ClickException) -> click.ClickException:
    """What click says, but where it took the line of a list for an option: how such a text is given."""
    if not isinstance(error, click.NoSuchOption) or error.option_name != _DASH:
        return error
    return click.UsageError(_TEXT.format(error.ctx.command_path if error.ctx else "mailboxd"), error.ctx)


def stand() -> None:
    """Open something that takes everything in the place of each standard stream that is closed.

    The next file that we open would get its number, and what any program of ours prints would be written into that.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def keep_exit_statuses() -> None:
    """Whoever ignores SIGCHLD hands that on to what he starts: each of our children would end with exit status 0."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def hear_interrupts() -> None:
    """From now on Ctrl-C is a KeyboardInterrupt; until now it just ended the process (`bin/mailboxd`)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stands() -> bool:
    """Whether the working directory is there."""
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _unwritten(error: Unwritable) -> dict[str, Any]:
    """Not `try again`: a script that did would give its order twice."""
    text = f"the answer cannot be written: {error.strerror}. An order that was given counts: see `mailboxd history`"
    return {"kind": type(error).__name__, "exit": EXIT_NO, "message": text}


def _facts(error: MailboxdError) -> dict[str, Any]:
    facts = {name: value for name, value in vars(error).items() if isinstance(value, str | int)}
    return {"kind": type(error).__name__, "exit": error.exit_code, "message": str(error), **facts}


def _tell(facts: dict[str, Any], as_json: bool) -> None:
    text = to_json({"error": facts}) if as_json else f"mailboxd: {for_terminal(facts['message'])}"
    log = sys.modules.get("mailboxd.log")
    if log is not None and log.last_words(text):
        return  # a daemon must be able to end, even where nobody reads what it says
    with suppress(OSError):
        say(text, err=True)


def _silence() -> None:
    """Nobody reads any more: what is still buffered must not be written at the exit, or Python complains."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _bug(error: Exception, arguments: Sequence[str]) -> dict[str, Any]:
    import platform
    import shlex
    import traceback
    from importlib.metadata import version

    system = f"Python {platform.python_version()}, {platform.platform()}"
    report = f"""\
this is a bug in mailboxd, not a mistake of yours. Nothing was half done: every change is one transaction.
Please report it to mailboxd's issue tracker, with all that follows:

mailboxd {version("mailboxd")}, {system}
$ {shlex.join(["mailboxd", *arguments])}
{"".join(traceback.format_exception(error))}"""
    return {"kind": type(error).__name__, "exit": EXIT_BUG, "message": report.rstrip()}
