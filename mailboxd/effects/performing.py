"""Lets approved actions happen, once, and finds out what became of them.

What performs one is the runner, a process of its own (`runner`), started here or by Lobster's gate. What became of it
is read from the database and from the runner's lock, never from an answer: a runner outlives its caller, and its
caller may lie. Begun and not ended, with nobody alive who could end it, is unknown, and only then is `verify` asked.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from mailboxd.agents.callfiles import Exit, cut_output, output_size, read_exit
from mailboxd.agents.process import NotStarted, State
from mailboxd.core.approvals import ActionEnded, ActionNotBegun, Approval, ApprovalStatus, Performed
from mailboxd.core.effects import Perform, Prepare, Verify
from mailboxd.core.text import first_line
from mailboxd.core.times import plus
from mailboxd.effects.calls import Call, Calls, NewCall
from mailboxd.effects.preparing import LOBSTER, TOKEN, Preparing, effect_words, workflow_of
from mailboxd.engine import Engine
from mailboxd.errors import EXIT_TRY_AGAIN
from mailboxd.gates import lobster
from mailboxd.gates.binding import is_verify_as_approved
from mailboxd.gates.commands import GRACE, standing
from mailboxd.gates.ends import Impossible, Setting, printed, tail
from mailboxd.gates.handover import handed_over
from mailboxd.gates.place import Place, standing_gates
from mailboxd.store.store import Order

_SLACK = 30.0
"""Seconds past its own timeout that a runner is left to end by itself."""
_LATER = 10.0
"""Seconds before an action is tried again that the machine has refused its runner for now."""
_AGAIN = 1.0
"""Seconds between two looks at a runner that is not our child."""
_CLOSING = "close."
_HAPPENED, _DID_NOT = 0, 1
_log = logging.getLogger("mailboxd")


@dataclass(slots=True)
class Performing:
    """One workspace's side effects."""

    preparing: Preparing
    _running: dict[str, tuple[Order, Perform | Verify]] = field(default_factory=dict)
    _seen: int = -1
    """The last event that gates were put away after."""

    @property
    def engine(self) -> Engine:
        return self.preparing.engine

    @property
    def calls(self) -> Calls:
        return self.preparing.calls

    @property
    def setting(self) -> Setting:
        return self.preparing.setting

    @property
    def reports(self) -> list[Callable[[], None]]:
        return self.preparing.reports

    def owns(self, call: Call) -> bool:
        return call.id in self._running or call.id.startswith(_CLOSING) or self.preparing.owns(call)

    def begin(self, order: Order, effect: Prepare | Perform | Verify) -> bool:
        """Do it, or wait for what an earlier daemon has begun. False while there is no slot. Raises WorldError."""
        if isinstance(effect, Prepare):
            return self.preparing.begin(order, effect)
        row = self.engine.store.approval(effect.approval_id)
        if row is None or not _is_wanted(row, effect):
            self.reports.append(partial(self._finish, order))
            return True
        return self._perform(order, effect, row) if isinstance(effect, Perform) else self._verify(order, effect, row)

    def ended(self, call: Call, exit_: Exit) -> None:
        """Record what became of it; inside a batch."""
        if self.preparing.owns(call):
            self.preparing.ended(call, exit_)
        elif call.id in self._running:
            order, effect = self._running.pop(call.id)
            if isinstance(effect, Perform):
                self._settle(order, effect, _how(call, exit_), refused=exit_.rc == EXIT_TRY_AGAIN)
            else:
                self._verified(order, effect, call, exit_)
        else:
            self._remove(call.id)

    # -------------------------------------------------------------- performing

    def _perform(self, order: Order, effect: Perform, row: Approval) -> bool:
        now, place = self.engine.clock.monotonic(), Place(self.setting.root, row.id)
        call = NewCall(order.id, "", f"effect:{row.id}", self._seconds(row))
        found = self.calls.state(order.id)
        if found is State.RUNNING and self.calls.adopt(call, now):
            self._running[order.id] = (order, effect)
            return True
        if found is not State.NEVER_STARTED or row.state is Performed.STARTED:
            how = "mailboxd was not there when it ended"
            self.reports.append(partial(self._settle, order, effect, how))
            return True
        if not self.calls.has_room(now):
            return False
        environment = lobster.plain(self.setting.environ) | handed_over(self.setting)
        words = effect_words(place)
        try:
            if _opens_lobster(row):  # Lobster's gate opens once; after that ours is the only one
                words = self._resume(place, approve=True)
                environment |= {"LOBSTER_STATE_DIR": str(place.state), "LOBSTER_APPROVAL_APPROVED_BY": row.resolved_by}
            self.calls.start(call, words, now, environment=environment)
        except (NotStarted, Impossible) as why:
            if isinstance(why, NotStarted):
                why.require_lasting()
            self.reports.append(partial(self._settle, order, effect, first_line(str(why))))
            return True
        self._running[order.id] = (order, effect)
        return True

    def _resume(self, place: Place, *, approve: bool) -> tuple[str, ...]:
        """The words that open or close Lobster's gate. Raises Impossible when it is not as we have put it up."""
        if place.kept(place.workflow.name) != workflow_of(place):
            raise Impossible(f"{place.workflow} is not as mailboxd wrote it; it is not resumed")
        gate = lobster.read(place.kept(TOKEN) or b"")
        if not gate.id or not self.preparing.program:
            raise Impossible("the gate of Lobster cannot be found any more")
        return lobster.resume_words(self.preparing.program, gate.id, approve=approve)

    def _settle(self, order: Order, effect: Perform, how: str, *, refused: bool = False) -> None:
        """What the database and the lock say of it, now that its caller has ended; inside a batch."""
        row = self.engine.store.approval(effect.approval_id)
        place = Place(self.setting.root, effect.approval_id)
        if row is not None and _is_wanted(row, effect):
            if place.is_held() or self._lives_on(row, place):
                self.engine.store.postpone(order.id, plus(self.engine.now, _AGAIN))
                return
            if row.state is Performed.STARTED:
                why = f"it was begun, and nobody saw its end: {how}"
                self.engine.hear(order.task, ActionEnded(row.id, Performed.UNKNOWN, why, self._left(row, place)))
            elif refused and not _opens_lobster(row):  # the machine refused the runner something, for now
                _log.warning("the action %s waits: %s", row.short_id, how)
                self.calls.discard(order.id)
                self.engine.store.postpone(order.id, plus(self.engine.now, _LATER))
                return
            else:
                self.engine.hear(order.task, ActionNotBegun(row.id, how))
        self._finish(order)

    def _lives_on(self, row: Approval, place: Place) -> bool:
        """Whether the program that was run is alive without its runner; it is stopped when its time is over."""
        child = place.orphan()
        if child is None:
            return False
        try:
            over = plus(row.started_at or self.engine.now, self._seconds(row))
            is_too_long = output_size(place.effect) > self.setting.output_cap
            if is_too_long:
                cut_output(place.effect, self.setting.output_cap)
            if self.engine.now > plus(over, GRACE):
                child.kill()
            elif self.engine.now > over or is_too_long:
                child.terminate()
        finally:
            os.close(child.pidfd)
        return True

    def _left(self, row: Approval, place: Place) -> str:
        """What the program has printed."""
        if not place.effect.is_dir():
            return ""
        exit_ = read_exit(place.effect, None, self.setting.output_cap)
        return self._printed(row, exit_)

    # -------------------------------------------------------------- verifying

    def _verify(self, order: Order, effect: Verify, row: Approval) -> bool:
        now = self.engine.clock.monotonic()
        call = NewCall(order.id, "", f"verify:{row.id}", self.setting.seconds(row.action), wipe=True)
        if self.calls.state(order.id) is State.RUNNING and self.calls.adopt(call, now):
            self._running[order.id] = (order, effect)
            return True
        if not self.calls.has_room(now):
            return False
        self.calls.discard(order.id)  # of a run whose end nobody saw: it only asks, and is asked again
        try:
            if not is_verify_as_approved(row.action, Place(self.setting.root, row.id)):
                raise Impossible("a file that verify names is another one now than was approved")
            environment = self.setting.variables(row.action)
            with standing(self.setting.root, row.action.cwd) as here:
                self.calls.start(call, row.action.verify, now, cwd=here, environment=environment)
        except (NotStarted, Impossible) as why:
            if isinstance(why, NotStarted):
                why.require_lasting()
            end = ActionEnded(
                row.id, Performed.UNKNOWN, f"{row.summary}; it cannot be verified: {first_line(str(why))}"
            )
            self.reports.append(partial(self._say, order, end))
            return True
        self._running[order.id] = (order, effect)
        return True

    def _verified(self, order: Order, effect: Verify, call: Call, exit_: Exit) -> None:
        row = self.engine.store.approval(effect.approval_id)
        if row is None or (exit_.rc is None and not call.stopped):
            return  # adopted: how it ended is lost, so it is asked anew
        report = self._printed(row, exit_)
        if exit_.rc == _HAPPENED and not call.stopped:
            end = ActionEnded(row.id, Performed.DONE, f"{row.summary}; asked again, it did happen", report)
        elif exit_.rc == _DID_NOT and not call.stopped:
            end = ActionEnded(row.id, Performed.FAILED, f"{row.summary}; asked again, it did not happen", report)
        else:
            why = call.stopped or f"exit status {exit_.rc}"
            end = ActionEnded(row.id, Performed.UNKNOWN, f"{row.summary}; verify does not know either: {why}", report)
        self._say(order, end)

    def _say(self, order: Order, end: ActionEnded) -> None:
        self.engine.hear(order.task, end)
        self._finish(order)

    # -------------------------------------------------------------- putting away

    def put_away(self) -> None:
        """Take down the gates that nothing can come through any more. Lobster is told no where a person said no."""
        if (last := self.engine.store.last_recorded) == self._seen:
            return
        self._seen = last
        for name in standing_gates(self.setting.root):
            row = self.engine.store.approval(name)
            if name in self.preparing.unrecorded or (row is not None and (row.is_open or _is_doubtful(row))):
                continue
            place = Place(self.setting.root, name)
            if not place.is_held() and not self._is_closing(row, place):
                place.remove()

    def _is_closing(self, row: Approval | None, place: Place) -> bool:
        """Whether Lobster is being told, so that the gate has to stand a moment longer."""
        call_id = f"{_CLOSING}{place.approval}"
        if call_id in self.calls.running:
            return True
        told = self.calls.state(call_id) is not State.NEVER_STARTED
        if row is None or row.gate != LOBSTER or row.status is ApprovalStatus.APPROVED or told:
            self.calls.discard(call_id)
            return False
        call = NewCall(call_id, "", call_id, _SLACK)
        environment = lobster.environment(self.setting.environ, place.state)
        try:
            words = self._resume(place, approve=False)
            self.calls.start(call, words, self.engine.clock.monotonic(), environment=environment)
        except (NotStarted, Impossible):
            return False
        return True

    def _remove(self, call_id: str) -> None:
        Place(self.setting.root, call_id.removeprefix(_CLOSING)).remove()
        self.calls.discard_when_recorded(call_id)

    # -------------------------------------------------------------- small

    def _seconds(self, row: Approval) -> float:
        return self.setting.seconds(row.action) + GRACE + _SLACK

    def _printed(self, row: Approval, exit_: Exit) -> str:
        try:
            secrets = self.setting.secrets(row.action)
        except Impossible:
            if row.action.env:
                return "(not kept: its variables are not known any more)"
            secrets = {}
        return printed(exit_.stdout, exit_.stderr, secrets)

    def _finish(self, order: Order) -> None:
        self.engine.store.finish(order.id)
        self.calls.discard_when_recorded(order.id)


def _is_wanted(row: Approval, effect: Perform | Verify) -> bool:
    if isinstance(effect, Verify):
        return _is_doubtful(row)
    approved = row.status is ApprovalStatus.APPROVED
    return row.state is Performed.STARTED or (approved and row.state is Performed.NOT)


def _opens_lobster(row: Approval) -> bool:
    """Whether it is Lobster that starts the runner."""
    return row.gate == LOBSTER and row.tries == 0


def _is_doubtful(row: Approval) -> bool:
    """Whether its own `verify` is still to say what became of it."""
    return row.state is Performed.UNKNOWN and not row.checked


def _how(call: Call, exit_: Exit) -> str:
    """In a few words, how what was started has ended; only ever told, never believed."""
    if call.stopped:
        return call.stopped
    said = lobster.read(exit_.stdout).error if exit_.stdout.lstrip().startswith(b"{") else ""
    last = next((line for line in map(first_line, reversed(tail(exit_.stderr).splitlines())) if line), "")
    status = "nobody saw its exit status" if exit_.rc is None else f"exit status {exit_.rc}"
    return f"{status}: {first_line(said) or last}" if said or last else status
