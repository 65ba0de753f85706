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
from mailboxd.hub.process.here import RETRY, ThisHost, logged
from mailboxd.hub.process.workspaces import Local, Workspaces
from mailboxd.hub.wire import receipts, subjects
from mailboxd.hub.wire.receipts import Receipt, ReceiptStage
from mailboxd.ledger.reports import opened

BATCH = 64
_IN_INBOX = 5.0
"""Seconds that mail lies in an inbox until its sender is told that it is there."""
_SUBJECT_IS_FULL = 10077
"""The server's code."""
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Owed:
    """A receipt that is sent once the daemon has committed a message."""

    host: str
    sha256: str
    since: float
    is_told: bool = False
    """The sender knows that the message is in the inbox."""


@dataclass(slots=True)
class Receipts:
    """The receipts of one hub process."""

    here: ThisHost
    workspaces: Workspaces
    owed: dict[tuple[str, str, str], Owed] = field(default_factory=dict)
    """By agent, the host that sent the message, and its id: another host may use the same."""
    _full: dict[str, float] = field(default_factory=dict)
    """Hosts for which the server takes no more receipts, as they do not read them, and until when none is tried."""

    def owe(self, agent: str, message_id: str, host: str, sha256: str, *, is_told: bool = False) -> None:
        """Send the receipt of a message to its host once it is committed."""
        self.owed[agent, host, message_id] = Owed(host, sha256, self.here.clock.monotonic(), is_told)

    async def send_owed(self) -> None:
        """Send the receipts of what the daemons have committed."""
        for agent, one in list(self.workspaces.local.items()):
            for host in {host for owner, host, _ in self.owed if owner == agent}:
                with logged(f"read what {agent} has committed"):
                    await self._pay_host(agent, one, host)

    async def _pay_host(self, agent: str, one: Local, host: str) -> None:
        """Raises WorldError."""
        owed = {name: each for (owner, to, name), each in self.owed.items() if (owner, to) == (agent, host)}
        done, until = committed(one, host, owed), self.here.clock.monotonic() - _IN_INBOX
        waits = [name for name, each in owed.items() if name not in done and each.since < until]
        due = [*done.items(), *((name, "") for name in waits if not owed[name].is_told)]
        for start in range(0, len(due), BATCH):
            batch = due[start : start + BATCH]
            await asyncio.gather(*(self._pay((agent, host, message_id), sha256) for message_id, sha256 in batch))

    async def _pay(self, key: tuple[str, str, str], sha256: str) -> None:
        """Send a receipt that is owed; without the digest of what was committed, that the message is in the inbox."""
        owed, (agent, _, message_id) = self.owed[key], key
        if self._is_full(owed.host):
            return
        stage, reason = ReceiptStage.TAKEN if sha256 else ReceiptStage.ARRIVED, ""
        if sha256 and sha256 != owed.sha256:
            stage, reason = ReceiptStage.REFUSED, f"{agent} has another message with the id {message_id}"
        if await self.send(self._signed(message_id, owed.sha256, owed.host, reason, stage)):
            owed.is_told = True
            if sha256:
                self.owed.pop(key, None)

    def make(
        self,
        message_id: str,
        raw: bytes,
        to: str,
        reason: str,
        sha256: str = "",
        stage: ReceiptStage = ReceiptStage.REFUSED,
    ) -> Receipt:
        """The receipt that a message is refused, or cannot be taken now.

        `sha256`: the digest of what cannot be opened, as its sender says.
        """
        return self._signed(message_id, sha256 or receipts.digest(raw), to, receipts.shortened(reason), stage)

    def _signed(self, message_id: str, sha256: str, to: str, reason: str, stage: ReceiptStage) -> Receipt:
        own, at = self.here.settings.host, self.here.clock.now()
        return Receipt(message_id, sha256, own, to, at, stage, reason).signed(self.here.key.sign)

    def _is_full(self, host: str) -> bool:
        return self._full.get(host, 0.0) > self.here.clock.monotonic()

    async def send(self, receipt: Receipt) -> bool:
        if self._is_full(receipt.to):
            return False
        subject = str(subjects.receipt_subject(receipt.to, self.here.settings.host))
        try:
            await self.here.js.publish(subject, receipt.to_bytes(), headers={"Nats-Msg-Id": secrets.token_hex(16)})
        except (NatsError, APIError) as error:
            _log.debug("a receipt waits: %s", error)  # its sender will ask
            if getattr(error, "err_code", None) == _SUBJECT_IS_FULL:
                self._full[receipt.to] = self.here.clock.monotonic() + RETRY
            return False
        return True


def committed(one: Local, host: str, names: Iterable[str]) -> dict[str, str]:
    """The digests of the messages of a host that the daemon has committed, by their ids."""
    with suppress(UnavailableError), opened(one.ws.database) as report:
        return report.committed(host, names)
    return {}
