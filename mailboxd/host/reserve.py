"""Descriptors that are held so that they can be given up: with them the daemon goes on where there are no others."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

_HELD = 12
"""What one round takes at a time, and some more."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})


@dataclass(slots=True)
class Reserve:
    """Filled by `refill`. While it is spent, intake and filing go on with what it gave, and no call is begun."""

    why: str = ""
    """Why it is spent; empty if it is not."""
    _held: list[int] = field(default_factory=list)

    def refill(self) -> None:
        """Take again what is there to be had."""
        try:
            while len(self._held) < _HELD:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            self._release(error)
        else:
            self.why = ""

    def spend(self, cause: BaseException | None) -> bool:
        """Give all up, if that is what is wrong."""
        is_it = isinstance(cause, OSError) and cause.errno in _EXHAUSTED
        if isinstance(cause, OSError) and is_it:
            self._release(cause)
        return is_it

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def _release(self, error: OSError) -> None:
        self.close()
        self.why = f"{error.strerror}: no call is begun until there are more (`ulimit -n`, LimitNOFILE=)"
