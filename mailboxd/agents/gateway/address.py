"""A gateway's address: this machine without TLS, any other with TLS only. Needs no extra."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from mailboxd.agents.json_output import at
from mailboxd.errors import ConfigError

_PORTS = {"ws": 80, "wss": 443}
_DEFAULT_PORT = 18789


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a gateway's validated URL."""

    url: str
    host: str
    port: int
    target: str
    """Path and query."""
    secure: bool


def parse_address(url: str) -> Address:
    """The parts of a gateway's URL. Raises ConfigError for anything but wss, or ws to a loopback address.

    A password in the URL (`wss://user:secret@host`) is refused as well: URLs are displayed and logged.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise ConfigError(f"{url!r} is not a gateway URL: {error}") from None
    if parts.scheme not in _PORTS or not host or not url.isprintable():
        raise ConfigError(f"{url!r} is not a gateway URL: write ws://127.0.0.1:18789 or wss://host")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the URL of a gateway must not contain a password: URLs are displayed and logged")
    if parts.scheme == "ws" and not _is_loopback(host):
        raise ConfigError(
            f"{url} would send the device's token unencrypted over the network: "
            "use wss://, or a tunnel that ends on 127.0.0.1"
        )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(url, host, port, target, secure=parts.scheme == "wss")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def from_config(section: object, environ: Mapping[str, str]) -> str:
    """The gateway that OpenClaw itself would use: from its variables, then the `gateway` section of its configuration.

    Raises ConfigError for `mode: remote` without a URL.
    """
    if named := environ.get("OPENCLAW_GATEWAY_URL", "").strip():
        return named
    if at(section, "mode") == "remote":
        remote = at(section, "remote", "url")
        if not isinstance(remote, str) or not remote:
            raise ConfigError("OpenClaw's gateway.mode is remote, but gateway.remote.url is not set; use --url")
        return remote
    port = environ.get("OPENCLAW_GATEWAY_PORT", "").strip() or at(section, "port") or _DEFAULT_PORT
    return f"{'wss' if at(section, 'tls', 'enabled') is True else 'ws'}://127.0.0.1:{port}"
