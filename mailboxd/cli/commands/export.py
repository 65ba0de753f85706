"""`mailboxd export`: metrics for Prometheus, traces for OpenTelemetry; archives and messages are elsewhere."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mailboxd.cli.groups import LazyGroup
from mailboxd.cli.session import Session, agent_of, task_argument, verb
from mailboxd.cli.text import say, to_json
from mailboxd.core.sanitize import for_terminal
from mailboxd.errors import EXIT_CONFIG, EXIT_TRY_AGAIN, EXIT_UNAVAILABLE, ConfigError

if TYPE_CHECKING:
    from mailboxd.store.reports import Report


export_command = LazyGroup(
    "export",
    {
        "Commands": {
            "metrics": "export", "traces": "export", "archive": "audit", "message": "send",
        }
    },
    help="Export metrics, traces, a task with all its files, or a single message.",
)  # fmt: skip


@verb(
    "metrics", "export metrics", "export metrics --serve",
    exits={EXIT_CONFIG: "the extra is not installed", EXIT_TRY_AGAIN: "the port is taken"}, extra="metrics",
)  # fmt: skip
@click.option(
    "--serve", is_flag=True, help="Serve on 127.0.0.1 at `metrics.port`, and send traces to `metrics.otlp_endpoint`."
)
@click.option("--until-eof", is_flag=True, help="With --serve: exit at the end of standard input (used by the daemon).")
def metrics_command(session: Session, serve: bool, until_eof: bool) -> None:
    """Print the workspace's metrics in Prometheus text format.

    Works while the daemon is down. With `metrics.port` configured, the daemon serves http://127.0.0.1:PORT/metrics,
    protected by the bearer token in .mailboxd/metrics.token. Needs the extra `metrics`.
    """
    if until_eof and not serve:
        raise click.UsageError("--until-eof requires --serve")
    if serve:
        _serve(session, until_eof=until_eof)
        return
    from mailboxd.telemetry import metrics
    from mailboxd.telemetry.metrics import Counters

    ws = session.workspace()
    text = metrics.text(metrics.measure(ws, agent_of(ws) or "", Counters(), session.clock))
    say(to_json({"metrics": text.decode()}) if session.as_json else text.decode(), newline=session.as_json)


def _serve(session: Session, *, until_eof: bool) -> None:
    from mailboxd import config, log
    from mailboxd.telemetry import server

    ws = session.workspace()
    settings = config.load(ws.config)
    log.configure(settings.log.level, settings.log.format, sys.stderr)
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)
    port, endpoint = settings.metrics.port, settings.metrics.otlp_endpoint
    if not port and not endpoint:
        raise ConfigError(f"{ws.config}: set `metrics.port` to a free port of this machine, or `metrics.otlp_endpoint`")
    server.serve(ws, settings.agent, session.clock, port=port, endpoint=endpoint, until_eof=until_eof)


@verb(
    "traces", "export traces --otlp http://127.0.0.1:4318/v1/traces", "export traces q3 --file q3.jsonl",
    exits={EXIT_UNAVAILABLE: "the receiver did not accept the spans",
           EXIT_CONFIG: "the extra is not installed, or the URL is invalid"}, extra="metrics",
)  # fmt: skip
@task_argument(required=False)
@click.option("--otlp", metavar="URL", help="Send the spans by OTLP over HTTP.")
@click.option(
    "--file", "path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write OTLP JSON, one batch per line (- is standard output).",
)  # fmt: skip
def traces_command(session: Session, task: str | None, otlp: str | None, path: Path | None) -> None:
    """Export traces, one per root task, across subtasks and peers: of all tasks, or of TASK and its subtasks.

    Needs the extra `metrics`. The spans are built from the events and their ids are
    deterministic, so exporting again gives the same spans. With `metrics.otlp_endpoint` configured, the daemon exports
    spans as they end. Set the receiver's credentials in OTEL_EXPORTER_OTLP_HEADERS.
    """
    if (otlp is None) == (path is None):
        raise click.UsageError("give --otlp URL or --file FILE")
    from mailboxd.telemetry import traces

    ws = session.workspace()
    agent = agent_of(ws) or ""
    target = None if otlp is None else traces.Endpoint(_address(otlp), agent)
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)
    lines, count = [], 0
    with session.report() as report:
        tree = None if task is None else _tree(report, task)
        for _, spans in traces.batches(report, 0, lambda name: tree is None or name in tree):
            count += len(spans)
            if spans and target is not None:
                target.send(spans)
            elif spans:
                lines.append(traces.line(spans, agent))
    if path is not None:
        _append(path, b"".join(lines))
    if session.as_json and str(path) != "-":
        say(to_json({"spans": count}))
    elif str(path) != "-":
        say(for_terminal(f"{count} spans: {otlp or path}"))


def _tree(report: Report, name: str) -> set[str]:
    found: set[str] = set()
    nodes = [report.tree(report.find(name))]
    while nodes:
        node = nodes.pop()
        found.add(node["id"])
        nodes += node["children"]
    return found


def _address(text: str) -> str:
    from pydantic import ValidationError

    from mailboxd.config.model import MetricsSection

    try:
        return MetricsSection(otlp_endpoint=text).otlp_endpoint
    except ValidationError as error:
        raise ConfigError(f"--otlp: {error.errors()[0]['ctx']['error']}") from None


def _append(path: Path, raw: bytes) -> None:
    from mailboxd.mailbox.files import directory, replace, world_errors

    if str(path) == "-":
        say(raw.decode(), newline=False)
        return
    with world_errors(f"write {path}"), directory(path.resolve().parent) as folder:
        replace(folder, path.name, raw, lambda: True)
