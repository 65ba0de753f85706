"""`mailboxd export`: metrics for Prometheus and traces for OpenTelemetry; archives and messages are elsewhere."""

from __future__ import annotations

import logging
import sys

import click

from mailboxd.cli.groups import LazyGroup
from mailboxd.cli.session import Session, agent_of, verb
from mailboxd.cli.text import say, to_json
from mailboxd.errors import ConfigError

export_command = LazyGroup(
    "export",
    {
        "Commands": {
            "metrics": "export", "archive": "audit", "message": "send",
        }
    },
    help="Export metrics, a task with all its files, or a single message.",
)  # fmt: skip


@verb("metrics", "export metrics", "export metrics --serve", extra="metrics")
@click.option(
    "--serve", is_flag=True, help="Serve on 127.0.0.1 at `metrics.port`, and send traces to `metrics.otlp_endpoint`."
)
@click.option("--until-eof", is_flag=True, help="With --serve: exit at the end of standard input (used by the daemon).")
def metrics_command(session: Session, serve: bool, until_eof: bool) -> None:
    """Print the workspace's metrics in Prometheus text format.

    Works while the daemon is down. With `metrics.port` configured, the daemon serves http://127.0.0.1:PORT/metrics,
    protected by the bearer token in .mailboxd/metrics.token; with `metrics.otlp_endpoint`, it sends traces there, with
    the receiver's credentials in OTEL_EXPORTER_OTLP_HEADERS. Needs the extra `metrics`.
    """
    if until_eof and not serve:
        raise click.UsageError("--until-eof requires --serve")
    if serve:
        _serve(session, until_eof=until_eof)
        return
    from mailboxd.surfaces.telemetry import metrics
    from mailboxd.surfaces.telemetry.metrics import Counters

    ws = session.workspace()
    text = metrics.text(ws, agent_of(ws) or "", Counters(), session.clock)
    say(to_json({"metrics": text.decode()}) if session.as_json else text.decode(), newline=session.as_json)


def _serve(session: Session, *, until_eof: bool) -> None:
    from mailboxd.formats import config
    from mailboxd.host import log
    from mailboxd.surfaces.telemetry import server

    ws = session.workspace()
    settings = config.load(ws.config)
    log.configure(settings.log.level, settings.log.format, sys.stderr)
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)
    port, endpoint = settings.metrics.port, settings.metrics.otlp_endpoint
    if not port and not endpoint:
        raise ConfigError(f"{ws.config}: set `metrics.port` to a free port of this machine, or `metrics.otlp_endpoint`")
    server.serve(ws, settings.agent, session.clock, port=port, endpoint=endpoint, until_eof=until_eof)
