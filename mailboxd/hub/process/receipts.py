"""The receipts that this host owes: sent once the daemon has committed a message."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from nats.errors import Error as NatsError
from nats.js.errors import APIError

from mailboxd.errors import UnavailableError
from mailboxd.hub.process.here import ThisHost, logged
from mailboxd.hub.process.workspaces import Local, Workspaces
from mailboxd.hub.wire import receipts, subjects
from mailboxd.hub.wire.receipts import Receipt
from mailboxd.store.reports import opened

BATCH = 64
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Receipts:
    """The receipts of one hub process."""

    here: ThisHost
    workspaces: Workspaces
    owed: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """Receipts to be sent once the daemon has committed: agent and message id -> sending host and digest."""

    async def send_owed(self) -> None:
        """Send the receipts of what the daemons have committed."""
        for agent, one in list(self.workspaces.local.items()):
            names = [message_id for owner, message_id in self.owed if owner == agent]
            if not names:
                continue
            with logged(f"read what {agent} has committed"):
                done = list(committed(one, names).items())
                for start in range(0, len(done), BATCH):
                    batch = done[start : start + BATCH]
                    await asyncio.gather(*(self._pay(agent, message_id, sha256) for message_id, sha256 in batch))

    async def _pay(self, agent: str, message_id: str, sha256: str) -> None:
        """Send a receipt that is owed."""
        host, expected = self.owed[agent, message_id]
        refused = "" if sha256 == expected else f"{agent} has another message with the id {message_id}"
        receipt = Receipt(message_id, expected, self.here.settings.host, host, self.here.clock.now(), refused)
        if await self.send(receipt.signed(self.here.key.sign)):
            self.owed.pop((agent, message_id), None)

    def make(self, message_id: str, raw: bytes, to: str, refused: str, sha256: str = "") -> Receipt:
        """`sha256`: the digest of what cannot be opened, as its sender says."""
        reason, sha256 = receipts.shortened(refused), sha256 or receipts.digest(raw)
        return Receipt(message_id, sha256, self.here.settings.host, to, self.here.clock.now(), reason).signed(
            self.here.key.sign
        )

    async def send(self, receipt: Receipt) -> bool:
        subject = str(subjects.receipt_subject(receipt.to, self.here.settings.host))
        try:
            await self.here.js.publish(subject, receipt.to_bytes(), headers={"Nats-Msg-Id": secrets.token_hex(16)})
        except (NatsError, APIError) as error:
            _log.debug("a receipt waits: %s", error)  # its sender will ask again, by sending the message again
            return False
        return True


def committed(one: Local, names: Iterable[str]) -> dict[str, str]:
    """The digests of the messages that the daemon has committed, by their ids."""
    with suppress(UnavailableError), opened(one.ws.database) as report:
        return report.committed(names)
    return {}
