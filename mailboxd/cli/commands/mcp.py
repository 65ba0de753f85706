"""`mailboxd connect mcp`: typed tools for agents, over the Model Context Protocol."""

from __future__ import annotations

import logging
import sys

import click

from mailboxd.cli.groups import Group
from mailboxd.cli.session import Session
from mailboxd.errors import ConfigError
from mailboxd.host import log
from mailboxd.surfaces.mcp import registration, tokens
from mailboxd.surfaces.mcp.registration import Change, OpenClawConfig, without_tokens

_dry = click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")


@click.group("mcp", cls=Group)
def mcp_command() -> None:
    """Serve typed MCP tools to agents, and register them in OpenClaw.

    Needs the extra `mcp`.
    """


@mcp_command.verb(
    "serve", "connect mcp serve --as executor:worker", "connect mcp serve --http", operator=True, extra="mcp"
)
@click.option("--as", "who", metavar="ROLE:NAME", help="The caller: executor:worker, quality_reviewer:critic ...")
@click.option("--http", "over_http", is_flag=True, help="Serve on 127.0.0.1 at `mcp.port`; clients need a token.")
@click.option("--until-eof", is_flag=True, help="With --http: exit at the end of standard input (used by the daemon).")
@click.option(
    "--on-demand",
    nargs=2,
    type=int,
    hidden=True,
    help="The descriptors of the listening socket and of what one server leaves to the next (used by the daemon).",
)
def serve(
    session: Session, who: str | None, over_http: bool, until_eof: bool, on_demand: tuple[int, int] | None
) -> None:  # fmt: skip
    """Serve the tools over standard input and output for one role and name, or over loopback HTTP.

    With `mcp.port` configured, the daemon listens and starts this when somebody asks. The daemon carries out what is
    recorded here.
    """
    if (who is None) is not over_http or (until_eof and not over_http):
        raise click.UsageError("give either --as ROLE:NAME or --http (--until-eof needs --http)")
    import socket

    from mailboxd.engine import open
    from mailboxd.host.listening import listen
    from mailboxd.surfaces.mcp import server

    ws = session.workspace()
    settings = session.config()
    log.configure(settings.log.level, settings.log.format, sys.stderr)
    for library in ("mcp", "uvicorn"):  # their messages are noise
        logging.getLogger(library).setLevel(logging.WARNING)
    service = server.ToolService(ws.root, ws.state, lambda: open.engine(ws, settings, by="tool"))
    if who is not None:
        import anyio

        anyio.run(server.stdio, service, tokens.parse(who))
    else:
        openclaw, memory = OpenClawConfig(*session.openclaw()), None
        if on_demand:
            listening, memory = socket.socket(fileno=on_demand[0]), server.Memory(on_demand[1])
        else:
            listening = listen(registration.require_port(ws, settings), "`mcp.port`", registration.HOST)
        server.serve_http(ws, service, listening, openclaw, session.clock, until_eof=until_eof, memory=memory)


@mcp_command.verb(
    "install", "connect mcp install", "connect mcp install --as quality_reviewer:critic --dry-run", operator=True
)
@click.option(
    "--as", "who", metavar="ROLE:NAME", multiple=True,
    help="Default: this agent as executor. A reviewer needs no tools to answer, but may have them.",
)  # fmt: skip
@_dry
def install(session: Session, who: tuple[str, ...], dry_run: bool) -> None:
    """Register the tools in OpenClaw: one entry for this workspace, whose token names its agent and role.

    All other agents are denied its tools, also those that are added later. Reviewers answer in their turns; one that
    shall have tools gets an entry with --as. Safe to run again: existing entries are kept, but those of reviewers that
    an earlier version added unasked are removed.
    """
    ws = session.workspace()
    settings = session.config()
    callers = [tokens.parse(one) for one in who]
    now = session.clock.now()
    change = registration.register(ws, settings, OpenClawConfig(*session.openclaw()), callers, now, dry_run=dry_run)
    _print_change(session, change, dry_run=dry_run)


@mcp_command.verb("uninstall", "connect mcp uninstall", "connect mcp uninstall --dry-run", operator=True)
@_dry
def uninstall(session: Session, dry_run: bool) -> None:
    """Remove what `install` added to OpenClaw's configuration, and revoke its tokens."""
    ws, owner = session.workspace(), session.config().agent
    change = registration.unregister(ws, owner, OpenClawConfig(*session.openclaw()), dry_run=dry_run)
    _print_change(session, change, dry_run=dry_run)


@mcp_command.verb("token", "connect mcp token executor:worker", operator=True)
@click.argument("who", metavar="ROLE:NAME")
@click.option("--revoke", is_flag=True, help="Revoke the token instead.")
def token(session: Session, who: str, revoke: bool) -> None:
    """Print a new bearer token for another local MCP client. It is shown once and replaces the previous one."""
    ws = session.workspace()
    holder = tokens.parse(who)
    if holder.role not in tokens.AGENT_ROLES:
        raise ConfigError(
            f"{holder}: the role {holder.role} cannot have a token; use `mailboxd connect mcp serve --as {who}`"
        )
    kept = [grant for grant in tokens.load(ws) if grant.entry or grant.caller != holder]
    made = "" if revoke else tokens.new_token()
    if made:
        kept.append(tokens.Grant(holder, tokens.fingerprint(made), session.clock.now()))
    tokens.save(ws, kept)
    session.answer({"caller": str(holder), "token": made or None}, made or f"{holder} has no token any more")


def _print_change(session: Session, change: Change, *, dry_run: bool) -> None:
    lines = [f"would change: {what}" if dry_run else what for what in change.done] or ["nothing to do"]
    patch = without_tokens(change.patch)
    session.answer({"changes": change.done, "patch": patch, "applied": not dry_run}, "\n".join(lines))
