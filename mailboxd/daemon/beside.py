"""Programs of ours that run beside the daemon, if the configuration wants them: typed tools, the page, instruments."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from mailboxd.agents.openclaw import child_environment
from mailboxd.agents.service import Service
from mailboxd.config import Config
from mailboxd.errors import ConfigError
from mailboxd.host.extras import to_add
from mailboxd.workspace.layout import Workspace

_OTLP = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_CERTIFICATE")
"""What a receiver of traces wants of credentials, by the names that OpenTelemetry gave them."""


def services(ws: Workspace, config: Config) -> Iterator[Service]:
    """Each as a process of its own, which opens the database as a command does. Raises ConfigError."""
    if config.mcp.port:
        yield _service(ws, "mcp", ("mcp",), "mcp", "serve", "--http")
    if config.web.port:
        yield _service(ws, "web", ("starlette", "uvicorn"), "web", "--port", str(config.web.port))
    if config.metrics.port or config.metrics.otlp_endpoint:
        yield _service(ws, "metrics", ("prometheus_client", "opentelemetry"), "metrics", "--serve")


def _service(ws: Workspace, extra: str, needs: tuple[str, ...], *words: str) -> Service:
    if any(find_spec(name) is None for name in needs):
        raise ConfigError(f"{ws.config}: `{extra}` is set, and the extra is missing: {to_add(extra)}")
    argv = [sys.executable, "-P", "-m", "mailboxd.cli", *words, "--until-eof", "-w", str(ws.root)]
    passed = _OTLP if extra == "metrics" else ()
    return Service(f"mailboxd {words[0]}", argv, child_environment(os.environ, passed))
