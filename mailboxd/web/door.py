"""The listener of the page: loopback, and nowhere else."""

from __future__ import annotations

import logging
import socket

from mailboxd.host import loopback
from mailboxd.web.app import Site
from mailboxd.web.guard import Guard

_AT_ONCE = 64
"""Connections; more are answered 503."""
_log = logging.getLogger("mailboxd")


def address(listening: socket.socket) -> str:
    """What to open: `http://127.0.0.1:8770`."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def names(listening: socket.socket) -> frozenset[str]:
    """What a browser may have called us."""
    port = listening.getsockname()[1]
    return frozenset({address(listening).removeprefix("http://"), f"localhost:{port}"})


def serve(site: Site, listening: socket.socket, *, until_eof: bool) -> None:
    """Serve until a signal, or with `until_eof` until standard input ends."""
    _log.info("the page is at %s", address(listening))
    guarded = Guard(site.application(), names(listening))
    try:
        loopback.serve(
            guarded, listening, until_eof=until_eof, ending=site.ending, lifespan="off", limit_concurrency=_AT_ONCE
        )
    finally:
        site.watch.close()
