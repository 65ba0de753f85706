"""Hears that something happened below mailbox/ and tasks/, and says "look": never what, because events get lost.

One thing it says more of, because nothing else shows it: which files came into the inbox by a rename, and so are
complete. A rename that was not heard costs time, nothing else.

Of mailbox/ itself only the replacing of the inbox is heard, and of the inbox only what comes: what leaves it is our
own work. Which of the events matter is decided by their path. That we hear anything at all is never assumed: now and
then a hidden file of our own must be heard.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from selectors import BaseSelector

from mailboxd.workspace.ears import Ear, InboxEar, TasksEar
from mailboxd.workspace.layout import Workspace


class Watcher:
    """Says that there may be mail, and calls `poke` (from another thread) whenever a task file may have changed.

    It stands in `selector` as a key's `data`: what is ready there is for `hear`. `poke` must only set a flag or write a
    byte. Nothing here raises because of what the directories look like: what cannot be watched has to be scanned on a
    timer, and `reason` says why. `polls`: why it is no use to listen at all.
    """

    def __init__(self, ws: Workspace, selector: BaseSelector, poke: Callable[[], None], polls: str = "") -> None:
        self._inbox = InboxEar(ws, selector, self)
        self._ears: tuple[Ear, ...] = () if polls else (self._inbox, TasksEar(ws, poke))
        self._polls = polls

    def start(self, now: float) -> None:
        """Begins to listen. `now` is seconds, of any clock that is used for `check` too."""
        for ear in self._ears:
            ear.arm(now)

    def hear(self) -> bool:
        """Takes what happened around the inbox since it was called last; whether it is to be looked at."""
        return self._inbox.hear()

    def renamed(self) -> set[str]:
        """The names that were renamed into the inbox, as far as `hear` was called, and not written to since."""
        return self._inbox.renamed()

    @property
    def is_disturbed(self) -> bool:
        """Whether another directory may be the inbox now: then `check` is due."""
        return self._inbox.is_disturbed

    def check(self, now: float) -> bool:
        """Proves that we still hear, and listens anew where we do not or a directory was replaced.

        True: something may have been missed, scan now. To be called before a look at the inbox, for what is heard
        meanwhile is not said by `hear`; every 30 seconds at least, every 5 while not `healthy`, and when disturbed.
        Takes microseconds if all is well, half a second if not.
        """
        missed = [ear.check(now) for ear in self._ears]
        return any(missed)

    def inbox_was_replaced(self) -> bool:
        """Whether the inbox is another directory than at the last time of asking, and is listened to anew."""
        return any(ear.was_replaced() for ear in self._ears[:1])

    @property
    def reason(self) -> str:
        """Why we are deaf, in a sentence for the operator; empty if we are not."""
        return self._polls or "; ".join(ear.reason for ear in self._ears if ear.reason)

    @property
    def healthy(self) -> bool:
        """Whether, as far as is known, every change is heard."""
        return not self.reason

    def close(self) -> None:
        """Stops listening. May take half a second."""
        # Its threads may notice between two steps that they are to end, and call that an error.
        logging.getLogger("watchdog").setLevel(logging.CRITICAL)
        for ear in self._ears:
            ear.disarm()
