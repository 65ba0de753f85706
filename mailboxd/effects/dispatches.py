"""The messages that give work out: kept in the transaction that sends them, and written to outbox/ after it.

The database is what makes them durable. Their files are written once the calls of a round have begun, so that no call
waits for them, without waiting for the disk, and synced later, many together. What a crash or a power cut took of them
until then is written again from the database when the daemon starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from mailboxd.core.effects import RunTurn
from mailboxd.core.events import Event, Kind
from mailboxd.core.types import Task
from mailboxd.effects.outgoing import file_name, row_of_sent
from mailboxd.engine import Engine
from mailboxd.errors import WorldError
from mailboxd.store.messages import SYNCED
from mailboxd.workspace import outbox
from mailboxd.workspace.layout import Workspace

Kept = tuple[str, bytes]
"""A message that is kept: its name in outbox/, and its bytes."""

_LATER = 1.0
"""Seconds after which what was written is synced."""


@dataclass(slots=True)
class Dispatches:
    """`reports` collects what the next transaction has to record."""

    engine: Engine
    ws: Workspace
    reports: list[Callable[[], None]]
    due: float | None = 0.0
    """When something has to be synced, on the monotonic clock; None = everything is."""
    _taken: dict[str, bytes] = field(default_factory=dict)
    """What has no file yet, by its name: a call that is refused again and again takes its message each time."""
    _written: set[str] = field(default_factory=set)
    """The names of what has its file, not synced yet."""
    _doubtful: bool = True
    """Nothing is known of what was written: by an earlier daemon, or the disk has failed to sync."""

    def keep(self, effect: RunTurn, task: Task, raw: bytes) -> Kept:
        """Record that a message is sent, with its bytes; inside the batch that lets its turn begin."""
        path = f"outbox/{file_name(effect.message_id, 'task', task.local_id)}"
        message = row_of_sent(effect.message_id, "task", self.engine.settings.agent, effect.agent, path, raw)
        self.engine.store.keep_body(effect.message_id, raw)
        self.engine.record(Event(Kind.MESSAGE_SENT, task.id, {"at": self.engine.now, "message": message}))
        return str(message["name"]), raw

    def take(self, effect: RunTurn, kept: Kept | None) -> bytes:
        """The bytes of a message whose keeping is committed. Its file waits for `write`, and the call for neither.

        `kept` is what `keep` said; None = an earlier round or daemon kept it, and the database is asked.
        """
        name, raw = kept or self.engine.store.kept_message(effect.message_id)
        self._taken[name] = raw
        if self.due is None:
            self.due = self.engine.clock.monotonic() + _LATER
        return raw

    @property
    def are_written(self) -> bool:
        """Whether everything that was taken has its file, synced or not."""
        return not self._taken

    def write(self) -> None:
        """Put the files of what was taken into outbox/. Raises WorldError; repeat it then."""
        if self._taken:
            outbox.put(self.ws, self._taken.items())
            self._written |= self._taken.keys()
            self._taken.clear()

    def sync(self, *, now: bool = False) -> None:
        """Make durable what was sent, once it is time to (or `now`). Raises WorldError; repeat it then."""
        if self.due is None or not (now or self.engine.clock.monotonic() >= self.due):
            return
        self.due = self.engine.clock.monotonic() + _LATER
        last, unsynced = self.engine.store.last_event(), self.engine.store.unsynced_messages()
        try:
            if self._doubtful:  # after a failure a second fsync would only say that nothing is left to write
                for name, raw in unsynced:
                    outbox.restore(self.ws, name, raw)
            else:
                outbox.put(self.ws, [(name, raw) for name, raw in unsynced if name not in self._written])
            outbox.sync(self.ws, [name for name, _ in unsynced])
        except WorldError:
            self._doubtful = True
            raise
        self._written.clear()
        self.due, self._doubtful = None, False
        if unsynced:
            self.reports.append(partial(self.engine.store.set_meta, SYNCED, str(last)))
