"""What one host asks another: NATS request and reply, signed and sealed by both, and stored nowhere."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from mailboxd.core.sanitize import first_line
from mailboxd.errors import MailboxdError, UnavailableError
from mailboxd.hub.process.here import ThisHost
from mailboxd.hub.process.probe import Trial
from mailboxd.hub.wire import subjects

Handler = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Answers what a host asks. Raises MailboxdError with the reason if there is no answer."""
_MOST_AT_ONCE, _MOST_OF_ONE, _LARGEST = 32, 4, 1 << 20
"""Requests that are answered at the same time, those of one host, and bytes of an answer."""
_RATE, _BURST, _UNIT = 20.0, 100.0, 1 << 16
"""What is read of one host: so many a second and at once; a long one counts for one more with each so many bytes."""
_PENDING, _PENDING_BYTES = 4_096, 32 << 20
"""What waits to be looked at, of all hosts."""
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Allowances:
    """How much of what each host says is still read: it grows again with time."""

    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    """What is left of it for each host, and when that was; times in seconds."""

    def allows(self, host: str, size: int, now: float) -> bool:
        """Whether something of so many bytes is read. It costs no more than a look, whoever says it."""
        before, at = self._left.get(host, (_BURST, now))
        left = min(_BURST, before + (now - at) * _RATE)
        cost = min(_BURST, 1.0 + size // _UNIT)
        is_allowed = left >= cost
        self._left[host] = (left - cost if is_allowed else left, now)
        return is_allowed


@dataclass(slots=True)
class Requests:
    """The requests of one hub process: those that it makes, and those that it answers."""

    here: ThisHost
    handlers: dict[str, Handler] = field(default_factory=dict)
    """By kind."""
    trial: Trial = field(init=False)
    _answering: dict[asyncio.Task[None], str] = field(default_factory=dict)
    """What is being answered, and to which host."""
    _allowances: Allowances = field(default_factory=Allowances)

    def __post_init__(self) -> None:
        self.trial = Trial(self.here.settings.host)

    async def ask(self, host: str, kind: str, content: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The answer of a host within so many seconds.

        Raises UnavailableError with the reason if it gives none, NatsError if it is silent or cannot be asked.
        """
        here, nonce = self.here, secrets.token_hex(16)
        said = {**content, "kind": kind, "from": here.settings.host, "to": host, "nonce": nonce}
        reply = await here.nc.request(
            subjects.asked(host, here.settings.host), here.said_to(host, said), timeout=seconds
        )
        found = here.heard_from(host, reply.data)
        if found is None or (found.get("from"), found.get("nonce")) != (host, nonce):
            raise UnavailableError(f"what came as the answer of {host} is not signed by it")
        if "refused" in found:
            raise UnavailableError(first_line(str(found["refused"])))
        return found

    async def listen(self) -> None:
        """Answer from now on. Raises NatsError."""
        await self.here.nc.subscribe(
            subjects.asked(self.here.settings.host, "*"),
            cb=self._hear,
            pending_msgs_limit=_PENDING,
            pending_bytes_limit=_PENDING_BYTES,
        )

    def is_read(self, host: str, raw: bytes) -> bool:
        """Whether this is looked at: not if its host says too much. It comes before any key is used."""
        if self._allowances.allows(host, len(raw), self.here.clock.monotonic()):
            return True
        self.here.note_flood(host)
        return False

    async def _hear(self, message: Msg) -> None:
        here, host = self.here, message.subject.rpartition(".")[2]
        if self.trial.hears(host, message.data):
            return
        if not self.is_read(host, message.data):
            return
        if here.keys(host) is None or not subjects.is_inbox_of(host, message.reply):
            return
        content = here.heard_from(host, message.data)
        if content is None:
            here.note_foreign(message.subject)
        elif (content.get("from"), content.get("to")) == (host, here.settings.host):
            task = asyncio.create_task(self._answer(host, content, message))
            self._answering[task] = host
            task.add_done_callback(self._ended)

    async def _answer(self, host: str, content: Mapping[str, Any], message: Msg) -> None:
        handler = self.handlers.get(str(content.get("kind")))
        found: Mapping[str, Any]
        try:
            if handler is None:
                name = self.here.settings.host
                raise UnavailableError(f"the host {name} does not know this question; its mailboxd may be older")
            of_it = sum(one == host for one in self._answering.values())
            if len(self._answering) > _MOST_AT_ONCE or of_it > _MOST_OF_ONE:
                raise UnavailableError("it is busy with other questions")
            found = await handler(host, content)
        except MailboxdError as refusal:
            found = {"refused": first_line(str(refusal))}
        if len(json.dumps(found)) > _LARGEST:
            found = {"refused": "the answer is too large"}
        said = {**found, "from": self.here.settings.host, "nonce": content.get("nonce")}
        await message.respond(self.here.said_to(host, said))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._answering.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            level = logging.DEBUG if isinstance(error, NatsError) else logging.WARNING
            _log.log(level, "a question of another host was not answered: %s", first_line(str(error)))
