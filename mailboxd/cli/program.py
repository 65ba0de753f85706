"""The command tree. Commands are imported when they are called (or all of them, for help and completion)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import click

from mailboxd.cli.boundary import guarded, hear_interrupts, keep_exit_statuses, stand
from mailboxd.cli.session import Session, shared_options
from mailboxd.cli.text import forgive

COMMANDS = {
    "setup": "setup", "init": "workspace", "import": "workspace", "run": "run", "send": "send", "status": "status",
    "ls": "status", "show": "task", "tree": "task", "graph": "task", "timeline": "task", "watch": "watch",
    "fleet": "fleet", "history": "log", "logs": "log", "why": "task", "audit": "audit", "backup": "database",
    "rebuild": "database", "accept-older": "database", "check": "doctor", "doctor": "doctor", "approvals": "approvals",
    "approve": "approvals", "reject": "approvals", "request-changes": "approvals", "undo": "approvals",
    "cancel": "orders", "retry": "orders", "unblock": "orders", "answer": "orders", "spec": "orders",
    "steer": "orders", "message": "send", "keys": "keys", "config": "workspace", "gateway": "gateway", "mcp": "mcp",
    "web": "web", "plugin": "plugin", "skill": "skill", "service": "service", "metrics": "export",
    "traces": "export", "completion": "completion",
}  # fmt: skip
"""Every command, in the order of the help, with the module of `commands/` that defines it as `<name>_command`."""
_HIDDEN = {"effect": "approvals"}
"""Called by the daemon; listed in no help."""


class Program(click.Group):
    """The group of all verbs, with the one error boundary around them."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        module = (COMMANDS | _HIDDEN).get(cmd_name)
        if module is None:
            return None
        defined = import_module(f"mailboxd.cli.commands.{module}")
        return cast(click.Command, getattr(defined, f"{cmd_name.replace('-', '_')}_command"))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS | _HIDDEN and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, 1)
            ctx.fail(f"there is no command {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit with its status. `obj` may be a `Session` with another clock or pause."""
        arguments = list(sys.argv[1:] if args is None else args)
        extra.setdefault("obj", Session())
        stand()
        keep_exit_statuses()
        forgive(sys.stdout, sys.stderr)

        def action() -> Any:
            hear_interrupts()
            return super(Program, self).main(arguments, prog_name, complete_var, standalone_mode=False, **extra)

        status = guarded(action, arguments)
        if not standalone_mode:
            return status
        sys.exit(status)


@click.group(
    "mailboxd", cls=Program, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="mailboxd", message="%(prog)s %(version)s")
@click.pass_context
def program(ctx: click.Context) -> None:
    """Turn an OpenClaw agent's mailbox into finished, audited work.

    Every command except `run` works while the daemon is down. Commands that act as the operator are refused inside an
    agent's turn. TASK is a task's local id, its id (tsk_...), or a unique prefix of either.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


program.params += shared_options()
program.epilog = """\
\b
Exit status:
   0  success                 70  a bug in mailboxd
   1  refused, or negative    73  another daemon holds the workspace
   2  usage error             75  temporary failure of disk or database
  65  invalid message or plan 78  needs the operator: configuration, keys, ...
  69  not found: workspace,  130  interrupted
      task, program
"""
