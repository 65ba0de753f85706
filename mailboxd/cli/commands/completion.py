"""`mailboxd completion bash|zsh|fish|install|uninstall`: a shell completes verbs, options and tasks."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import ShellComplete, get_completion_class

from mailboxd.cli import shells
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import plain, say, to_json

_shell = click.option("--shell", type=click.Choice(shells.SHELLS), help="Default: that of the variable SHELL.")


@click.group("completion")
def command() -> None:
    """Have a shell complete verbs, options and the names of tasks when you press Tab."""


def _printing(shell: str, example: str) -> click.Command:
    @verb(shell, f"completion {shell} > {example}")
    def command(session: Session) -> None:
        script = script_of(shell)
        say(to_json({"shell": shell, "script": script}) if session.as_json else script)

    command.help = f"Print the completion script of {shell}, to be put where you like."
    return command


def script_of(shell: str) -> str:
    """The script of a shell of `shells.SHELLS`."""
    from mailboxd.cli.program import program

    kind = get_completion_class(shell)
    if kind is None:
        raise AssertionError(f"click knows no {shell}")
    # the script of the base class: that of bash would first start bash to ask its version
    return ShellComplete.source(kind(program, {}, "mailboxd", "_MAILBOXD_COMPLETE")).rstrip()


@verb("install", "completion install", "completion install --shell zsh")
@_shell
def install(session: Session, shell: str | None) -> None:
    """Install completion for your shell, for new terminals.

    bash and fish read a file of ours from your own directory of completions. zsh, and bash where the package
    bash-completion is missing, read it through a marked block of three lines at the end of ~/.zshrc or ~/.bashrc.
    """
    shell = _which(shell)
    script = f"{script_of(shell)}\n"
    _tell(session, shell, shells.install(shells.place_of(shell, os.environ), script), "installed")


@verb("uninstall", "completion uninstall", "completion uninstall --shell zsh")
@_shell
def uninstall(session: Session, shell: str | None) -> None:
    """Take away what `completion install` put there, and nothing else."""
    shell = _which(shell)
    _tell(session, shell, shells.remove(shells.place_of(shell, os.environ, lazy_bash=False)), "removed")


def _which(named: str | None) -> str:
    shell = named or shells.shell_of(os.environ)
    if shell is None:
        raise click.UsageError(f"the variable SHELL names none of {', '.join(shells.SHELLS)}: say --shell")
    return shell


def _tell(session: Session, shell: str, changed: list[Path], word: str) -> None:
    if session.as_json:
        say(to_json({"shell": shell, "changed": [str(path) for path in changed]}))
    elif changed:
        for path in changed:
            say(plain(str(path)))
        say(f"completion for {shell} is {word}; a new terminal has it so")
    else:
        say(f"completion for {shell} was {word} before; nothing is changed")


for _verb in (
    _printing("bash", "~/.local/share/bash-completion/completions/mailboxd"),
    _printing("zsh", "~/.zfunc/_mailboxd"),
    _printing("fish", "~/.config/fish/completions/mailboxd.fish"),
    install,
    uninstall,
):
    command.add_command(_verb)
