"""Groups of commands, whose help shows the first sentence of each in full."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

import click

from mailboxd.cli.session import shared_options, verb


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

    A module is imported when its command is called; help and completion import all.
    """

    def __init__(
        self,
        name: str,
        listed: Mapping[str, Mapping[str, str]],
        hidden: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(name, **attributes)
        self._listed = listed
        self._modules = {
            **{name: module for found in listed.values() for name, module in found.items()},
            **(hidden or {}),
        }
        self._hidden = hidden or {}

    def sections(self, ctx: click.Context) -> Mapping[str, Sequence[str]]:  # noqa: ARG002 - the signature of Group
        return {heading: list(found) for heading, found in self._listed.items()}

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

            near = get_close_matches(name, self.list_commands(ctx), 1)
            ctx.fail(f"there is no command {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)


def summary(command: click.Command | None) -> str:
    """The first sentence of a command's help."""
    text = "" if command is None else inspect.cleandoc(command.help or "")
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
