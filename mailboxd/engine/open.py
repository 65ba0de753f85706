"""Opens the engine for commands, MCP and the web page: it records, and leaves effects to the daemon.

Separate from `daemon.assemble`, whose imports would make a command a third slower.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from mailboxd.engine.engine import Engine
from mailboxd.formats.config import Config
from mailboxd.formats.config.settings import settings
from mailboxd.formats.mailbox import lock
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import SystemClock
from mailboxd.ledger.database import lockers
from mailboxd.ledger.opening import open_workspace

_MOST_WAITS = 11
"""How often a command waits `BUSY_MS` for the daemon of its workspace: a minute in all."""


def _policy(core: Engine, ws: Workspace, config: Config, by: str) -> int:
    from mailboxd.engine.policy import PolicyRecord  # seldom needed, and its imports would delay every command

    return PolicyRecord(core, ws, config, os.environ, by)()


@dataclass(slots=True)
class _Patience:
    """Lets a command wait for the daemon, which may be recording a large plan, but for no other process."""

    ws: Workspace
    tell: Callable[[str], None]
    waits: int = 0

    def again(self) -> bool:
        daemon, holders = lock.holder(self.ws), lockers(self.ws.database)
        if not daemon or self.waits == _MOST_WAITS or (holders and daemon not in holders):
            return False
        if not self.waits:
            self.tell(f"the daemon (pid {daemon}) is recording something large, such as a plan of thousands; waiting")
        self.waits += 1
        return True


@contextmanager
def engine(
    ws: Workspace,
    config: Config,
    tell: Callable[[str], None] | None = None,
    *,
    accept_older: bool = False,
    by: str = "command",
) -> Iterator[Engine]:
    """Open the engine for a command: it records, and leaves effects to the daemon. Raises WorldError.

    Which agents can be reached it knows from the latest daemon.

    With `tell`, it waits for up to a minute while the daemon writes, and says so. `accept_older`: check every page, and
    also open a database that is older than the one last served here. `by`: as in `engine.policy`.
    """
    clock = SystemClock()
    store = open_workspace(ws.database, clock.now(), thorough=accept_older, accept_older=accept_older)
    if tell is not None:
        store.keep_waiting = _Patience(ws, tell).again
    try:
        core = Engine(store, settings(config), clock, goes_on=True, may_reach=partial(store.meta.refused, config.agent))
        core.policy = partial(_policy, core, ws, config, by)
        yield core
    finally:
        store.close()
