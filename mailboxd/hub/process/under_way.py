"""Messages under way: when each was sent, how often, when it is asked about, and what has to wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from mailboxd.host.clock import Clock
from mailboxd.hub.process.here import RETRY
from mailboxd.hub.wire import mail


@dataclass(frozen=True, slots=True)
class Held:
    """A message that is not offered now."""

    until: float
    why: str
    to: str = ""
    """The receiver, in lower case, if it or the server does not take its mail."""
    seen: tuple[str, str] | None = None
    """How it stood with a receiver that could not take it (`Presence.standing`)."""


@dataclass(slots=True)
class UnderWay:
    """What this run of the process remembers of the messages that it sends."""

    clock: Clock
    sent_at: dict[str, float] = field(default_factory=dict)
    copies: Counter[str] = field(default_factory=Counter)
    """How often each message was sent that has no receipt."""
    asked: Counter[str] = field(default_factory=Counter)
    """How often its receiver has said that it is there."""
    put_off: Counter[str] = field(default_factory=Counter)
    """How often its receiver could not take it."""
    waiting: dict[str, Held] = field(default_factory=dict)

    def wait(self, message_id: str, why: str, to: str = "") -> None:
        """Try a message again later; `to` is the receiver, if the server does not take its mail."""
        self.waiting[message_id] = Held(self.clock.monotonic() + RETRY, why, to.lower())

    def offer_later(self, message_id: str, why: str, to: str, seen: tuple[str, str]) -> None:
        """Its receiver cannot take a message now: offer it again after a pause that grows."""
        self.put_off[message_id] += 1
        until = self.clock.monotonic() + mail.pause(self.put_off[message_id])
        self.waiting[message_id] = Held(until, why, to.lower(), seen)

    def sent(self, message_id: str) -> None:
        self.sent_at[message_id] = self.clock.monotonic()
        self.copies[message_id] += 1
        del self.asked[message_id]

    def is_there(self, message_id: str) -> None:
        """Its receiver has it, and has not committed it yet."""
        self.asked[message_id] += 1

    def may_ask(self, message_id: str) -> bool:
        """Whether its receiver is to be asked about a message without a receipt."""
        now = self.clock.monotonic()
        return now - self.sent_at.setdefault(message_id, now) >= mail.asked_after(self.asked[message_id])

    def settled(self, message_id: str) -> None:
        """Its receipt has come."""
        self.sent_at.pop(message_id, None)
        for counter in (self.copies, self.asked, self.put_off):
            del counter[message_id]

    def due_again(self, is_back: Callable[[Held], bool]) -> None:
        """Forget the waits that are over, also because the receiver `is_back`."""
        now = self.clock.monotonic()
        self.waiting = {name: held for name, held in self.waiting.items() if held.until > now and not is_back(held)}
