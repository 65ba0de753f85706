"""Messages under way: when each was sent, how often, and what has to wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mailboxd.clock import Clock
from mailboxd.hub.process.here import RETRY


@dataclass(slots=True)
class UnderWay:
    """What this run of the process remembers of the messages that it sends."""

    clock: Clock
    sent_at: dict[str, float] = field(default_factory=dict)
    copies: Counter[str] = field(default_factory=Counter)
    """How often each message was sent that has no receipt."""
    waiting: dict[str, tuple[float, str, str]] = field(default_factory=dict)
    """Until when a message is not offered again, why, and the receiver if the server does not take its mail."""

    def wait(self, message_id: str, why: str, to: str = "") -> None:
        """Try a message again later; `to` is the receiver, if the server does not take its mail."""
        self.waiting[message_id] = (self.clock.monotonic() + RETRY, why, to.lower())

    def sent(self, message_id: str) -> None:
        self.sent_at[message_id] = self.clock.monotonic()
        self.copies[message_id] += 1

    def settled(self, message_id: str) -> None:
        """Its receipt has come."""
        self.sent_at.pop(message_id, None)
        del self.copies[message_id]

    def due_again(self) -> None:
        """Forget the waits that are over."""
        now = self.clock.monotonic()
        self.waiting = {name: said for name, said in self.waiting.items() if said[0] > now}
