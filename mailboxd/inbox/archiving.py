"""Moves judged files out of the inbox. The rows of `messages` are its to-do list, so a crash only repeats a move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from mailboxd.core.events import Event, Kind
from mailboxd.engine import Engine
from mailboxd.inbox.custody import Custody
from mailboxd.inbox.receipts import raw_name, reason_beside
from mailboxd.store.messages import Unfiled
from mailboxd.workspace.files import ObstructedError, Stamp
from mailboxd.workspace.filing import Judged
from mailboxd.workspace.layout import Workspace
from mailboxd.workspace.mail import archive_many, reject_many

BATCH = 1000


@dataclass(slots=True)
class Archiving:
    engine: Engine
    ws: Workspace
    reports: list[Callable[[], None]]
    custody: Custody
    obstructed: dict[str, str] = field(default_factory=dict)
    """Files that do not let themselves be moved, by the message's id, with the reason. Forgotten by `try_again`."""

    _told: set[str] = field(default_factory=set)

    def perform(self) -> int:
        """Move what has been judged; returns how many files. Raises WorldError (then nothing is lost: repeat it)."""
        todo = self.waiting()
        accepted = [item for item in todo if not item.rejected]
        rejected = [item for item in todo if item.rejected]
        taken = self.engine.store.is_filed
        if accepted:
            self._note(accepted, archive_many(self.ws, [(self._judged(i), i.at[:10]) for i in accepted], taken))
        if rejected:
            self._note(rejected, reject_many(self.ws, [(self._judged(i), _reason(i)) for i in rejected], taken))
        return len(todo)

    def waiting(self) -> list[Unfiled]:
        """What has been judged and can be moved, as far as is known."""
        found = self.engine.store.unfiled(BATCH + len(self.obstructed))
        return [item for item in found if item.id not in self.obstructed]

    def try_again(self) -> None:
        """Forget what stood in the way: it may be gone. And see whether the directories are those that they were."""
        self.obstructed.clear()
        self.custody.notice()

    def _judged(self, item: Unfiled) -> Judged:
        raw = self.engine.store.body(item.id)
        return Judged(raw_name(item.name, item.stamp), _stamp(item), raw)

    def _note(self, items: Sequence[Unfiled], places: Sequence[str | ObstructedError]) -> None:
        moved = []
        for item, place in zip(items, places, strict=True):
            if isinstance(place, ObstructedError):
                self.obstructed[item.id] = str(place)
                if item.id not in self._told:
                    self._told.add(item.id)
                    self.reports.append(partial(self._alarm, item, str(place)))
            else:
                moved.append((item.id, place))
                self.custody.watch(item.id, place, _stamp(item))
        self.reports.append(lambda: self._record(moved))

    def _record(self, moved: Sequence[tuple[str, str]]) -> None:
        for message, path in moved:
            self.engine.record(Event(Kind.MESSAGE_FILED, None, {"at": self.engine.now, "id": message, "path": path}))

    def _alarm(self, item: Unfiled, why: str) -> None:
        told = f"{item.name} cannot be moved out of the inbox: {why}"
        self.engine.record(Event(Kind.ALARM, None, {"at": self.engine.now, "what": "filing-mail", "why": told}))


def _stamp(item: Unfiled) -> Stamp:
    return Stamp(**{name: int(value) for name, value in item.stamp.items() if name != "name"})


def _reason(item: Unfiled) -> dict[str, object]:
    return reason_beside(item.name, item.at, item.sha256, item.id, item.reason)
