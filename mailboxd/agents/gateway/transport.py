"""The daemon's side of the gateway transport: which program runs which turn."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mailboxd.agents.openclaw import OpenClaw
from mailboxd.errors import ConfigError
from mailboxd.host.pip_extras import to_add

EXTRA = ("cryptography", "wsproto")
"""What `pip install 'mailboxd[gateway]'` brings."""


@dataclass(frozen=True, slots=True)
class GatewayTransport:
    """Turns over a WebSocket of our own; a `dispatcher.Dispatcher`. `pairing` is the file of the device."""

    cli: OpenClaw
    pairing: Path

    def turn_argv(
        self, agent: str, session_key: str, message_file: Path | str, timeout: int, model: str | None = None
    ) -> tuple[str, ...]:
        """The program of one turn. Raises ValueError for what is no turn.

        A turn with a model of its own goes through the CLI: the gateway lets only administrators choose one, and the
        device is none. The idempotency key is the call's id, which is the name of its directory.
        """
        if model is not None:
            return self.cli.turn_argv(agent, session_key, message_file, timeout, model)
        # -P: the directory that we run in is the agent's, and must not be a place to import from.
        program = OpenClaw((sys.executable, "-P", "-m", "mailboxd.agents.gateway", "--pairing", str(self.pairing)))
        turn = program.turn_argv(agent, session_key, message_file, timeout)
        return (*turn, "--idempotency-key", Path(message_file).parent.name)


def pairing_file(workspace: Path, environ: Mapping[str, str]) -> Path:
    """Where the device of this workspace (its real path) is kept: in the user's state directory.

    Not in the workspace: an agent that OpenClaw confines to it could read the key there, and run turns of others.
    """
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = str(Path(environ.get("HOME") or Path.home()) / ".local" / "state")
    name = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
    return Path(state) / "mailboxd" / "gateway" / f"{name}.json"


def require_extra() -> None:
    """Raises ConfigError if what the transport needs is not installed."""
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the gateway transport needs {' and '.join(missing)}: run `{to_add('gateway')}`, "
            "or set `openclaw.transport: cli`"
        )


def ready(cli: OpenClaw, path: Path) -> GatewayTransport:
    """The transport of a workspace that is paired. Raises ConfigError if it is not, or cannot be."""
    require_extra()
    from mailboxd.agents.gateway import pairing

    paired = pairing.read(path)
    if paired is None or paired.token is None:
        raise ConfigError(
            f"openclaw.transport is gateway, but this workspace is not paired with one (there is no token in {path}): "
            "run `mailboxd gateway pair`, or set `openclaw.transport: cli`"
        )
    return GatewayTransport(cli, path)
