"""`mailboxd completion SHELL`: the script that makes a shell complete verbs, options and tasks."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import say


@verb(
    "completion",
    "completion bash > ~/.local/share/bash-completion/completions/mailboxd",
    "completion zsh > ~/.zfunc/_mailboxd",
    "completion fish > ~/.config/fish/completions/mailboxd.fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, _: Session, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    if kind is None:
        raise AssertionError(f"click knows no {shell}")
    completer = kind(ctx.find_root().command, {}, "mailboxd", "_MAILBOXD_COMPLETE")
    # the script of the base class: that of bash would first start bash to ask its version
    say(ShellComplete.source(completer))
