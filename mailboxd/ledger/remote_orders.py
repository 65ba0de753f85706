"""Orders that came over OpenClaw's gateway, as their events tell of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

SENT, REPEATED = "Sent to ", "Once only: "
"""How the answers to `send` begin: there is a task, or there was one of these words just before."""
_LATEST = 500
"""The gateway hands an order over again for seconds only."""


class RemoteOrders:
    """The remote orders of a workspace."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def given(self, order_id: str) -> dict[str, Any] | None:
        """The order with this id, with its answer; None if it was not carried out yet."""
        return next((data for _, data in self._latest() if data["id"] == order_id), None)

    def sent(self, words: str, since: str) -> str | None:
        """What was answered since then to an order `send` of these words that made a task; None without one."""
        found = (
            data
            for at, data in self._latest()
            if at >= since and data["order"] == "send" and str(data["answer"]).startswith(SENT)
        )
        return next((str(data["answer"]) for data in found if data["words"] == words), None)

    def _latest(self) -> Iterator[tuple[str, dict[str, Any]]]:
        rows = self._db.execute(
            "SELECT at, data FROM events INDEXED BY events_of_remote_orders WHERE kind = 'order.remote'"
            f" ORDER BY seq DESC LIMIT {_LATEST}"
        )
        return ((at, json.loads(data)) for at, data in rows)
