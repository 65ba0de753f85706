"""Mail of the past, through the same intake as the first time: judged again, and compared with where it lies."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from mailboxd.core.events import Event, Kind
from mailboxd.errors import MessageError, Refused
from mailboxd.inbox.intake import Intake
from mailboxd.inbox.receipts import File, receipt
from mailboxd.keys.trust import Trust
from mailboxd.messages.codec import parse
from mailboxd.rebuild.desk import Desk
from mailboxd.rebuild.sources import Came, Refusal

_MAX_FILE = 16 << 20


class _Diverged(Exception):
    """A message that counted once does not count here: the files do not say all that it met."""


@dataclass(slots=True)
class Mail:
    """What arrived; inside the batch of the rebuild. `read` gives the bytes of a file below mailbox/."""

    desk: Desk
    intake: Intake
    read: Callable[[str], bytes | None]
    trust: Trust | None = None
    differences: list[str] = field(default_factory=list)
    """What could not be brought to where its file says it was."""

    def receive(self, came: Came) -> None:
        """A message that lies in the archive arrives."""
        self.desk.store.lies = came.path
        raw = self.read(came.path) or b""
        parsed = came.parsed
        if hashlib.sha256(raw).hexdigest() != parsed.sha256:
            try:
                parsed = parse(raw, came.name, max_bytes=_MAX_FILE)
            except MessageError as error:
                problem = f"it has changed while it was read: {error.problem}"
                self.differences.append(f"mailbox/{came.path}: {problem}")
                return
        file = File(came.name, raw, parsed.sha256, len(raw), {})
        self._doubt(came, raw)
        try:
            with self.desk.store.savepoint():
                if not came.day:
                    self._record(file, "imported", came)
                elif self.intake.receive(file, parsed) == "rejected":
                    raise _Diverged
        except _Diverged:
            self._record(file, "late", came)
            self.differences.append(f"mailbox/{came.path}: it counts as late here")

    def _doubt(self, came: Came, raw: bytes) -> None:
        """Name what an inbox would not take today; it is taken all the same, for it may be older than the key."""
        if self.trust is not None:
            try:
                self.trust.admit(self.trust.examine(raw, came.message), came.message.from_)
            except MessageError as error:
                self.differences.append(f"mailbox/{came.path}: taken as it lies there, but {error.problem}")

    def _record(self, file: File, verdict: str, came: Came) -> None:
        row = receipt(self.desk.engine, file, verdict, came.message)
        self.desk.store.keep_body(row["id"], file.raw or b"")
        data = {"at": self.desk.engine.now, "message": row}
        self.desk.engine.record(Event(Kind.MESSAGE_RECEIVED, None, data, actor=came.message.from_))

    def refuse(self, refusal: Refusal) -> None:
        """One that lies in rejected/ arrives."""
        said = refusal.reason
        raw = self.read(refusal.path) if said.get("sha256") else None
        file = File(said["name"], raw, said.get("sha256"), len(raw) if raw is not None else None, {})
        rule, problem, hint = said["rule"], said["problem"], str(said.get("hint", ""))
        error: MessageError | Refused = Refused(rule, problem, hint)
        if "line" in said:
            error = MessageError(rule, problem, hint, line=said["line"], field=said.get("field"))
        try:
            message = None if raw is None else parse(raw, said["name"], max_bytes=_MAX_FILE).message
        except MessageError:
            message = None
        self.desk.ids.give("msg", said["message"])
        self.desk.store.lies = refusal.path
        self.intake.reject(file, error, message)
