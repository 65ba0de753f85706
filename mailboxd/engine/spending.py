"""What the agents of one user and machine spend together: the user's caps, and the account that the daemons share.

The caps are in `$XDG_CONFIG_HOME/mailboxd/host.yaml` (default `~/.config/mailboxd/`), outside of every workspace. They
hold once that file exists; until then the defaults are only told of.

The account is `spending.json` in the user's state. Each daemon writes its own row: what its database says was spent on
the day, and what it has reserved for turns that run. So a row that is lost or old comes back from its daemon, and a
turn whose daemon has died ceases to be reserved when it can run no longer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Self

from mailboxd.core.spending import MEASURES, NOTHING, Account, Spend, Standing, micro, total
from mailboxd.errors import ConfigError
from mailboxd.formats.config.file import load, load_section, with_values
from mailboxd.formats.config.model import Config, HostCaps, LimitsSection
from mailboxd.formats.mailbox import files
from mailboxd.formats.mailbox.files import world_errors
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.formats.user.state import UserState
from mailboxd.host.clock import Day

FILE = "host.yaml"
_ACCOUNT = "spending.json"
_DAYS_KEPT = 2
"""Zones lie up to 26 hours apart."""
_KEYS = {"day_usd": "usd", "day_tokens": "tokens", "day_turns": "turns"}
_HEAD = """\
# What all agents of this user on this machine may spend together in a calendar day; 0: no cap.
# `mailboxd caps --host` shows and changes it; the daemons read it without a restart.
"""


@dataclass(frozen=True, slots=True)
class Caps:
    """The caps of a day; they hold if a person has confirmed them."""

    most: Spend
    holds: bool


def caps_of(section: LimitsSection | HostCaps, *, holds: bool) -> Caps:
    return Caps(Spend.of_dollars(section.day_usd, section.day_tokens, section.day_turns), holds)


def of_agent(config: Config) -> Caps:
    """The caps of the agent. Unless it says otherwise they hold if one of them is written in its configuration."""
    is_set = not _KEYS.keys().isdisjoint(config.limits.model_fields_set)
    return caps_of(config.limits, holds=is_set if config.caps == "auto" else config.caps == "hold")


def keys_of(caps: Spend) -> dict[str, Any]:
    """These caps as the configuration has them, by key."""
    said = {"usd": caps.usd / 1_000_000, "tokens": caps.tokens, "turns": caps.turns}
    values = {key: said[name] for key, name in _KEYS.items()}
    return {key: int(value) if value == int(value) else value for key, value in values.items()}


def folder(environ: Mapping[str, str]) -> Path:
    """The user's directory of configuration."""
    named = environ.get("XDG_CONFIG_HOME", "")
    home = Path(named) if named.startswith("/") else Path(environ.get("HOME") or "/dev/null") / ".config"
    return home / "mailboxd"


UNCONFIRMED = caps_of(HostCaps(), holds=False)
"""The caps over all agents of a user without such a file."""


def host_file(environ: Mapping[str, str]) -> Path:
    return folder(environ) / FILE


def of_host(environ: Mapping[str, str]) -> Caps:
    """The caps over all agents of this user. Raises ConfigError."""
    path = host_file(environ)
    if not path.exists():
        return UNCONFIRMED
    return caps_of(load_section(path, HostCaps), holds=True)


