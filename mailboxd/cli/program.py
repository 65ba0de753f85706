"""The program: its commands, and the error boundary, which prints users' errors in one line and reports bugs in full.

With `--json`, errors are JSON on
standard error: `{"error": {"kind", "exit", "message", ...}}`.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from mailboxd.cli.groups import EVERYTHING, LazyGroup
from mailboxd.cli.session import Session
from mailboxd.cli.text import Unwritable, escape_unencodable, flush, say, to_json
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

COMMANDS = {
    "Work": {
        "send": "send", "edit": "orders", "retry": "orders", "pause": "orders", "resume": "orders", "cancel": "orders",
        "undo": "orders",
    },
    "Look": {
        "status": "status", "ls": "status", "show": "task", "why": "task", "log": "events", "search": "audit",
        "watch": "events", "web": "web",
    },
    "Decide": {
        "inbox": "status", "answer": "orders", "approve": "approvals", "reject": "approvals",
        "ask-changes": "approvals", "resolve": "orders",
    },
    "Repair": {"doctor": "doctor"},
}  # fmt: skip
"""Commands in the order of the help, with the module in `commands/` that defines `<name>_command`."""
ADMIN = {
    "Set up": {
        "demo": "demo", "setup": "setup", "init": "setup", "run": "daemon", "config": "setup", "connect": "integration",
        "hub": "hub",
    },
    "Keep": {
        "fleet": "fleet", "caps": "caps", "recipe": "recipe", "export": "export", "audit": "auditor", "db": "database",
    },
}  # fmt: skip
"""Those of the second page of the help, `--help-all`: of setting up and of the whole machine, rather than of a task."""


class Program(LazyGroup):
    """The group of all commands, inside the error boundary."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit with its status. Tests pass a `Session` as `obj`, with another clock or pause."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra.setdefault("obj", Session())
        open_standard_streams()
        reset_sigchld()
        escape_unencodable(sys.stdout, sys.stderr)

        def action() -> Any:
            raise_on_sigint()
            return super(Program, self).main(arguments, prog_name, complete_var, standalone_mode=False, **extra)

        status = guarded(action, arguments, extra["obj"])
        if not standalone_mode:
            return status
        sys.exit(status)


