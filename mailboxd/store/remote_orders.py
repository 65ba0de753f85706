"""Orders that came over OpenClaw's gateway, as their events tell of them."""

from __future__ import annotations

import json
import sqlite3

_LATEST = 500
"""The gateway hands an order over again for seconds only."""


class RemoteOrders:
    """The remote orders of a workspace."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def answer(self, order_id: str) -> str | None:
        """What was answered to the order with this id; None if it was not carried out yet."""
        rows = self._db.execute(
            "SELECT data FROM events INDEXED BY events_of_remote_orders WHERE kind = 'order.remote'"
            f" ORDER BY seq DESC LIMIT {_LATEST}"
        )
        found = (data for (text,) in rows if (data := json.loads(text))["id"] == order_id)
        return next((str(data["answer"]) for data in found), None)
