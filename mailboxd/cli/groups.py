"""Groups of commands, whose help shows the first sentence of each in full."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

import click

from mailboxd.cli.session import shared_options, verb

EVERYTHING = "mailboxd.help.everything"
"""In the `meta` of a context: the help describes all commands."""


_MEANT = {
    **dict.fromkeys(("list", "tasks", "queue", "ps"), "ls"),
    **dict.fromkeys(("logs", "history", "tail", "events"), "log"),
    **dict.fromkeys(("result", "results", "cat", "view"), "show TASK"),
    **dict.fromkeys(("tree", "graph"), "show TASK --tree"),
    **dict.fromkeys(("stop", "kill", "abort", "rm", "delete", "remove"), "cancel TASK"),
    **dict.fromkeys(("hold", "suspend"), "pause TASK"),
    **dict.fromkeys(("reply", "respond"), "answer TASK"),
    **dict.fromkeys(("approvals", "pending"), "approve"),
    **dict.fromkeys(("questions", "question", "todo"), "inbox"),
    **dict.fromkeys(("new", "add", "create", "task", "submit"), "send"),
    **dict.fromkeys(("schedule", "repeat", "cron", "every"), "send --repeat"),
    **dict.fromkeys(("budget", "cost", "costs", "spend"), "caps"),
    **dict.fromkeys(("agents", "workspaces"), "fleet"),
    **dict.fromkeys(("start", "daemon", "serve"), "run"),
    **dict.fromkeys(("open", "page", "ui"), "web --open"),
    **dict.fromkeys(("check", "health"), "doctor"),
    "archive": "export archive",
    "find": "search",
    "restart": "doctor",
    "info": "status",
    "install": "setup",
    "uninstall": "setup --undo",
    "help": "--help",
    "version": "--version",
}
"""What is meant by words that other programs use."""


class Group(click.Group):
    """Commands defined in the module of the group."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params += shared_options()

    def verb(
        self, name: str, *examples: str, **attributes: Any
    ) -> Callable[[Callable[..., int | None]], click.Command]:
        """As `session.verb`, for a command of this group."""

        def decorate(function: Callable[..., int | None]) -> click.Command:
            made = verb(name, *examples, **attributes)(function)
            self.add_command(made)
            return made

        return decorate

    def sections(self, ctx: click.Context) -> Mapping[str, Sequence[str]]:
        """The headings of the help, each with its commands."""
        return {"Commands": self.list_commands(ctx)}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        size = max(map(len, self.list_commands(ctx)))
        for heading, names in self.sections(ctx).items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(size), summary(self.get_command(ctx, name))) for name in names])


class LazyGroup(Group):
    """Commands by heading and name, each with the module in `commands/` that defines `<name>_command`.

    A module is imported when its command is called; help and completion import all. The commands in `more` are only
    named in the help, and described in that of `--help-all`.
    """

    def __init__(
        self,
        name: str,
        listed: Mapping[str, Mapping[str, str]],
        hidden: Mapping[str, str] | None = None,
        more: Mapping[str, Mapping[str, str]] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(name, **attributes)
        self._listed, self._more = listed, more or {}
        self._modules = {
            **{name: module for found in (*listed.values(), *self._more.values()) for name, module in found.items()},
            **(hidden or {}),
        }
        self._hidden = hidden or {}

    def sections(self, ctx: click.Context) -> Mapping[str, Sequence[str]]:
        shown = {**self._listed, **self._more} if ctx.meta.get(EVERYTHING) else self._listed
        return {heading: list(found) for heading, found in shown.items()}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_commands(ctx, formatter)
        if self._more and not ctx.meta.get(EVERYTHING):
            names = ", ".join(name for found in self._more.values() for name in found)
            with formatter.section("More"):
                formatter.write_text(f"{names}; `{ctx.command_path} --help-all` says what they do.")

    def list_commands(self, _: click.Context) -> list[str]:
        return [name for name in self._modules if name not in self._hidden]

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        module = self._modules.get(cmd_name)
        if module is None:
            return None
        defined = import_module(f"mailboxd.cli.commands.{module}")
        return cast(click.Command, getattr(defined, f"{cmd_name.replace('-', '_')}_command"))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._modules and not name.startswith("-"):
            from difflib import get_close_matches

            meant = _MEANT.get(name, "")
            known = ctx.parent is None and (meant.startswith("-") or meant.partition(" ")[0] in self._modules)
            near = [meant] if known else get_close_matches(name, self.list_commands(ctx), 1)
            ctx.fail(f"there is no command {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)


def summary(command: click.Command | None) -> str:
    """The first sentence of a command's help."""
    text = "" if command is None else inspect.cleandoc(command.help or "")
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
