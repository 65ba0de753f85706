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
    exits={EXIT_LOCKED: "another daemon holds the workspace", EXIT_CONFIG: "the configuration is wrong"},
)
@click.option("--until-idle", is_flag=True, help="Do everything there is to do, then exit.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Default: `log.format` of the configuration.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Default: `log.level` of the configuration.",
)
def command(session: Session, until_idle: bool, log_format: str | None, log_level: str | None) -> None:
    """Serve the workspace: take what arrives, schedule, call agents, answer.

    One daemon per workspace. The log goes to standard error (--json is --log-format json). SIGTERM and SIGINT end it
    once the running turns have ended; a second one ends it at once. Nothing is lost either way.
    """
    import sys

    from mailboxd import assemble, config, log
    from mailboxd.wake import signals

    ws = session.workspace()
    settings = config.load(ws.config)
    form = log_format or ("json" if session.as_json else settings.log.format)
    log.configure(log_level or settings.log.level, form, sys.stderr)
    with assemble.daemon(ws, settings) as daemon, signals(daemon.stop, daemon.wake.poke):
        daemon.run(until_idle=until_idle)
