"""Shared by all commands: the options -w and --json, the decorator of commands, and parameter types."""

from __future__ import annotations

import os
import re
import select
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.text import say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import MailboxdError, MessageError, UnavailableError
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import Clock, SystemClock

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mailboxd.core.standstill import Standstill
    from mailboxd.formats.config import Config
    from mailboxd.ledger.attention_queries import Seen
    from mailboxd.ledger.reports import Report
    from mailboxd.perform.agents.openclaw import OpenClaw


POLL_INTERVAL = 0.25
"""Seconds between two polls of the database, each an indexed query of 20 µs."""
MOST_COMPLETIONS = 100
_MOST_NAMED = 5
"""Tasks or workspaces that an error names."""
_CONFIG_HEAD = 65_536
_COMMAND = re.compile(
    r"(?:^|(?<=[`(])|(?<=\bor )|(?<=\bthen )|(?<=[,;:] ))mailboxd (?!-w |setup|init |hub |fleet)(?=[a-z])"
)
"""A command about a workspace, in a text of mailboxd's own."""
_AGENT = re.compile(rb"""^agent:[ ]+(["']?)([A-Za-z0-9_][A-Za-z0-9._-]{0,127})\1[ ]*(?:#.*)?\r?$""", re.MULTILINE)


def _known_workspaces() -> str:
    """How to name one of this user's workspaces, or to make the first."""
    from mailboxd.formats.user import registry

    with suppress(MailboxdError, OSError):
        if known := registry.workspaces(os.environ):
            names = " or ".join(f"-w {shlex.quote(str(ws.root))}" for ws in known[:_MOST_NAMED])
            more = " ..." if len(known) > _MOST_NAMED else ""
            return f"say {names}{more} (`mailboxd status --host` shows all of yours)"
    return "`mailboxd setup` begins with your agents"


def pause(seconds: float) -> None:
    """Sleep between two polls of the database."""
    select.select((), (), (), seconds)


