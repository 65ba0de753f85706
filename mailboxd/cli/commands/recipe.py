"""`mailboxd recipe`: plans with parameters, from YAML files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mailboxd.cli.commands.send import TASK_ID, TO, WAIT, WAIT_TIMEOUT, header_options, receiver, send
from mailboxd.cli.groups import Group
from mailboxd.cli.session import Session, Text
from mailboxd.cli.text import room, say
from mailboxd.core.sanitize import for_terminal
from mailboxd.engine import sending
from mailboxd.errors import (
    EXIT_BAD_MESSAGE,
    EXIT_NO,
    EXIT_TRY_AGAIN,
    EXIT_WAITING_FOR_YOU,
    MailboxdError,
    UnavailableError,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mailboxd.formats.mailbox.layout import Workspace
    from mailboxd.formats.protocol.recipe import Recipe, Recipes


def _recipes(ws: Workspace | None) -> Recipes:
    from mailboxd.formats.protocol.recipe import Recipes

    return Recipes(None if ws is None else ws.templates / "recipes")


def _here(session: Session) -> Workspace | None:
    """The workspace, if there is one: the packaged recipes can be shown without."""
    try:
        return session.workspace()
    except UnavailableError:
        return None


def _complete(_ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    recipes = _recipes(None)
    names = [name for name in recipes.names() if name.startswith(incomplete)]
    return [CompletionItem(name, help=recipes.load(name).about) for name in names]


class _With(click.ParamType[tuple[str, str]]):
    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = Text().convert(value, param, ctx).partition("=")
        if not equals:
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key.strip(), text.strip()


_NAME = click.argument("name", shell_complete=_complete)
_WITH = click.option(
    "--with", "given", type=_With(), multiple=True,
    help="A parameter (repeatable). A list is given with commas, or by naming it several times.",
)  # fmt: skip


@click.group("recipe", cls=Group)
def recipe_command() -> None:
    """Run a team from a recipe, which is a plan with parameters in one YAML file.

    Files in .mailboxd/templates/recipes/ of the workspace come before the packaged ones.
    """


@recipe_command.verb("ls", "recipe ls")
def ls_recipes(session: Session) -> None:
    """List the recipes, with what is wrong with those that cannot be read."""
    recipes = _recipes(_here(session))
    found: list[dict[str, Any]] = []
    for name, one in recipes.all():
        found.append({"name": name, "problem": str(one)} if isinstance(one, MailboxdError) else _as_json(one))
    size = max(len(recipe["name"]) for recipe in found)
    session.show(found, [_line(recipe, size) for recipe in found])


def _line(recipe: dict[str, Any], size: int) -> str:
    text = for_terminal(recipe.get("about") or f"cannot be used: {recipe['problem']}")
    return click.wrap_text(text, room(), f"{recipe['name']:<{size}}  ", " " * (size + 2))


@recipe_command.verb("show", "recipe show panel")
@_NAME
def show_recipe(session: Session, name: str) -> None:
    """Show a recipe: its file. `recipe run --dry-run` shows the plan that it makes."""
    recipes = _recipes(_here(session))
    recipe = recipes.load(name)
    session.answer(_as_json(recipe), recipes.text(recipe).rstrip("\n"))


def _as_json(recipe: Recipe) -> dict[str, Any]:
    parameters = {
        one.name: {"about": one.about, "required": one.default is None, "default": one.default, "list": one.is_list}
        for one in recipe.parameters
    }
    return {"name": recipe.name, "about": recipe.about, "file": recipe.path, "parameters": parameters}


@recipe_command.verb(
    "run",
    'recipe run panel --with question="Is it ready?" --with panel=analyst,writer,critic',
    'recipe run pipeline --with goal=Notes --with steps="Collect the changes" --with steps="Write them down" --wait',
    "recipe run supervisor --with goal=Why? --with team=analyst,writer --budget-usd 2 --label support",
    "recipe run debate --with question=Now? --with debaters=analyst,writer --dry-run",
    exits={
        EXIT_NO: "the task exists; or with --wait, it failed or was cancelled",
        EXIT_WAITING_FOR_YOU: "--wait: it waits for you, by the command that is printed",
        EXIT_BAD_MESSAGE: "there is no such recipe, or a parameter is wrong",
        EXIT_TRY_AGAIN: "--wait: the task has not ended in time",
    },
    operator=True,
)
@_NAME
@_WITH
@TO
@TASK_ID
@header_options
@WAIT
@WAIT_TIMEOUT
@click.option("--dry-run", is_flag=True, help="Print the plan instead of sending it.")
def run_recipe(
    session: Session, name: str, given: Sequence[tuple[str, str]], to: str | None, dry_run: bool, **said: Any
) -> int | None:
    """Send the task that a recipe describes: an ordinary task with a plan."""
    ws, agent = receiver(session, to)
    if agent:
        raise click.UsageError(f"--to {agent}: a recipe's plan names its agents; write {agent} as one of them")
    draft = sending.filled_in(ws, _recipes(ws).load(name), given, sending.calendar_of(ws, session.clock.now()))
    if dry_run:
        say(for_terminal(draft.dag))
        return None
    return send(session, ws, draft, {**said, "sender": "operator"})
