"""The writing of the new database: by a second process, where there is much of it, while the first one decides on.

What it makes of the events is then compared with the tables that the first one decided over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from mailboxd.errors import WorldError
from mailboxd.progress import Progress
from mailboxd.rebuild.hands import ENOUGH, Hand, processors
from mailboxd.store import log
from mailboxd.store.db import connect, worlds_errors
from mailboxd.store.fresh import FreshStore
from mailboxd.store.scribe import Scribe, Told
from mailboxd.store.whole import require_sound

SCRIBE = "mailboxd.rebuild.scribe"
_OFTEN = 250
"""Steps after which what was recorded is handed on."""
_MUCH = 4 << 20
"""Bytes of messages after which it is, too: both processes hold what is handed on."""


class Afar:
    """A scribe in a process of its own."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand

    def write(self, told: Told) -> None:
        """Raises WorldError when it could not write, or has seen that something is wrong."""
        self._hand.tell(told)

    def complete(self, beside: Mapping[str, Sequence[Sequence[Any]]]) -> None:
        """Raises WorldError."""
        self._hand.tell(None)
        self._hand.tell(beside)
        self._hand.hear()

    def finish(self) -> str:
        """The fingerprint, as soon as it is there. Raises WorldError."""
        return str(self._hand.hear())


class Writing:
    """One new database at `path` that follows what is recorded in a store."""

    def __init__(self, store: FreshStore, path: Path, scribe: Scribe | Afar) -> None:
        self._store = store
        self._path = path
        self._scribe = scribe
        self._steps = 0

    def step(self) -> None:
        """Something was recorded; outside of savepoints. Raises WorldError."""
        self._steps += 1
        if self._steps % _OFTEN == 0 or self._store.waiting >= _MUCH:
            self._scribe.write(self._store.take())

    def complete(self) -> None:
        """Everything is recorded. Raises WorldError."""
        self._scribe.write(self._store.take())
        self._scribe.complete(self._store.beside())

    def prove(self, progress: Progress) -> str:
        """The fingerprint. Raises WorldError unless the file is sound and says what was decided over."""
        with closing(connect(self._path, read_only=True)) as db, worlds_errors(db):
            require_sound(db, progress)
            progress("tables", 0, 0)
            if problems := log.differing(self._store.db, db):
                raise WorldError("the audit trail does not hold: " + "; ".join(problems))
        return self._scribe.finish()


@contextmanager
def writing(store: FreshStore, path: Path, beginning: str, steps: int) -> Iterator[Writing]:
    """The writing of the new database at `path`, of which `steps` are to be expected. Raises WorldError."""
    if steps < ENOUGH or processors() == 1:
        with closing(Scribe(path, beginning)) as scribe:
            yield Writing(store, path, scribe)
    else:
        with Hand("writes the database", SCRIBE, str(path), beginning) as hand:
            yield Writing(store, path, Afar(hand))
