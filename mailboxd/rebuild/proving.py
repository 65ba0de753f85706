"""The proof of the new log: by a second process while it grows, where there is much of it, else at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mailboxd.progress import Progress
from mailboxd.rebuild.hands import ENOUGH, Hand, processors
from mailboxd.store import log
from mailboxd.store.fresh import FreshStore

WITNESS = "mailboxd.rebuild.witness"
_OFTEN = 2000
"""Steps after which it is committed, so that the witness can follow."""


class Proving:
    """The proof of one new database. `hand` is the witness, if there is one."""

    def __init__(self, store: FreshStore, hand: Hand | None) -> None:
        self._store = store
        self._hand = hand
        self._steps = 0

    def step(self) -> None:
        """Something was recorded; inside the transaction. Raises WorldError when the witness sees that it is wrong."""
        self._steps += 1
        if self._hand is not None and self._steps % _OFTEN == 0:
            self._store.commit_so_far()
            self._hand.tell(True)

    def end(self) -> None:
        """Everything is recorded and committed: the witness can come to its end while others read."""
        if self._hand is not None:
            self._hand.tell(False)

    def conclude(self, progress: Progress) -> None:
        """Raises WorldError unless the chain holds and the events add up to the tables."""
        if self._hand is None:
            log.check(self._store.db, progress)
        else:
            progress("tables", 0, 0)
            self._hand.hear()


@contextmanager
def proving(store: FreshStore, path: Path, steps: int) -> Iterator[Proving]:
    """The proof of the new database at `path`, of which `steps` are to be expected."""
    if steps < ENOUGH or processors() == 1:
        yield Proving(store, None)
    else:
        with Hand("proves the log", WITNESS, str(path)) as hand:
            yield Proving(store, hand)
