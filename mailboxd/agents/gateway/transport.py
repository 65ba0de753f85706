"""The daemon's side of the gateway transport: the gateway's address, and the program of a turn. Needs no extra."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from mailboxd.agents.json_output import at
from mailboxd.agents.openclaw import OpenClaw
from mailboxd.agents.readiness import is_loopback
from mailboxd.errors import ConfigError
from mailboxd.host.pip_extras import to_add

EXTRA = ("cryptography", "wsproto")
"""What `pip install 'mailboxd[gateway]'` brings."""


@dataclass(frozen=True, slots=True)
class GatewayTransport:
    """Runs turns over a WebSocket; `pairing` is the file of the paired device."""

    cli: OpenClaw
    pairing: Path

    def turn_argv(
        self, agent: str, session_key: str, message_file: Path | str, timeout: int, model: str | None = None
    ) -> tuple[str, ...]:
        """The program of one turn. Raises ValueError for invalid arguments.

        A turn with its own model uses the CLI: the gateway lets only administrators choose one, which the device is
        not. The idempotency key is the call's id, the name of its directory.
        """
        if model is not None:
            return self.cli.turn_argv(agent, session_key, message_file, timeout, model)
        # -P: the working directory is the agent's, and nothing must be imported from it
        program = OpenClaw((sys.executable, "-P", "-m", "mailboxd.agents.gateway", "--pairing", str(self.pairing)))
        turn = program.turn_argv(agent, session_key, message_file, timeout)
        return (*turn, "--idempotency-key", Path(message_file).parent.name)


def pairing_file(workspace: Path, environ: Mapping[str, str]) -> Path:
    """The pairing file of a workspace (its real path), in the user's state directory.

    Not in the workspace, where an agent that is confined to it could read the key and run turns of other agents.
    """
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = str(Path(environ.get("HOME") or Path.home()) / ".local" / "state")
    name = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
    return Path(state) / "mailboxd" / "gateway" / f"{name}.json"


def require_extra() -> None:
    """Raises ConfigError if the extra `gateway` is not installed."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the gateway transport needs {' and '.join(missing)}: run `{to_add('gateway')}`, "
            "or set `openclaw.transport: cli`"
        )


def ready(cli: OpenClaw, path: Path) -> GatewayTransport:
    """The transport of a paired workspace. Raises ConfigError if it is not paired."""
    require_extra()
    from mailboxd.agents.gateway import pairing

    paired = pairing.read(path)
    if paired is None or paired.token is None:
        raise ConfigError(
            f"openclaw.transport is gateway, but this workspace is not paired (no token in {path}): "
            "run `mailboxd connect gateway pair`, or set `openclaw.transport: cli`"
        )
    return GatewayTransport(cli, path)


# A gateway's address: this machine without TLS, any other only with TLS

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
    if parts.scheme == "ws" and not is_loopback(host):
        raise ConfigError(
            f"{url} would send the device's token unencrypted over the network: "
            "use wss://, or a tunnel that ends on 127.0.0.1"
        )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(url, host, port, target, secure=parts.scheme == "wss")


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
