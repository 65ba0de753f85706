"""The `meta` table: named values that are not part of the log."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mailboxd.core.schedule import Capacity
from mailboxd.core.spending import Standing
from mailboxd.core.standstill import Standstill
from mailboxd.core.vocabulary import POOL, SELF
from mailboxd.ledger.written import Written

PEERS = "peers"
"""The agents that OpenClaw listed."""
_STANDSTILL = "standstill"
_PLANNED = "planned"
"""The plans of agents within the last hour, as [time, number of tasks]."""


class Meta:
    """Reads and writes values by name; a value is written only when it changes.

    The journal has the values that are `set`, not those that a daemon reports for `status`.
    """

    def __init__(self, db: sqlite3.Connection, written: Written | None = None) -> None:
        self._db = db
        self._written = written or Written()
        self._reported: dict[str, object] = {}

    def get(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def set(self, name: str, value: str) -> None:
        changed = self._db.execute(
            "INSERT INTO meta VALUES (?1, ?2, (SELECT coalesce(max(rev), 0) + 1 FROM meta))"
            " ON CONFLICT (name) DO UPDATE SET value = ?2, rev = excluded.rev WHERE value <> ?2 RETURNING *",
            (name, value),
        )
        self._written.change("meta", changed)

    def report(self, name: str, text: str) -> bool:
        """Write a value that each daemon reports again; returns whether it was written."""
        if self._reported.get(name) == text:
            return False
        self._reported[name] = text
        sql = "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2"
        return self._db.execute(f"{sql} WHERE value <> ?2", (name, text)).rowcount > 0

    def _report_mapping(self, name: str, mapping: Mapping[str, str]) -> bool:
        """The same of a mapping, which mostly is what it was."""
        if self._reported.get(name) == mapping:
            return False
        written = self.report(name, json.dumps(mapping, sort_keys=True))
        self._reported[name] = dict(mapping)
        return written

    def forget_reported(self) -> None:
        """Write again next time: the last values may have been rolled back."""
        self._reported.clear()

    def _mapping(self, name: str) -> dict[str, str]:
        return dict(json.loads(self.get(name) or "{}"))

    # what the daemon reports

    def set_room(self, room: Capacity) -> None:
        """How many calls run, and how many more may."""
        free = (room.free_bytes or 0) >> 24 << 24  # in steps of 16 MiB, or it would be written in every round
        memory = [free, room.call_bytes] if room.is_short else None
        said = {"most": room.most, "per_agent": room.per_agent, "running": room.running, "memory": memory}
        self.report("room", json.dumps(said))

    def room(self) -> Capacity | None:
        """None before the first daemon."""
        text = self.get("room")
        if text is None:
            return None
        stored = json.loads(text)
        free, call = stored["memory"] or (None, 1)
        per_agent = stored.get("per_agent", 1)  # an earlier version did not store it
        return Capacity(stored["most"], tuple(stored["running"]), free, call, per_agent)

    def set_paced(self, paced: Mapping[str, str]) -> None:
        """Which agents have used up their turns of an hour, and until when."""
        self._report_mapping("paced", paced)

    def paced(self, now: str) -> dict[str, str]:
        return {agent: until for agent, until in self._mapping("paced").items() if until > now}

    def set_limits(self, bounds: Mapping[str, int]) -> None:
        """The limits of the daemon, by their names in the configuration."""
        self.report("limits", json.dumps(bounds))

    def limits(self) -> dict[str, int] | None:
        """None before the first daemon."""
        text = self.get("limits")
        return None if text is None else dict(json.loads(text))

    def set_ageing(self, seconds: float) -> None:
        """After how many seconds a ready task rises by one priority; 0 = never."""
        self.report("ageing", str(seconds))

    def ageing(self) -> float:
        return float(self.get("ageing") or 0.0)

    def set_standstill(self, said: Standstill | None) -> None:
        """That everything is paused, as the daemon has heard; None: it is not."""
        self.set(_STANDSTILL, json.dumps(asdict(said)) if said is not None else "")

    def standstill(self) -> Standstill | None:
        text = self.get(_STANDSTILL)
        return Standstill(**json.loads(text)) if text else None

    def set_gone(self, gone: Mapping[str, str]) -> bool:
        """Which agents that tasks wait for do not exist, and how that is known; whether this changed."""
        return self._report_mapping("gone", gone)

    def gone(self) -> dict[str, str]:
        return self._mapping("gone")

    def agents(self) -> list[str]:
        """The ids of the agents that OpenClaw listed (`peers.Peers`); empty before it did."""
        return list(self.peers().get("known", {}))

    def openclaw(self) -> str:
        """OpenClaw's command line, as the latest daemon had it."""
        return str(self.peers().get("command", "openclaw"))

    def reachable(self, own: str) -> list[str]:
        """Those of `agents` whom `own` may give work to, as OpenClaw's `allowAgents` says."""
        allowed = self.peers().get("allowed")
        others = [name for name in self.agents() if name.lower() != own.lower()]
        return [name for name in others if allowed is None or name.lower() in allowed]

    def peers(self) -> dict[str, Any]:
        """OpenClaw's latest answers, as `peers.Peers` keeps them."""
        found: dict[str, Any] = json.loads(self.get(PEERS) or "{}")
        return found

    def refused(self, own: str, agent: str) -> str | None:
        """Why `own` may not give work to `agent`, by OpenClaw's latest answer; None if it may.

        Without an answer nothing is refused. Agents on other hosts and pools are left to the daemon.
        """
        known = {name.lower() for name in self.agents()}
        if not known or agent == SELF or agent.lower() == own.lower():
            return None
        if agent.lower() not in known:
            return None if agent.startswith(POOL) or "." in agent else f"there is no agent {agent}"
        reachable = {name.lower() for name in self.reachable(own)}
        return None if agent.lower() in reachable else f"OpenClaw does not let {own} give work to {agent}"

    def set_away(self, away: Mapping[str, str]) -> None:
        """Which agents whose replies are awaited have no daemon, and how that is known."""
        self._report_mapping("away", away)

    def away(self) -> dict[str, str]:
        return self._mapping("away")

    def set_digest(self, rule: str, anchor: str, next_at: str) -> None:
        """When the next digest is due, of the rule that counts from `anchor`; the journal has it."""
        self.set("digest", json.dumps([rule, anchor, next_at]))

    def digest(self) -> tuple[str, str, str]:
        """The rule, its anchor, and when the next digest is due; empty texts before the first."""
        rule, anchor, next_at = json.loads(self.get("digest") or '["", "", ""]')
        return rule, anchor, next_at

    def set_told(self, told: Mapping[str, str]) -> None:
        """The troubles that people were notified of, and when."""
        self._report_mapping("told", told)

    def told(self) -> dict[str, str]:
        return self._mapping("told")

    def set_held_up(self, held_up: Mapping[str, str]) -> None:
        """To which agents on other hosts mail waits for a receipt, and what holds it up."""
        self._report_mapping("held_up", held_up)

    def held_up(self) -> dict[str, str]:
        return self._mapping("held_up")

    def set_holders(self, holders: Mapping[str, str]) -> None:
        """Which hosts have the jobs that were given to pools, by attempt."""
        self._report_mapping("holders", holders)

    def holders(self) -> dict[str, str]:
        return self._mapping("holders")

    def set_spending(self, standing: Standing, waits: str) -> None:
        """What is spent of the caps of the day. `waits`: for whose reservations turns wait; empty: they do not."""
        self.report("spending", json.dumps(standing.as_json() | {"waits": waits}, sort_keys=True))

    def spending(self, now: str) -> tuple[Standing, str] | None:
        """None before the first daemon. Once that day is over nothing is spent yet."""
        text = self.get("spending")
        if text is None:
            return None
        stored = json.loads(text)
        standing = Standing.read(stored)
        return (standing, str(stored["waits"])) if now < standing.until else (standing.of_new_day(), "")

    def set_gateway(self, why: str) -> None:
        """Why the gateway accepts no turns; empty if it does, as far as is known."""
        self.report("gateway", why)

    def gateway(self) -> str:
        return self.get("gateway") or ""

    def set_recovering(self, recovering: Mapping[str, str]) -> None:
        """How far the recovery of turns is whose gateway died, by turn."""
        self._report_mapping("recovering", recovering)

    def recovering(self) -> dict[str, str]:
        return self._mapping("recovering")

    # how much agents plan

    def planned_since(self, since: str) -> int:
        """How many tasks agents planned after `since`, which is at most an hour ago."""
        return sum(count for at, count in self._planned() if at > since)

    def add_planned(self, now: str, since: str, count: int) -> None:
        """Count tasks that an agent planned; entries that are not later than `since` are dropped."""
        kept = [[at, before] for at, before in self._planned() if at > since]
        self.set(_PLANNED, json.dumps([*kept, [now, count]]))

    def _planned(self) -> list[tuple[str, int]]:
        return [(at, count) for at, count in json.loads(self.get(_PLANNED) or "[]")]
