"""`mailboxd run`: the daemon, in the foreground."""

from __future__ import annotations

import click

from mailboxd.cli.session import Session, verb
from mailboxd.errors import EXIT_CONFIG


@verb(
    "run",
    "run",
    "run --until-idle",
    "run --log-format json --log-level debug",
    exits={
        EXIT_CONFIG: "a network file system, or the database was modified or is older than the files",
    },
)
@click.option("--until-idle", is_flag=True, help="Exit when no work is left.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Default: `log.format` in the configuration.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Default: `log.level` in the configuration.",
)
@click.option(
    "--allow-network-fs",
    is_flag=True,
    help="Allow NFS, SMB, 9p, FUSE ..., by polling. Safe only if no other machine uses the workspace.",
)
def run_command(
    session: Session, until_idle: bool, log_format: str | None, log_level: str | None, allow_network_fs: bool
) -> None:
    """Run the daemon: accept messages, schedule tasks, call agents and send replies.

    One daemon per workspace. Logs go to standard error (--json means --log-format json). SIGTERM and SIGINT wait for
    running turns; a second signal stops immediately. Nothing is lost either way.

    While the disk is full or another process locks the database, the daemon pauses, reports it in `mailboxd status`,
    and resumes. It refuses to start on a database that is missing, damaged, modified, or older than archive/ and
    outbox/.
    """
    import sys

    from mailboxd import config, log
    from mailboxd.daemon import supervise

    ws = session.workspace()
    settings = config.load(ws.config)
    form = log_format or ("json" if session.as_json else settings.log.format)
    log.configure(log_level or settings.log.level, form, sys.stderr)
    supervise.serve(ws, settings, until_idle=until_idle, allow_network=allow_network_fs)
