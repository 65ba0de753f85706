"""The man pages: mailboxd(1), and one for each command. `make man` shows one.

hatch_build.py adds them to the wheel, which installs them where man looks: `share/man` beside the program's `bin`.
They hold no date, so the same program gives the same bytes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from mailboxd.cli.program import program

_SHARED = {"session_workspace", "session_json"}


def pages() -> dict[str, str]:
    """File name and text of every page."""
    with click.Context(program, info_name="mailboxd") as ctx:
        found = {"mailboxd.1": _program(ctx)}
        for name in program.list_commands(ctx):
            command = program.get_command(ctx, name)
            if command is not None:
                found[f"mailboxd-{name}.1"] = _verb(command, ctx)
    return found


def _program(ctx: click.Context) -> str:
    verbs: list[str] = []
    for name in program.list_commands(ctx):
        command = program.get_command(ctx, name)
        if command is not None:
            verbs += [".TP", f".BR mailboxd\\-{_dashes(name)} (1)", _text(_first_sentence(command).rstrip(".") + ".")]
    return _page(
        "mailboxd",
        "turn an OpenClaw agent's mailbox into finished, audited work",
        [
            *(".SH SYNOPSIS", ".B mailboxd", r"[\-w DIRECTORY] [\-\-json] COMMAND [ARGUMENT]..."),
            *(".SH DESCRIPTION", *_paragraphs(program.help or "")),
            *(".SH OPTIONS", *_options(program, ctx, shared=True)),
            *(".SH COMMANDS", *verbs),
            *_epilog(program.epilog or "", ".SH"),
            ".SH ENVIRONMENT",
            *(".TP", ".B NO_COLOR", "If it is set and not empty, nothing is coloured."),
            ".SH FILES",
            *(".TP", ".I .mailboxd/config.yaml", _text("The configuration of a workspace; `mailboxd config`.")),
            *(".TP", ".I .mailboxd/mailboxd.db", _text("Its tasks, and all that happened, in SQLite.")),
            *(".TP", ".I mailbox/inbox/", _text("Where a file becomes a task.")),
        ],
    )


def _verb(command: click.Command, parent: click.Context) -> str:
    ctx = click.Context(command, info_name=command.name, parent=parent)
    body = [".SH SYNOPSIS", *_synopsis(command, ctx), ".SH DESCRIPTION", *_paragraphs(command.help or "")]
    if isinstance(command, click.Group):
        body.append(".SH COMMANDS")
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            if below is not None:
                body += _below(below, ctx)
    if options := _options(command, ctx):
        body += [".SH OPTIONS", *options]
    return _page(f"mailboxd-{command.name}", _first_sentence(command), [*body, *_epilog(command.epilog or "", ".SH")])


def _below(command: click.Command, parent: click.Context) -> list[str]:
    ctx = click.Context(command, info_name=command.name, parent=parent)
    lines = [f'.SS "{_dashes(ctx.command_path)}"', *_synopsis(command, ctx), ".PP", *_paragraphs(command.help or "")]
    return [*lines, *_options(command, ctx), *_epilog(command.epilog or "", ".PP")]


def _page(name: str, says: str, body: list[str]) -> str:
    summary = says[:1].lower() + says[1:].rstrip(".")
    head = [
        f'.TH "{_dashes(name.upper())}" "1" "" "mailboxd" "mailboxd"',
        *(".SH NAME", f"{_dashes(name)} \\- {_text(summary)}"),
    ]
    also = [".SH SEE ALSO", ".BR mailboxd (1)" if name != "mailboxd" else ".BR mailboxd\\-status (1)"]
    return "\n".join([*head, *body, *also]) + "\n"


def _synopsis(command: click.Command, ctx: click.Context) -> list[str]:
    pieces = " ".join(command.collect_usage_pieces(ctx))
    return [f".B {_dashes(ctx.command_path)}", _text(pieces)]


def _options(command: click.Command, ctx: click.Context, *, shared: bool = False) -> list[str]:
    lines = []
    for param in command.params:
        if not isinstance(param, click.Option) or (param.name in _SHARED and not shared):
            continue
        record = param.get_help_record(ctx)
        if record is not None:
            lines += [".TP", f".B {_text(record[0])}", _text(record[1])]
    return lines


def _epilog(epilog: str, heading: str) -> Iterator[str]:
    """The parts of an epilog: examples and exit statuses, as they stand."""
    for part in epilog.split("\b\n")[1:]:
        title, _, block = part.rstrip().partition("\n")
        title = title.rstrip(":")
        yield from [f'.SH "{title.upper()}"'] if heading == ".SH" else [".PP", _text(f"{title}:")]
        yield from (".nf", *(_text(line) for line in block.split("\n")), ".fi")


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith("\b\n"):  # lines that stand as they are, to be copied
            yield from (".nf", *map(_text, paragraph.split("\n")[1:]), ".fi")
            continue
        yield _text(" ".join(paragraph.replace("\b", "").split()))


def _first_sentence(command: click.Command) -> str:
    return " ".join(inspect.cleandoc(command.help or "").partition("\n\n")[0].split()).partition(". ")[0]


def _text(text: str) -> str:
    """Text that roff shows as it stands."""
    escaped = _dashes(text.replace("\\", "\\e")).replace("`", "\\(ga").replace("'", "\\(aq").replace("~", "\\(ti")
    return f"\\&{escaped}" if escaped[:1] in (".", " ") else escaped


def _dashes(text: str) -> str:
    return text.replace("-", "\\-")
