"""`mailboxd connect`: what this workspace is connected with; and the completion of commands in a shell."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from mailboxd.cli.groups import LazyGroup
from mailboxd.cli.session import Session, verb
from mailboxd.cli.text import say, to_json

connect_command = LazyGroup(
    "connect",
    {
        "Commands": {
            "plugin": "integration", "skill": "integration", "mcp": "mcp", "gateway": "gateway", "service": "daemon",
            "keys": "keys", "completion": "connect",
        }
    },
    help="Connect the workspace with OpenClaw, systemd, the keys of its peers, and your shell.",
)  # fmt: skip


@verb(
    "completion",
    "connect completion bash > ~/.local/share/bash-completion/completions/mailboxd",
    "connect completion zsh > ~/.zfunc/_mailboxd",
    "connect completion fish > ~/.config/fish/completions/mailboxd.fish",
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion_command(session: Session, shell: str) -> None:
    """Print the script with which a shell completes commands, options and task ids; it takes effect in new shells.

    bash needs the package bash-completion, and zsh ~/.zfunc in its fpath: `fpath+=(~/.zfunc)` in ~/.zshrc, before
    `compinit`.
    """
    from mailboxd.cli.program import program

    kind = get_completion_class(shell)
    if kind is None:
        raise AssertionError(f"click does not support {shell}")
    # the method of the base class: that of bash first starts bash to ask for its version
    script = ShellComplete.source(kind(program, {}, "mailboxd", "_MAILBOXD_COMPLETE")).rstrip()
    say(to_json({"shell": shell, "script": script}) if session.as_json else script)
