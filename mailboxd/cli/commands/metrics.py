"""`mailboxd metrics`: how the workspace stands, for Prometheus."""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from mailboxd.cli.session import Session, agent_of, verb
from mailboxd.cli.text import say, to_json
from mailboxd.errors import EXIT_CONFIG, EXIT_TRY_AGAIN, ConfigError


@verb(
    "metrics", "metrics", "metrics --output /var/lib/node_exporter/mailboxd.prom", "metrics --serve",
    exits={EXIT_CONFIG: "the configuration is wrong, or the extra is missing", EXIT_TRY_AGAIN: "the port is taken"},
)  # fmt: skip
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write FILE, whole or not at all, for the textfile collector of node_exporter.",
)  # fmt: skip
@click.option(
    "--serve", is_flag=True, help="At `metrics.port` on 127.0.0.1, and send traces to `metrics.otlp_endpoint`."
)
@click.option("--until-eof", is_flag=True, help="With --serve: end when standard input does. The daemon uses it.")
def command(session: Session, output: Path | None, serve: bool, until_eof: bool) -> None:
    """Print the metrics of the workspace in the text format of Prometheus.

    Reads the database and works while the daemon is down. With `metrics.port` in the configuration the daemon serves
    them at http://127.0.0.1:PORT/metrics by itself, to whoever brings the bearer token that lies in
    .mailboxd/metrics.token. Needs the extra: pip install 'mailboxd[metrics]'.
    """
    if (serve and output is not None) or (until_eof and not serve):
        raise click.UsageError("--serve and --output exclude each other, and --until-eof belongs to --serve")
    if find_spec("prometheus_client") is None:
        from mailboxd.host.extras import to_add

        raise ConfigError(f"the extra is missing: {to_add('metrics')}")
    if serve:
        _serve(session, until_eof=until_eof)
        return
    from mailboxd.telemetry import exposition, measures
    from mailboxd.telemetry.tally import Tally

    ws = session.workspace()
    text = exposition.text(measures.take(ws, agent_of(ws) or "", Tally(), session.clock))
    if output is not None:
        _write(output, text)
    if session.as_json:
        say(to_json({"metrics": text.decode(), "output": str(output) if output else None}))
    elif output is None:
        say(text.decode(), newline=False)


def _serve(session: Session, *, until_eof: bool) -> None:
    from mailboxd import config, log
    from mailboxd.telemetry import serving

    ws = session.workspace()
    settings = config.load(ws.config)
    log.configure(settings.log.level, settings.log.format, sys.stderr)
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)
    port, endpoint = settings.metrics.port, settings.metrics.otlp_endpoint
    if not port and not endpoint:
        raise ConfigError(f"{ws.config}: set `metrics.port` to a free port of this machine, or `metrics.otlp_endpoint`")
    serving.serve(ws, settings.agent, session.clock, port=port, endpoint=endpoint, until_eof=until_eof)


def _write(path: Path, text: bytes) -> None:
    """Whoever reads the file sees all of it or the one before. Raises WorldError."""
    from mailboxd.workspace.files import directory, replace, world_errors

    with world_errors(f"write {path}"), directory(path.resolve().parent) as folder:
        replace(folder, path.name, text, lambda: True)
        (path.resolve().parent / path.name).chmod(0o644)  # node_exporter is another user; no name of a task is in it