@dataclass(slots=True)
class Session:
    """One run of the program. Tests replace `clock` and `pause`."""

    path: Path | None = None
    as_json: bool = False
    agent: str = ""
    """Whose daemon this process is, where several write to one log (`run --all`)."""
    clock: Clock = field(default_factory=SystemClock)
    pause: Callable[[float], None] = pause

    def workspace(self) -> Workspace:
        """The workspace of -w, or the nearest one. Raises UnavailableError."""
        here = Path.cwd() if self.path is None else self.path
        try:
            return Workspace.find(here, self.path)
        except UnavailableError:
            if self.path is not None:
                raise
        raise UnavailableError(f"there is no workspace of mailboxd at {here} or above it; {_known_workspaces()}")

    def program(self, ws: Workspace) -> str:
        """How a command about `ws` begins in the current directory: `mailboxd`, with -w where that is needed."""
        from mailboxd.ledger import attention

        with suppress(MailboxdError, OSError):
            if Workspace.find(Path.cwd()).root == ws.root:
                return "mailboxd"
        return attention.program_for(ws)

    def runnable(self, text: str) -> str:
        """One of mailboxd's own hints, whose commands run as printed: with -w where the current directory needs it."""
        with suppress(MailboxdError, OSError):
            if self.path is not None:
                return _COMMAND.sub(f"{self.program(self.workspace())} ".replace("\\", r"\\"), text)
        return text

    def seen(self, ws: Workspace) -> Seen:
        """What this user has seen of the failed tasks of `ws`. Raises nothing."""
        from mailboxd.ledger import seen_items

        return seen_items.seen(ws.root, os.environ, self.clock.now())

    def paused(self) -> Standstill | None:
        """The standstill of all agents of this user; None if there is none. Raises nothing."""
        from mailboxd.formats.user import standstills

        return standstills.standstill(os.environ)

    def see(self, failed: Mapping[str, str] | None, files: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Note that this user has seen these failed tasks (id -> end; None: all), and files that are not read (path ->
        change). An agent's shell notes nothing.

        Returns whether that is noted.
        """
        from mailboxd.ledger import seen_items
        from mailboxd.perform.agents.openclaw import inside_agent

        if inside_agent(os.environ):
            return False
        return seen_items.see(self.workspace().root, os.environ, self.clock.now(), failed, files)

    def read(self, ws: Workspace, results: Mapping[str, str]) -> None:
        """Note that this user has read the results of these tasks (id -> end). An agent's shell notes nothing."""
        from mailboxd.ledger import seen_items
        from mailboxd.perform.agents.openclaw import inside_agent

        if not inside_agent(os.environ):
            seen_items.read(ws.root, os.environ, self.clock.now(), results)

    @contextmanager
    def report(self) -> Iterator[Report]:
        """Open the workspace's database for read-only queries. Raises UnavailableError, WorldError."""
        from mailboxd.ledger.reports import opened

        with opened(self.workspace().database) as report:
            yield report

    def tell(self, text: str, *, err: bool = False) -> None:
        """Print a line, sanitized, unless JSON was requested."""
        if not self.as_json:
            say(for_terminal(text), err=err)

    def tell_invalid_configuration(self) -> None:
        """Print what is wrong with the configuration, and the command that mends it; nothing if it is valid."""
        from mailboxd.formats.mailbox import lock
        from mailboxd.ledger import attention

        with suppress(MailboxdError, OSError):
            ws = self.workspace()
            if (invalid := attention.of_configuration(ws, lock.holder(ws))) is not None:
                self.tell(f"{invalid.text}\n  -> {self.runnable(invalid.command)}", err=True)

    def answer(self, facts: Any, text: str) -> None:
        """Print `facts` with --json, otherwise `text`, sanitized."""
        say(to_json(facts) if self.as_json else for_terminal(text))

    def show(self, facts: Any, lines: Iterable[str], none: str = "") -> None:
        """Print `facts` with --json, otherwise the lines, which are sanitized already; without any, `none`."""
        if self.as_json:
            say(to_json(facts))
            return
        shown = False
        for line in lines:
            say(line)
            shown = True
        if none and not shown:
            say(self.runnable(none), err=True)

    def write(self, text: str) -> None:
        """Print a file as it is; with --json as its `text`."""
        say(to_json({"text": text}) if self.as_json else text, newline=self.as_json)

    def config(self) -> Config:
        """The configuration of the workspace. Raises UnavailableError, ConfigError, WorldError."""
        from mailboxd.formats import config

        return config.load(self.workspace().config)

    def openclaw(self) -> tuple[OpenClaw, dict[str, str]]:
        """OpenClaw's configured command, and the environment of its programs. Raises as `config`."""
        from mailboxd.perform.agents.openclaw import OpenClaw, child_environment

        section = self.config().openclaw
        return OpenClaw(section.command), child_environment(os.environ, section.environment)


def agent_of(ws: Workspace) -> str | None:
    """The agent in the configuration; None if that cannot be read, which `attention.of_configuration` reports.

    Parsing the configuration takes 100 ms, so a plain `agent:` line is read directly.
    """
    from mailboxd.formats.mailbox.files import directory, read_file

    with suppress(OSError, MailboxdError), directory(ws.root, ws.state.name) as state:
        found = _AGENT.search(read_file(state, ws.config.name, _CONFIG_HEAD) or b"")
        if found is not None:
            return found[2].decode()
        from mailboxd.formats import config

        return config.load(ws.config).agent
    return None


def shared_options() -> list[click.Parameter]:
    """-w and --json, valid before and after the command."""

    def workspace(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
        if path is not None:
            ctx.ensure_object(Session).path = path

    def as_json(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            ctx.ensure_object(Session).as_json = True

    kind = click.Path(file_okay=False, path_type=Path)
    where = "Default: the nearest workspace at or above the current directory."
    return [
        click.Option(
            ["-w", "--workspace", "session_workspace"], type=kind, help=where, expose_value=False, callback=workspace
        ),
        click.Option(
            ["--json", "session_json"], is_flag=True, help="Print JSON.", expose_value=False, callback=as_json
        ),
    ]


def verb(
    name: str,
    *examples: str,
    exits: Mapping[int, str] | None = None,
    text: str | None = None,
    operator: bool = False,
    extra: str = "",
    view: bool = False,
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a command of a function that takes the session first and returns its exit status, None for 0.

    `exits` explains the exit statuses that are answers here; `mailboxd --help` explains the others. An
    `operator` command is refused inside an agent's turn; one with an `extra` needs that to be installed. A `view` first
    says that the configuration is invalid.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
        @wraps(function)
        def checked(*arguments: Any, **options: Any) -> int | None:
            if operator:
                from mailboxd.cli.operator_shell import require_operator

                require_operator()
            if extra:
                from mailboxd.host import pip_extras

                pip_extras.require(extra)
            if view:
                arguments[0].tell_invalid_configuration()
            return function(*arguments, **options)

        made: click.Command = click.command(name, help=text)(click.pass_obj(checked))
        made.params += shared_options()
        made.epilog = _epilog(examples, exits or {})
        return made

    return decorate


def _epilog(examples: tuple[str, ...], exits: Mapping[int, str]) -> str:
    shown = "\n".join(f"  {example if 'mailboxd ' in example else f'mailboxd {example}'}" for example in examples)
    codes = "\n".join(f"  {code:>3}  {exits[code]}" for code in sorted(exits))
    return f"\b\nExamples:\n{shown}" + (f"\n\n\b\nExit status:\n{codes}" if codes else "")


def task_argument(*, required: bool = True) -> Callable[[Any], Any]:
    """The argument TASK: a local id, an id, or a unique prefix of either."""
    return click.argument("task", cls=_Task, required=required, shell_complete=_complete)


class _Task(click.Argument):
    """Where it is missing, the error names tasks that are open."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter as missing:
            session = ctx.ensure_object(Session)
            with suppress(MailboxdError), session.report() as report:
                count, rows = report.open_roots(_MOST_NAMED)
                named = ", ".join(row["local_id"] for row in rows) + (" ..." if count > len(rows) else "")
                known = f"open are {named}" if rows else "none is open"
                how = session.runnable("`mailboxd ls --all --children` lists all")
                raise click.UsageError(f"name a task: {known}; {how}", ctx) from missing
            raise


def more_tasks() -> Callable[[Any], Any]:
    """The argument for further tasks, of which each is named as TASK is."""
    return click.argument("more", metavar="[TASK]...", nargs=-1, shell_complete=_complete)


def _complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Local ids with this prefix; none without a workspace."""
    from click.shell_completion import CompletionItem

    with suppress(MailboxdError), ctx.ensure_object(Session).report() as report:
        found = report.with_prefix(incomplete, MOST_COMPLETIONS)
        return [CompletionItem(local_id, help=title) for local_id, title in found]
    return []


# Parameter types. Bytes from the shell that are not valid UTF-8 arrive as surrogates.


class Id(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """The id of a task, an agent, a message (protocol section 2, "Ids")."""

    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_id(value):
            rule = "1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -, without .."
            self.fail(f"{ascii(value)[:100]} is not an id: {rule}", param, ctx)
        return str(value)


class Dollars(click.FloatRange):
    """An amount that may be 0."""

    def __init__(self) -> None:
        super().__init__(0, 1_000_000)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        amount = float(super().convert(value, param, ctx))
        if amount != amount:  # "nan" is a number to Python
            self.fail(f"{value!r} is not an amount", param, ctx)
        return amount


class Text(click.ParamType):  # type: ignore[type-arg]
    """The operator's text, made storable."""

    name = "TEXT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's signature
        from mailboxd.core.sanitize import storable_text

        return storable_text(value)


class Header(click.ParamType):  # type: ignore[type-arg]
    """A value of the message header `header`, in the syntax and the words of the front matter."""

    def __init__(self, header: str, shown: str) -> None:
        self.name = shown
        self._header = header

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from mailboxd.formats.protocol import quantities
        from mailboxd.formats.protocol.headers import CONVERTERS

        if not isinstance(value, str):
            return value
        try:
            value = quantities.number_in(self._header, value)
            return CONVERTERS[self._header](value, lambda said: click.echo(f"{self._header}: {said}", err=True))
        except MessageError as error:
            self.fail(f"{error.problem}. {error.hint}".strip(), param, ctx)
