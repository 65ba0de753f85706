"""`mailboxd run`: the daemon, in the foreground."""

from __future__ import annotations

import click

from mailboxd.cli.session import Session, verb
from mailboxd.errors import EXIT_CONFIG, EXIT_LOCKED


@verb(
    "run",
    "run",
    "run --until-idle",
    "run --log-format json --log-level debug",
    exits={
        EXIT_LOCKED: "another daemon holds the workspace",
        EXIT_CONFIG: "the configuration is wrong, the workspace is on a network file system, or the database is older "
        "than the files around it or was changed",
    },
)
@click.option("--until-idle", is_flag=True, help="Do everything there is to do, then exit.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Default: `log.format` of the configuration.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Default: `log.level` of the configuration.",
)
@click.option(
    "--allow-network-fs",
    is_flag=True,
    help="Serve a workspace on NFS, SMB, 9p, FUSE ..., by polling. Only where no other machine ever uses it.",
)
def run_command(
    session: Session, until_idle: bool, log_format: str | None, log_level: str | None, allow_network_fs: bool
) -> None:
    """Serve the workspace: take what arrives, schedule, call agents, answer.

    One daemon per workspace. The log goes to standard error (--json is --log-format json). SIGTERM and SIGINT end it
    once the running turns have ended; a second one ends it at once. Nothing is lost either way.

    While the disk is full or another process keeps the database locked it stands still, says so (`mailboxd status`),
    and goes on by itself. A database that is damaged or gone it does not replace, and one that is older than
    archive/ and outbox/ or whose log was changed it does not serve: it refuses to start.
    """
    import sys

    from mailboxd import config, log
    from mailboxd.daemon import supervise

    ws = session.workspace()
    settings = config.load(ws.config)
    form = log_format or ("json" if session.as_json else settings.log.format)
    log.configure(log_level or settings.log.level, form, sys.stderr)
    supervise.serve(ws, settings, until_idle=until_idle, allow_network=allow_network_fs)
