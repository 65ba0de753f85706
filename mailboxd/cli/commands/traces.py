"""`mailboxd traces`: what happened, as OpenTelemetry's spans."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mailboxd.cli.session import Session, agent_of, task_argument, verb
from mailboxd.cli.text import plain, say, to_json
from mailboxd.errors import EXIT_CONFIG, EXIT_UNAVAILABLE, ConfigError

if TYPE_CHECKING:
    from mailboxd.store.report import Report


@click.group("traces")
def command() -> None:
    """Traces: one for each piece of work, through every child and peer. Needs the extra: 'mailboxd[metrics]'."""


@verb(
    "export", "traces export --otlp http://127.0.0.1:4318/v1/traces", "traces export q3 --file q3.jsonl",
    exits={EXIT_UNAVAILABLE: "there is no workspace, no such task, or nobody takes the spans",
           EXIT_CONFIG: "the extra is missing, or the address is none"},
)  # fmt: skip
@task_argument(required=False)
@click.option("--otlp", metavar="URL", help="Send them there, by OTLP over HTTP.")
@click.option(
    "--file", "path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write them there as OTLP in JSON, a line for each batch; - is standard output.",
)  # fmt: skip
def _export(session: Session, task: str | None, otlp: str | None, path: Path | None) -> None:
    """Make the spans of TASK and all below it (default: of all tasks) from the events, and hand them over.

    Their ids follow from what they are about: doing it again gives the same spans. `metrics.otlp_endpoint` in the
    configuration has the daemon do it by itself, as spans end. What a receiver wants as credentials goes into the
    environment, OTEL_EXPORTER_OTLP_HEADERS.
    """
    if (otlp is None) == (path is None):
        raise click.UsageError("say where they go: --otlp URL or --file FILE")
    if find_spec("opentelemetry") is None:
        from mailboxd.host.extras import to_add

        raise ConfigError(f"the extra is missing: {to_add('metrics')}")
    from mailboxd.telemetry import exporting, otlp as form  # noqa: I001, RUF100

    ws = session.workspace()
    agent = agent_of(ws) or ""
    target = None if otlp is None else form.Endpoint(_address(otlp), agent)
    logging.getLogger("urllib3").setLevel(logging.CRITICAL)
    lines, count = [], 0
    with session.report() as report:
        tree = None if task is None else _tree(report, task)
        for _, spans in exporting.batches(report, 0, lambda name: tree is None or name in tree):
            count += len(spans)
            if spans and target is not None:
                target.send(spans)
            elif spans:
                lines.append(form.line(spans, agent))
    if path is not None:
        _write(path, b"".join(lines))
    if session.as_json and str(path) != "-":
        say(to_json({"spans": count}))
    elif str(path) != "-":
        say(plain(f"{count} spans: {otlp or path}"))


command.add_command(_export)


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


def _write(path: Path, raw: bytes) -> None:
    from mailboxd.workspace.files import directory, replace, world_errors

    if str(path) == "-":
        say(raw.decode(), newline=False)
        return
    with world_errors(f"write {path}"), directory(path.resolve().parent) as folder:
        replace(folder, path.name, raw, lambda: True)
