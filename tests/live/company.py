"""A company of agents on a real gateway: workspaces as its configuration names them, real daemons beside them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from tests.e2e.support import Company, Settings
from tests.live.gateway import Gateway
from tests.live.model import Model

LIVE: Settings = {"command": ["openclaw"], "discovery": "true", "turn_timeout_seconds": 90}
TRANSPORT: Settings = {"transport": os.environ["TRANSPORT"]} if "TRANSPORT" in os.environ else {}


class LiveCompany(Company):
    """Like the scripted company, but its `openclaw` is the real one and its ledger is the model's record of calls."""

    patience = 300.0
    gives_up_locked_out = True

    def __init__(self, gateway: Gateway, model: Model, agents: Sequence[str]) -> None:
        for name in agents:  # what an earlier test left there
            shutil.rmtree(gateway.workspace(name), ignore_errors=True)
            gateway.workspace(name).mkdir()
        super().__init__(gateway.root, {name: {} for name in agents}, gateway.exports)
        self.gateway = gateway
        self.model = model

    def employ(self, name: str, settings: Settings) -> None:
        """Give an agent a mailbox; `settings` are keys of mailboxd's configuration."""
        openclaw = {**LIVE, **TRANSPORT, **settings.get("openclaw", {})}
        self[name].settle_in({**settings, "openclaw": openclaw})
        if TRANSPORT and "transport" not in settings.get("openclaw", {}):
            done = self[name].call("connect", "gateway", "pair", env={"OPENCLAW_GATEWAY_TOKEN": self.gateway.token})
            assert done.returncode == 0, done.stderr

    def at_rest(self) -> None:
        """End the daemons that run; the witness, and mailboxd itself, find nothing wrong."""
        super().at_rest()
        for root in self.homes():
            done = self[root.name].call("db", "verify")
            assert done.returncode == 0, f"{root.name}: {done.stdout}{done.stderr}"
