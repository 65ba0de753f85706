"""When a turn has to stop: a signal came, or its time is over. Time in which a person is asked does not count."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

_TICK = 0.25


@dataclass(slots=True)
class Stop:
    """`received` is the first signal that came. `parked` says whether a person is being asked."""

    seconds: float
    parked: Callable[[], bool]
    received: signal.Signals | None = None
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    def listen(self) -> None:
        """From now on a signal ends nothing by itself."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)

    async def wait(self, seconds: float | None = None) -> None:
        """Returns when the turn has to stop; with `seconds`, when that many have passed or a signal came."""
        clock = asyncio.get_running_loop().time
        left, looked = self.seconds if seconds is None else seconds, clock()
        while left > 0 and not self._came.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._came.wait(), min(_TICK, left))
            passed, looked = clock() - looked, clock()
            left -= 0.0 if seconds is None and self.parked() else passed

    def _on_signal(self, number: signal.Signals) -> None:
        self.received = self.received or number
        self._came.set()