def write_host(environ: Mapping[str, str], caps: Spend) -> Path:
    """Write the caps over all agents of this user; returns where. Raises ConfigError, WorldError."""
    path = host_file(environ)
    with world_errors(f"write {path}"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            keys = "".join(f"{key}: {value}\n" for key, value in keys_of(caps).items())
            path.write_text(_HEAD + keys, encoding="utf-8")
            path.chmod(0o600)
        _put(path, with_values(path, keys_of(caps), HostCaps))
    return path


def write_agent(ws: Workspace, caps: Spend) -> Path:
    """Write into the configuration that these caps of the agent hold; returns where. Raises ConfigError, WorldError."""
    before = keys_of(of_agent(load(ws.config)).most)
    changed = {f"limits.{key}": value for key, value in keys_of(caps).items() if value != before[key]}
    _put(ws.config, with_values(ws.config, {"caps": "hold", **changed}))
    return ws.config


def _put(path: Path, text: str) -> None:
    with world_errors(f"write {path}"), files.directory(path.parent) as place:
        files.replace(place, path.name, text.encode(), lambda: True)


@dataclass(slots=True)
class LiveCaps:
    """The caps in a file, read again when that has changed; while it is invalid, those that were read last."""

    path: str
    """Text: it is asked before each turn, and pathlib costs more than the call."""
    read: Callable[[], Caps]
    caps: Caps
    problem: str = ""
    """What is wrong with the file; empty if nothing is."""
    _seen: tuple[int, int] | None = None

    def __call__(self) -> Caps:
        try:
            status = os.stat(self.path)  # noqa: PTH116
            seen = (status.st_ino, status.st_ctime_ns)
        except OSError:
            seen = (0, 0)
        if seen != self._seen:
            self._seen = seen
            try:
                self.caps, self.problem = self.read(), ""
            except ConfigError as error:
                self.problem = str(error)
        return self.caps


# The account


@dataclass(slots=True)
class Row:
    """What one workspace has spent on a day, and has reserved: by order, each until a time."""

    day: str = ""
    spent: Spend = field(default_factory=Spend)
    reserved: dict[str, tuple[Spend, str]] = field(default_factory=dict)
    typical: Spend = field(default_factory=Spend)
    """What one of its turns costs; nothing if none has ended."""

    def of(self, day: str) -> Spend:
        return self.spent if self.day == day else Spend()

    def reserves(self, now: str) -> Spend:
        return total(cost for cost, until in self.reserved.values() if until > now)

    def as_json(self) -> dict[str, Any]:
        held = {order: {**asdict(cost), "until": until} for order, (cost, until) in self.reserved.items()}
        return {"day": self.day, "spent": asdict(self.spent), "reserved": held, "typical": asdict(self.typical)}

    @classmethod
    def read(cls, stored: Any) -> Self:
        """What is damaged counts as nothing: its daemon writes it again."""
        given = _mapping(stored)
        held = {name: one for name, one in _mapping(given.get("reserved")).items() if isinstance(one, dict)}
        reserved = {name: (Spend.read(one), str(one.get("until", ""))) for name, one in held.items()}
        return cls(
            str(given.get("day", "")), Spend.read(given.get("spent")), reserved, Spend.read(given.get("typical"))
        )


@dataclass(slots=True)
class Book:
    """The account as it was read, for one moment or under its lock."""

    rows: dict[str, Row]
    raised: dict[str, Spend]
    """By day: what a person has raised the host's caps to."""

    def others(self, own: str, day: str, now: str) -> tuple[Spend, Spend]:
        """What other workspaces have spent on the day, and have reserved."""
        rows = [row for name, row in self.rows.items() if name != own]
        return total(row.of(day) for row in rows), total(row.reserves(now) for row in rows)

    def raw(self, day: str, now: str) -> bytes:
        """Without what no longer counts: of a day that is over in the writer's zone, but maybe not in another's, all
        is kept."""
        first = (date.fromisoformat(day) - timedelta(days=_DAYS_KEPT)).isoformat()
        rows = {name: row.as_json() for name, row in self.rows.items() if row.day >= first or row.reserves(now)}
        raised = {name: asdict(caps) for name, caps in self.raised.items() if name >= first}
        return json.dumps({"rows": rows, "raised": raised}, separators=(",", ":")).encode()

    @classmethod
    def read(cls, raw: bytes | None) -> Self:
        try:
            stored = json.loads(raw or b"{}")
        except ValueError:
            stored = {}
        given = _mapping(stored)
        return cls(
            {name: Row.read(row) for name, row in _mapping(given.get("rows")).items()},
            {day: Spend.read(caps) for day, caps in _mapping(given.get("raised")).items()},
        )


def _mapping(stored: Any) -> dict[str, Any]:
    return stored if isinstance(stored, dict) else {}


@dataclass(frozen=True, slots=True)
class Ledger:
    """The account of one user and machine, as the workspace `own` uses it."""

    state: UserState
    own: str

    @classmethod
    def of(cls, environ: Mapping[str, str], ws: Workspace) -> Self:
        return cls(UserState.of(environ), str(ws.root))

    def book(self) -> Book:
        """Raises ConfigError, WorldError."""
        return Book.read(self.state.read(_ACCOUNT))

    def stamp(self) -> tuple[int, int]:
        """Another one after each change: a change is a new file."""
        try:
            status = (self.state.folder / _ACCOUNT).stat()
        except OSError:
            return 0, 0
        return status.st_ino, status.st_ctime_ns

    @contextmanager
    def changing(self, day: str, now: str) -> Iterator[Book]:
        """The account under the lock of the host; what is changed in it is written. Raises ConfigError, WorldError."""
        with self.state.writing() as place:
            before = self.state.read(_ACCOUNT)
            book = Book.read(before)
            yield book
            if (after := book.raw(day, now)) != before:
                # nothing is lost with it that the databases do not have, so it needs no sync
                files.prepare(place, _ACCOUNT, after, durable=False)
                files.put(place, _ACCOUNT, lambda: True, durable=False)

    def raise_host(self, day: str, now: str, to: Spend) -> None:
        """Raise the host's caps for this day. Raises ConfigError, WorldError."""
        with self.changing(day, now) as book:
            book.raised[day] = to


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose caps are looked at, on which day: those of the agent in the workspace `own`, and of its host."""

    agent: str
    own: str
    day: Day
    caps: Caps
    host: Caps


def standing(scope: Scope, row: Row, raised: Spend, book: Book, now: str) -> Standing:
    """How much of both caps is spent, by the row of the workspace and the account. `raised`: the agent's, today."""
    day, caps, host = scope.day, scope.caps, scope.host
    reserved = row.reserves(now)
    others, of_others = book.others(scope.own, day.name, now)
    most = host.most.raised(book.raised.get(day.name, NOTHING))
    return Standing(
        day.name,
        day.end,
        Account(scope.agent, caps.most.raised(raised), row.of(day.name), reserved, caps.holds),
        Account("", most, row.of(day.name) + others, reserved + of_others, host.holds),
    )


def with_amounts(now: Spend, given: Mapping[str, float | None]) -> Spend:
    """The caps `now` with those that are given, in dollars, tokens and turns; None: not given."""
    exact = {name: None if one is None else micro(one) if name == "usd" else int(one) for name, one in given.items()}
    return Spend(*(now.amount(name) if (one := exact[name]) is None else one for name in MEASURES))
