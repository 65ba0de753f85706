"""What the daemon depends on outside of it, and what it says of that: the gateway, other agents, other hosts, sidecars.

Each is a service of the loop. What is stored here is what `why` and `status` show.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mailboxd.core import breaker
from mailboxd.daemon.health_writer import Health
from mailboxd.daemon.peers import Peers
from mailboxd.daemon.services import RELAXED, Service
from mailboxd.engine.engine import Engine
from mailboxd.formats.health import Component, Grade
from mailboxd.perform.agents.sidecar import Sidecar
from mailboxd.perform.effect_runner import EffectRunner
from mailboxd.perform.process_table import ProcessTable

_PEERS = 15.0
"""Seconds between two checks of the daemons of peers, of the hub, and of sidecars."""
_LONG = 600.0
"""Seconds after which a peer without a daemon is a serious problem, and not just a restart."""
_RECOVERY = 3.0
"""Seconds between two checks of how far the recovery of turns is."""
_NAMED = 5
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Surroundings:
    engine: Engine
    effects: EffectRunner
    peers: Peers
    calls: ProcessTable
    health: Health
    configuration: Callable[[], str]
    """Returns why the daemon could not start again with its configuration, else an empty string."""
    sidecars: Sequence[Sidecar]
    work: Service
    """Marked when turns may begin that could not."""
    rules: Service = field(init=False)
    gateway: Service = field(init=False)
    recovery: Service = field(init=False)
    away: Service = field(init=False)
    hub: Service = field(init=False)
    agents: Service = field(init=False)
    _invalid: str = ""
    """What was last said of the configuration."""
    _away: dict[str, float] = field(default_factory=dict)
    """When each awaited peer was first found without a daemon (monotonic clock)."""

    def __post_init__(self) -> None:
        self.rules = Service(self._judge_again)
        self.gateway = Service(self._check_gateway)
        self.recovery = Service(self._check_recovery, slack=RELAXED)
        self.away = Service(self._check_peers, slack=RELAXED)
        self.hub = Service(self._check_hub, slack=RELAXED)
        self.agents = Service(self._check_agents, slack=RELAXED)

    @property
    def inquiries(self) -> tuple[Service, ...]:
        """Those that record what they find: they are called inside a batch."""
        return self.rules, self.away, self.gateway, self.recovery, self.hub

    def _judge_again(self) -> None:
        """Judge anew what waits for other agents when those have changed, and in the first round for a configuration
        that may be new.
        """
        if self.peers.has_changed():
            self.engine.look_again()
            for one in self.sidecars:  # a new agent is to be denied the tools of others
                one.wake()

    def _check_gateway(self) -> float | None:
        """Check whether the gateway accepts turns. While it is well, it is asked when peers are looked at."""
        gateway, was_down = self.peers.gateway, self.peers.gateway.is_down
        if gateway.poll(self.engine.clock.monotonic()):
            self.engine.gateway_is_back(gateway.unreached)
            gateway.unreached.clear()
        if gateway.is_down is not was_down:
            self.work.mark()
        self.engine.store.meta.set_gateway(gateway.why)
        self.health.report(Component.GATEWAY, gateway.why)
        return gateway.due

    def _check_recovery(self) -> float:
        """Say which turns OpenClaw still has to resume, because its gateway died."""
        store, recovering = self.engine.store, self.calls.recovering()
        store.meta.set_recovering({call_id.partition(".")[0]: one.stage for call_id, one in recovering.items()})
        found = (store.tasks.get(self.calls.running[call_id].task) for call_id in recovering)
        names = dict.fromkeys(task.local_id for task in found if task is not None)
        self.health.report(Component.RECOVERY, _in_recovery(len(recovering), list(names)), Grade.AMBER)
        return self.engine.clock.monotonic() + _RECOVERY

    def _check_peers(self) -> float:
        """Check whether awaited peers have a daemon, and notify people of new problems."""
        mono = self.engine.clock.monotonic()
        if (invalid := self.configuration()) != self._invalid:
            self._invalid = invalid
            if invalid:
                _log.warning("%s", invalid)
            else:
                _log.info("the configuration is valid again")
        away = self.peers.away(self.engine.store.schedule.awaited_peers())
        self.engine.store.meta.set_away(away)
        self._away = {name: self._away.get(name, mono) for name in away}
        lasts = any(mono - since >= _LONG for since in self._away.values())
        self.health.report(Component.PEERS, "; ".join(away.values()), Grade.RED if lasts else Grade.AMBER)
        self.effects.notifying.order_trouble_notices()
        self.effects.notifying.order_digest()
        self.gateway.mark()
        return mono + _PEERS

    def _check_hub(self) -> float:
        """Store why mail for other hosts is delayed, and that they have forgotten work."""
        hub = self.effects.posting.hub
        for task_id, forgotten in hub.forgotten():
            if self.engine.store.tasks.get(task_id) is not None:
                self.engine.handle(task_id, forgotten)
        self.engine.store.meta.set_held_up(hub.held_up())
        self.engine.store.meta.set_holders(hub.holders())
        self.health.report(Component.HUB, hub.trouble(self.engine.now), Grade.RED if hub.view.is_full else Grade.AMBER)
        return self.engine.clock.monotonic() + _PEERS

    def _check_agents(self) -> float:
        """Say which agents get no work, and which sidecars do not work; outside of any batch."""
        why, lasts = breaker.trouble(self.engine.broken)
        if missing := self.peers.own_missing():
            why, lasts = missing, True
        self.health.report(Component.AGENTS, why, Grade.RED if lasts else Grade.AMBER)
        self.health.report(Component.SERVICE, "; ".join(one.trouble for one in self.sidecars if one.trouble))
        return self.engine.clock.monotonic() + _PEERS


def _in_recovery(turns: int, tasks: list[str]) -> str:
    """The sentence about turns whose gateway died; empty if there are none."""
    if not turns:
        return ""
    more = f" and {len(tasks) - _NAMED} more" if len(tasks) > _NAMED else ""
    of = f" ({', '.join(tasks[:_NAMED])}{more})" if tasks else ""
    return (
        f"{turns} turn{'s' * (turns != 1)}{of} {'were' if turns != 1 else 'was'} under way when OpenClaw's gateway "
        f"died; OpenClaw resumes {'them' if turns != 1 else 'it'} by itself, and mailboxd waits for that"
    )
