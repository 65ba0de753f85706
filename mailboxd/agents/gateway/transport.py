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
            "run `mailboxd gateway pair`, or set `openclaw.transport: cli`"
        )
    return GatewayTransport(cli, path)
