"""The engine for whoever comes in by a command, a typed tool or the page: it records, and leaves effects to the daemon.

Apart from what the daemon is put together of (`assemble`): an order of a person costs a third less without that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from mailboxd.actions.result import Setting
from mailboxd.clock import SystemClock
from mailboxd.config import Config
from mailboxd.config.settings import action_rules, settings
from mailboxd.engine.engine import Engine
from mailboxd.mailbox import lock
from mailboxd.mailbox.layout import Workspace
from mailboxd.store.database import lockers
from mailboxd.store.opening import open_workspace


def setting(ws: Workspace, config: Config, environ: Mapping[str, str]) -> Setting:
    """Where and with what side effects are performed; `environ` is the daemon's own environment."""
    return Setting(
        root=ws.root,
        environ=environ,
        monotonic=SystemClock().monotonic,
        rules=action_rules(config),
        timeout=config.actions.timeout_seconds,
        openclaw=config.openclaw.command,
        openclaw_environment=config.openclaw.environment,
        output_cap=config.limits.output_bytes,
    )


_MOST_WAITS = 11
"""How often a command waits once more for the daemon of its own workspace, `BUSY_MS` each time: a minute in all."""


@dataclass(slots=True)
class _Patience:
    """A command waits for the daemon, which may be recording a plan of thousands; for anybody else it does not."""

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
    ws: Workspace, config: Config, tell: Callable[[str], None] | None = None, *, accept_older: bool = False
) -> Iterator[Engine]:
    """The engine for a command: it records, and leaves effects to the daemon. Raises WorldError.

    With `tell`, it waits for up to a minute while the daemon writes, and says so. `accept_older`: every page is read,
    and a database that is older than what was served here is opened as well.
    """
    clock = SystemClock()
    store = open_workspace(ws.database, clock.now(), thorough=accept_older, accept_older=accept_older)
    if tell is not None:
        store.keep_waiting = _Patience(ws, tell).again
    try:
        yield Engine(store, settings(config), clock)
    finally:
        store.close()
