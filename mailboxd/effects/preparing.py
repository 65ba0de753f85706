"""Prepares planned actions for a person: what exactly would happen is looked at, and a gate is put before it.

Nothing is performed. After a crash it is done again: a gate of Lobster's that nobody knows of runs nothing.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from mailboxd.agents.callfiles import Exit
from mailboxd.agents.process import NotStarted, State
from mailboxd.core.actions import ActionKind, digest
from mailboxd.core.approvals import ActionImpossible, ActionPrepared
from mailboxd.core.effects import Prepare
from mailboxd.core.text import first_line
from mailboxd.effects.calls import Call, Calls, NewCall
from mailboxd.engine import Engine
from mailboxd.gates import lobster
from mailboxd.gates.ends import Impossible, Setting
from mailboxd.gates.place import Place
from mailboxd.gates.preview import Shown, preview
from mailboxd.store.store import Order

LOBSTER = "lobster"
BUILTIN = "builtin"
_SECONDS = 60.0
"""How long Lobster may take to put up a gate, or to take one down."""
_PREVIEW, TOKEN = "preview.txt", "token.json"


def effect_words(place: Place) -> tuple[str, ...]:
    """What performs it: this very installation, wherever a login shell's PATH may point."""
    runner = (sys.executable, "-P", "-m", "mailboxd.cli", "effect", "run", place.approval)
    return (*runner, "--workspace", str(place.root))


def workflow_of(place: Place) -> bytes | None:
    """The workflow that belongs to a gate; None where there can be none."""
    return lobster.workflow(place.approval, place.path / _PREVIEW, effect_words(place))


@dataclass(slots=True)
class Preparing:
    """One workspace's. `program` is the Lobster of the configuration; empty: none."""

    engine: Engine
    calls: Calls
    setting: Setting
    program: tuple[str, ...]
    reports: list[Callable[[], None]]
    _asked: dict[str, tuple[Order, Prepare, Shown | None]] = field(default_factory=dict)
    """What Lobster is being asked about, by call; without what is shown: an earlier daemon asked."""
    unrecorded: set[str] = field(default_factory=set)
    """Approvals whose gates are up and that nobody has recorded yet."""

    def owns(self, call: Call) -> bool:
        return call.id in self._asked

    def begin(self, order: Order, effect: Prepare) -> bool:
        """Look at an action, and ask Lobster for a gate where there is one. False while there is no slot for that.

        Raises WorldError.
        """
        now = self.engine.clock.monotonic()
        call = NewCall(order.id, "", f"gate:{order.id}", _SECONDS)
        if self.calls.state(order.id) is State.RUNNING and self.calls.adopt(call, now):
            self._asked[order.id] = (order, effect, None)
            return True
        if not self.calls.has_room(now):
            return False
        self.calls.discard(order.id)
        place = Place(self.setting.root, effect.approval_id)
        self.unrecorded.add(place.approval)
        place.make()
        try:
            shown = preview(effect.action, place, self.setting)
        except Impossible as why:
            place.remove()
            self.reports.append(partial(self._impossible, order, effect, first_line(str(why))))
            return True
        gate = self._ask(call, effect, place, shown, now)
        if gate:
            self.reports.append(partial(self._prepared, order, effect, shown, gate))
        else:
            self._asked[order.id] = (order, effect, shown)
        return True

    def ended(self, call: Call, exit_: Exit) -> None:
        """Record the gate that Lobster has put up, or that ours stands there alone; inside a batch."""
        order, effect, shown = self._asked.pop(call.id)
        if shown is None or (exit_.rc is None and not call.stopped):
            return  # of an earlier daemon: it is asked anew
        said = lobster.read(exit_.stdout)
        if call.stopped:
            gate = f"{BUILTIN}: lobster {call.stopped}"
        elif said.status == "needs_approval":
            Place(self.setting.root, effect.approval_id).keep(TOKEN, exit_.stdout)
            gate = LOBSTER
        else:
            why = said.error or f"it answered {said.status}"
            gate = f"{BUILTIN}: lobster has put up no gate: {first_line(why)}"
        self._prepared(order, effect, shown, gate)

    # -------------------------------------------------------------- inside

    def _ask(self, call: NewCall, effect: Prepare, place: Place, shown: Shown, now: float) -> str:
        """Have Lobster put up a gate; the name of the gate if it need not be waited for."""
        if effect.action.kind is ActionKind.MANUAL or not self.program:
            return BUILTIN
        if shutil.which(self.program[0], path=self.setting.environ.get("PATH")) is None:
            return f"{BUILTIN}: {self.program[0]} is not installed"
        workflow = workflow_of(place)
        if workflow is None:
            return f"{BUILTIN}: the path of the workspace cannot stand in a workflow of Lobster"
        place.keep(_PREVIEW, shown.text.encode())
        place.keep(place.workflow.name, workflow, 0o400)
        place.state.mkdir(mode=0o700)
        environment = lobster.environment(self.setting.environ, place.state)
        try:
            self.calls.start(call, lobster.run_words(self.program, place.workflow), now, environment=environment)
        except NotStarted as missing:
            missing.require_lasting()
            return f"{BUILTIN}: {first_line(str(missing))}"
        return ""

    def _prepared(self, order: Order, effect: Prepare, shown: Shown, gate: str) -> None:
        bound = (shown.content_sha256, shown.target_sha256)
        name, whole = effect.approval_id, digest(effect.action, *bound)
        prepared = ActionPrepared(name, effect.action, shown.text, whole, gate, *bound, undoes=effect.undoes)
        self.engine.hear(order.task, prepared)
        self._done(order, effect)

    def _impossible(self, order: Order, effect: Prepare, why: str) -> None:
        self.engine.hear(order.task, ActionImpossible(effect.action, why, effect.undoes))
        self._done(order, effect)

    def _done(self, order: Order, effect: Prepare) -> None:
        self.engine.store.finish(order.id)
        self.calls.discard_when_recorded(order.id)
        self.unrecorded.discard(effect.approval_id)
