"""What was filed is still there: the files of archive/ and rejected/ are looked after all the time, a few at a look.

The database says where every judged file lies and how large it is. One that is gone, or is not what was filed, is an
alarm, once; what is lost is remembered across restarts, and forgotten when somebody puts it back. That the bytes are
the same is for `mailboxd audit verify` to say: it reads every file.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mailboxd.core.events import Event, Kind
from mailboxd.engine import Engine
from mailboxd.store.messages import Filed
from mailboxd.workspace.layout import Workspace

BATCH = 200
"""Files that one look takes up: a stat each."""
EVERY = 5.0
"""Seconds between two looks, at least."""
MOST_LOST = 1000
"""Lost files that are remembered; of more than that the alarm is raised again after a restart."""
META = "custody.lost"


@dataclass(slots=True)
class Custody:
    """Over the mail of one workspace. Nothing here raises because of what the directories look like."""

    engine: Engine
    ws: Workspace
    reports: list[Callable[[], None]]
    _next: float = 0.0
    _after: str = ""
    """The message that was looked at last; empty = begin again."""
    _lost: dict[str, str] | None = None
    """What is wrong with a file, by the message's id."""

    def look(self) -> None:
        """Look at the next files, if it is time to; what is found is reported to the next transaction."""
        mono = self.engine.clock.monotonic()
        if mono < self._next:
            return
        self._next = mono + EVERY
        if self._lost is None:
            self._lost = json.loads(self.engine.store.meta(META) or "{}")
        files = self.engine.store.filed(self._after, BATCH)
        self._after = files[-1].id if len(files) == BATCH else ""
        wrong = {file.id: why for file in files if (why := self._wrong(file))}
        known = {file.id for file in files} & self._lost.keys()
        new = {name: why for name, why in wrong.items() if name not in self._lost}
        if new or known - wrong.keys():
            kept = {name: why for name, why in self._lost.items() if name not in known} | wrong
            self._lost = dict(list(kept.items())[:MOST_LOST])
            self.reports.append(partial(self._record, list(new.values()), json.dumps(self._lost)))

    def _wrong(self, file: Filed) -> str:
        """What is wrong with a file; empty if it lies there, as large as it was."""
        path = self.ws.mailbox / file.path
        try:
            status = path.lstat()
        except OSError as error:
            return f"mailbox/{file.path}: {error.strerror}"
        if file.sha256 is not None and not stat.S_ISREG(status.st_mode):
            return f"mailbox/{file.path} is no file any more"
        if file.sha256 is not None and status.st_size != file.size:
            return f"mailbox/{file.path} has {status.st_size} bytes, and {file.size} were filed"
        return ""

    def _record(self, new: list[str], lost: str) -> None:
        self.engine.store.set_meta(META, lost)
        if new:
            more = f", and {len(new) - 1} more" if len(new) > 1 else ""
            why = f"{new[0]}{more}; `mailboxd audit verify` says what else, its bytes are in the database"
            self.engine.record(Event(Kind.ALARM, None, {"at": self.engine.now, "what": "custody", "why": why}))
