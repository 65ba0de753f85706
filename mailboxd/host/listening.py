"""Sockets that listen for this machine alone. Needs no extra, unlike the server (`host.loopback`)."""

from __future__ import annotations

import errno
import ipaddress
import socket

from mailboxd.errors import ConfigError, WorldError

HOST = "127.0.0.1"
BACKLOG = 64


def listen(port: int, setting: str, host: str = HOST) -> socket.socket:
    """A socket that listens there; port 0 is any that is free. `setting` is what chose the port.

    Raises ConfigError for an address that is not loopback, WorldError when the port is taken.
    """
    if not is_loopback(host):
        raise ConfigError(
            f"{host} is not loopback: it is served to this machine alone, on 127.0.0.1 or ::1; "
            f"from elsewhere, forward the port: `ssh -L {port or 8770}:127.0.0.1:{port or 8770} HOST`"
        )
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        taken = error.errno == errno.EADDRINUSE
        hint = f"another program listens there; choose another {setting}" if taken else error.strerror
        raise WorldError(f"cannot listen on {host}:{port}: {hint}") from error
    return listening


def is_loopback(host: str) -> bool:
    """Whether the text is an address of this machine alone; a name is none, whatever it resolves to."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