@click.pass_context
def _alone(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        from mailboxd.cli import morning

        morning.alone(ctx.ensure_object(Session))


program = Program(
    "mailboxd",
    COMMANDS,
    more=ADMIN,
    hidden={"effect": "approvals"},  # called by the daemon
    callback=_alone,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Turn an OpenClaw agent's mailbox into finished, audited work.

    Alone it says what needs you. Every command except `run` works while the daemon is down. Commands that act as the
    operator are refused inside an agent's turn. TASK is a task's local id, its id (tsk_...), or a unique prefix of
    either.

    Your shell completes commands and task ids after one of these lines, in bash, zsh or fish:

    \b
    eval "$(_MAILBOXD_COMPLETE=bash_source mailboxd)"
    eval "$(_MAILBOXD_COMPLETE=zsh_source mailboxd)"
    _MAILBOXD_COMPLETE=fish_source mailboxd | source
    """,
)


def _help_all(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.meta[EVERYTHING] = True
        click.echo(ctx.get_help())
        ctx.exit()


click.option(
    "--help-all", is_flag=True, is_eager=True, expose_value=False, callback=_help_all,
    help="List all commands, also those that set up and keep mailboxd.",
)(program)  # fmt: skip
click.version_option(package_name="mailboxd", message="%(prog)s %(version)s")(program)
program.epilog = """\
\b
Exit status:
   0  success                 70  a bug in mailboxd
   1  refused, or negative    73  another daemon holds the workspace
   2  usage error             75  temporary failure of disk or database
   3  it waits for you        78  needs the operator: configuration, keys, ...
  65  invalid message or plan 130 interrupted
  69  not found: workspace, task, program
"""


# The error boundary

INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""
_GONE = "the current directory no longer exists. If it was recreated, `cd` to it again"

_DASH = "- "
_TEXT = 'an argument that begins with - is taken for an option; put -- before it: `{} ... -- "- ..."`'


def guarded(action: Callable[[], Any], arguments: Sequence[str], session: Session) -> int:
    """Run `action` and return its exit status; report errors on standard error. `arguments` are the command line."""
    try:
        return _reporting(action, arguments, session)
    except MemoryError:  # there was not even enough to report the first one
        os.write(2, _NO_MEMORY)
        return EXIT_TRY_AGAIN


_NO_MEMORY = b"mailboxd: this process gets no more memory, threads or file descriptors: raise the limit (`ulimit -a`)\n"


def _reporting(action: Callable[[], Any], arguments: Sequence[str], session: Session) -> int:
    as_json = "--json" in list(arguments)[: arguments.index("--")] if "--" in arguments else "--json" in arguments
    try:
        result = action()
        flush()
        return result if isinstance(result, int) else EXIT_OK
    except MailboxdError as error:
        _report(_facts(error, session), as_json, session.agent)
        return error.exit_code
    except click.ClickException as error:
        wrong = _plainer(error)
        if as_json:
            _report({"kind": "UsageError", "exit": EXIT_USAGE, "message": wrong.format_message()}, as_json)
        else:
            wrong.show()
        return EXIT_USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        _silence()
        return EXIT_NO
    except Unwritable as error:
        _report(_unwritable(error), as_json)
        _silence()
        return EXIT_NO
    except Exception as error:
        if isinstance(error, FileNotFoundError) and not _has_working_directory():
            _report(_facts(UnavailableError(_GONE), session), as_json)
            return EXIT_UNAVAILABLE
        if wrong_argument := _wrong_argument(error, arguments):
            _report({"kind": "UsageError", "exit": EXIT_USAGE, "message": wrong_argument}, as_json)
            return EXIT_USAGE
        if why := shortage(error):
            _report(_facts(WorldError(why), session), as_json, session.agent)
            return EXIT_TRY_AGAIN
        _report(_bug_report(error, arguments), as_json, session.agent)
        return EXIT_BUG


def _wrong_argument(error: Exception, arguments: Sequence[str]) -> str:
    """What is wrong with an argument that cannot be a text or the name of a file; empty if none is the cause."""
    if isinstance(error, UnicodeEncodeError):
        found = next(filter(_is_no_text, arguments), "")
        return found and f"the argument {ascii(found)[:100]} is not UTF-8"
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        found = next((one for one in arguments if len(one) > _MOST_OF_A_NAME), "")
        return found and f"the argument {ascii(found)[:100]}... is too long for the name of a file"
    return ""


_MOST_OF_A_NAME = 100
"""Characters that the name of a file may have anywhere, with what is put before and behind it."""


def _is_no_text(argument: str) -> bool:
    """Whether it has bytes that are not UTF-8, which Python passes on as surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return True
    return False


def _plainer(error: click.ClickException) -> click.ClickException:
    """The error of click, or a clearer one if it took a list item for an option. `--now`, which cannot be undone, is
    never suggested.
    """
    if not isinstance(error, click.NoSuchOption):
        return error
    if error.option_name != _DASH:
        near = [option for option in error.possibilities or () if option != "--now"]
        return click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
    return click.UsageError(_TEXT.format(error.ctx.command_path if error.ctx else "mailboxd"), error.ctx)


def open_standard_streams() -> None:
    """Replace each closed standard stream by /dev/null.

    Otherwise the next file opened would get its number, and output would be written into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def reset_sigchld() -> None:
    """An ignored SIGCHLD is inherited from the parent, and hides the exit statuses of our children."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def raise_on_sigint() -> None:
    """Make Ctrl-C a KeyboardInterrupt; until now it ended the process (`bin/mailboxd`)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _has_working_directory() -> bool:
    """Whether the working directory exists."""
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _unwritable(error: Unwritable) -> dict[str, Any]:
    """Not EXIT_TRY_AGAIN: a script that tried again would give its order twice."""
    text = f"cannot write the output: {error.strerror}. Any order was carried out: see `mailboxd log`"
    return {"kind": type(error).__name__, "exit": EXIT_NO, "message": text}


def _facts(error: MailboxdError, session: Session) -> dict[str, Any]:
    said = {"message": str(error)} | {
        name: value for name, value in vars(error).items() if isinstance(value, str | int)
    }
    facts = {name: session.runnable(value) if isinstance(value, str) else value for name, value in said.items()}
    return {"kind": type(error).__name__, "exit": error.exit_code, **facts}


def _report(facts: dict[str, Any], as_json: bool, agent: str = "") -> None:
    program = f"mailboxd ({for_terminal(agent)})" if agent else "mailboxd"
    facts |= {"agent": agent} if agent else {}
    text = to_json({"error": facts}) if as_json else f"{program}: {for_terminal(facts['message'])}"
    log = sys.modules.get("mailboxd.host.log")
    if log is not None and log.last_words(text):
        return  # a daemon must be able to exit even if nothing reads its standard error
    with suppress(OSError):
        say(text, err=True)


def _silence() -> None:
    """Discard buffered output: writing it at exit to a closed pipe would raise."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _bug_report(error: Exception, arguments: Sequence[str]) -> dict[str, Any]:
    import platform
    import shlex
    import traceback
    from importlib.metadata import version

    system = f"Python {platform.python_version()}, {platform.platform()}"
    report = f"""\
this is a bug in mailboxd. Nothing was left half done: every change is one transaction.
Please report it in mailboxd's issue tracker, with everything below:

mailboxd {version("mailboxd")}, {system}
$ {shlex.join(["mailboxd", *arguments])}
{"".join(traceback.format_exception(error))}"""
    return {"kind": type(error).__name__, "exit": EXIT_BUG, "message": report.rstrip()}
