"""One agent of a simulated town: the real daemon on a real directory, without its clock, its processes, its chance.

The database is in memory and outlives a crash as far as it was committed; everything else in memory does not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

from mailboxd.daemon import assemble
from mailboxd.daemon.health_writer import Health
from mailboxd.daemon.loop import Daemon
from mailboxd.engine.engine import Engine
from mailboxd.errors import WorldError
from mailboxd.formats.config import Config
from mailboxd.formats.config.settings import Pace, settings
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.host.clock import ManualClock
from mailboxd.host.ids import Ids
from mailboxd.host.sdnotify import Notifier
from mailboxd.ledger.connection import Connection
from mailboxd.ledger.store import Store
from mailboxd.perform.agents.call_dir import Exit
from tests.simulation.breaking import Fuse, Tapped, wired
from tests.simulation.laws import Book
from tests.simulation.processes import Processes, Table
from tests.simulation.world import Crash

MOST_ROUNDS = 60


@dataclass(slots=True)
class House:
    """An agent with a mailbox and a daemon."""

    name: str
    ws: Workspace
    clock: ManualClock
    random: Random
    processes: Processes
    store: Store
    book: Book
    daemon: Daemon | None = None
    fuse: Fuse = field(default_factory=Fuse)
    health: Health | None = None
    dropped: Counter[str] = field(default_factory=Counter)
    """What was ever put into its inbox, by the hash of its bytes."""
    crashes: Counter[str] = field(default_factory=Counter)
    boots: int = 1
    """How often its machine was started."""
    limits: dict[str, str] = field(default_factory=dict)
    """What its configuration has below `limits`."""
    zone: str = "UTC"
    archive: dict[str, str] = field(default_factory=dict)
    """The same, below `archive`."""
    notify: dict[str, Any] = field(default_factory=dict)
    per_agent: int = 1
    """How many calls of one agent its table lets run at once."""

    @classmethod
    def build(cls, name: str, root: Path, clock: ManualClock, random: Random, processes: Processes) -> House:
        Workspace.create(root)
        store = Store.open(None, clock.now())
        return cls(name, Workspace(root), clock, random, processes, store, Book(store, own=name))

    # -------------------------------------------------------------- its inbox

    def drop(self, name: str, raw: bytes, number: int) -> None:
        """Put a file into the inbox, whole; `number` orders it among others."""
        hidden = self.ws.inbox / f".{name}.tmp"
        hidden.write_bytes(raw)
        os.utime(hidden, ns=(number, number))
        hidden.rename(self.ws.inbox / name)
        self.dropped[hashlib.sha256(raw).hexdigest()] += 1

    def mail(self) -> list[Path]:
        """The files in archive/ and rejected/."""
        found = [Path(folder) / name for place in (self.ws.archive, self.ws.rejected)
                 for folder, _, names in os.walk(place) for name in names]  # fmt: skip
        return [path for path in found if path.name != "INDEX.md" and not path.name.endswith(".reason.json")]

    def filed(self) -> Counter[str]:
        """What lies in archive/ and rejected/, by the hash of its bytes."""
        return Counter(hashlib.sha256(path.read_bytes()).hexdigest() for path in self.mail())

    # -------------------------------------------------------------- its daemon

    def work(self, rounds: int = MOST_ROUNDS) -> bool:
        """Let its daemon run, at most so many rounds; starts one if there is none. Whether anything happened.

        First with what its calls and its timers bring, then with what came from outside, as after a poke. A crash on
        the way leaves no daemon.
        """
        before = self.store.last_event()
        started = len(self.processes.all)
        try:
            with wired(self.fuse):
                daemon = self.daemon or self._start()
                is_poked = False
                for _ in range(rounds):
                    if daemon.round():
                        continue
                    if is_poked:
                        break
                    is_poked = True
                    daemon._schedule.notify(everything=True)
        except (Crash, WorldError):  # the latter ends the process, and systemd starts another
            self.crashes[self.fuse.where] += 1
            self.die()
        return (self.store.last_event(), len(self.processes.all)) != (before, started)

    def die(self) -> None:
        """The end of its daemon, as by SIGKILL: its calls go on."""
        self.fuse.burnt, self.fuse.left = False, None
        if self.store.db.in_transaction:
            self.store.db.execute("ROLLBACK")
        if self.daemon is not None:
            self.daemon.calls.leave()
            self.daemon.wake.close()
            self.daemon.reserve.close()
            self.daemon.calls.selector.close()
            self.daemon = None
        if self.health is not None:
            self.health.__exit__(None, None, None)
            self.health = None

    def lose_power(self, chance: Callable[[float], bool]) -> None:
        """The end of its machine: its calls die, and of what was not synced each part may be gone, or empty."""
        self.die()
        self.boots += 1
        for process in self.processes.running():
            if process.house == self.name:
                self.processes.end(process, Exit(-9, b""))
        for path, _ in self.store.messages.unsynced():
            file = self.ws.mailbox / path
            if chance(0.3):
                file.unlink(missing_ok=True)
            elif chance(0.3) and file.exists():
                file.write_bytes(b"")
        for call in self.processes.all:
            if call.house == self.name and call.marked_elsewhere and chance(0.5):
                shutil.rmtree(self.ws.turns / call.id, ignore_errors=True)

    def _start(self) -> Daemon:
        given = {"agent": self.name, "inbox": {"settle_seconds": "0"}, "openclaw": {"discovery": "false"}}
        more = {"zone": self.zone, "limits": self.limits, "notify": self.notify, "archive": self.archive}
        config = Config.model_validate({**given, **more})
        raw = self.store.db
        db = cast(Connection, Tapped(getattr(raw, "_db", raw), self.fuse))
        self.store = Store(db)
        self.book.store = self.store
        bits = Random(self.random.random())
        core = Engine(
            self.store,
            settings(config),
            self.clock,
            Ids(bits.getrandbits),
            Random(self.random.random()),
            new_token=lambda: f"{bits.getrandbits(64):x}",
        )
        self.health = Health(self.ws, self.clock, Notifier({}), self.name).__enter__()
        table = Table(self.name, self.ws.turns, self.processes, self.fuse.moment, self.per_agent)
        self.daemon = assemble.put_together(self.ws, config, core, table, self.health, "it is a simulation")
        self.daemon.effects.starting.boot = f"boot {self.boots}"
        self.daemon.pace = Pace(rescan=30.0, render=0.0, drain=0.0)
        self.daemon.start()
        return self.daemon
