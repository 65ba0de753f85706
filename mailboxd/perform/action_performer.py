"""Prepares actions for approval, performs approved ones at most once, and determines their outcome.

The runner (`effects.action_runner`), a separate process, performs an action; it is started here or by Lobster's gate.
The outcome is read from the database and the runner's lock, not from the caller's exit: a runner may outlive its
caller, which is not trusted. An action that was started and whose runner died is unknown; only then `verify` runs.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from dataclasses import dataclass, field

from mailboxd.core.approvals import (
    ActionEnded,
    ActionImpossible,
    ActionKind,
    ActionNotBegun,
    ActionPrepared,
    Approval,
    ApprovalStatus,
    Performed,
    Purpose,
    digest,
)
from mailboxd.core.effects import Perform, Prepare, Verify
from mailboxd.core.sanitize import first_line
from mailboxd.core.times import plus
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Reports
from mailboxd.errors import EXIT_TRY_AGAIN
from mailboxd.ledger.store import Order
from mailboxd.perform.actions import gate as lobster
from mailboxd.perform.actions.command import GRACE, export_environment, working_directory
from mailboxd.perform.actions.gate import GateDir, existing_gates, is_verify_as_approved
from mailboxd.perform.actions.perform import Preview, preview
from mailboxd.perform.actions.result import (
    ActionContext,
    Impossible,
    combined_output,
    plain_environment,
    summary_of,
    tail,
)
from mailboxd.perform.agents.call_dir import Exit, cut_output, output_size
from mailboxd.perform.agents.process import NotStarted, State, read_exit
from mailboxd.perform.process_table import Call, CallKind, ProcessTable

LOBSTER = "lobster"
BUILTIN = "builtin"
_SECONDS = 60.0
"""How long Lobster may take to create or close a gate."""
_PREVIEW, TOKEN = "preview.txt", "token.json"


def effect_argv(place: GateDir) -> tuple[str, ...]:
    """The runner's command. It uses this installation, whatever the PATH contains."""
    runner = (sys.executable, "-P", "-m", "mailboxd.cli", "effect", "run", place.approval)
    return (*runner, "--workspace", str(place.root))


def workflow_of(place: GateDir) -> bytes | None:
    """The Lobster workflow of a gate; None if the path of the workspace does not allow one."""
    return lobster.workflow(place.approval, place.path / _PREVIEW, effect_argv(place))


_SLACK = 30.0
"""Seconds that a runner may take to end after its own timeout."""
_LATER = 10.0
"""Seconds before retrying an action whose runner the machine could not run for now."""
_AGAIN = 1.0
"""Seconds between two checks of a runner that is not a child of the daemon."""
_CLOSING = "close."
_HAPPENED, _DID_NOT = 0, 1
_log = logging.getLogger("mailboxd")


@dataclass(frozen=True, slots=True)
class RunnerEnded:
    """A report: an action's runner or its caller has ended; `how` is for people and decides nothing."""

    order: Order
    effect: Perform
    how: str
    refused: bool = False
    """The machine could not run it for now."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A report: an effect is done, with this to record; None if the approval's state requires nothing further."""

    order: Order
    said: ActionPrepared | ActionImpossible | ActionEnded | None = None


@dataclass(slots=True)
class ActionPerformer:
    """Prepares and performs the actions of one workspace. `program`: the command of Lobster; empty = none."""

    engine: Engine
    calls: ProcessTable
    setting: ActionContext
    program: tuple[str, ...]
    reports: Reports
    unrecorded: set[str] = field(default_factory=set)
    """Approvals that have a gate and are not recorded yet."""
    _shown: dict[str, Preview] = field(default_factory=dict)
    """Previews of actions for which Lobster is creating a gate, by call."""
    _seen: int = -1
    """The last event when unused gates were removed."""
    _has_gates: bool = True
    """There may be gates: most workspaces have none, which is known after the first look."""

    def __post_init__(self) -> None:
        self.reports.route(RunnerEnded, self._settle)
        self.reports.route(Settled, self._record)

    # preparing: a preview of the action, and a gate. Nothing is performed, so it is repeated after a crash; an
    # unrecorded gate of Lobster runs nothing

    def prepare(self, order: Order, effect: Prepare) -> None:
        """Preview an action when there is a slot, and let Lobster create a gate if it is configured.

        Raises WorldError.
        """
        now = self.engine.clock.monotonic()
        call = Call(order.id, CallKind.GATE, "", f"gate:{order.id}", _SECONDS, order)
        if self.calls.state(order.id) is State.RUNNING and self.calls.adopt(call, now):
            return
        if not self.calls.capacity.may_begin():
            return
        self.calls.discard(order.id)
        place = GateDir(self.setting.root, effect.approval_id)
        self.unrecorded.add(place.approval)
        self._has_gates = True
        place.create()
        try:
            shown = preview(effect.action, place, self.setting)
        except Impossible as why:
            place.remove()
            impossible = ActionImpossible(effect.action, first_line(str(why)), effect.undoes)
            self.reports.append(Settled(order, impossible))
            return
        gate = self._ask(call, effect, place, shown, now)
        if gate:
            self.reports.append(Settled(order, _prepared(effect, shown, gate)))
        else:
            self._shown[order.id] = shown

    def gate_created(self, order: Order, call: Call, exit_: Exit) -> None:
        """Take Lobster's answer: it has created a gate, or the built-in one is used alone."""
        effect, shown = order.effect, self._shown.pop(call.id, None)
        if shown is None or not isinstance(effect, Prepare) or (exit_.rc is None and not call.stopped):
            return  # an earlier daemon asked: it is asked again
        said = lobster.parse_answer(exit_.stdout)
        if call.stopped:
            gate = f"{BUILTIN}: lobster {call.stopped}"
        elif said.status == "needs_approval":
            GateDir(self.setting.root, effect.approval_id).write(TOKEN, exit_.stdout)
            gate = LOBSTER
        else:
            why = said.error or f"it answered {said.status}"
            gate = f"{BUILTIN}: Lobster has created no gate: {first_line(why)}"
        self.reports.append(Settled(order, _prepared(effect, shown, gate)))

    def _ask(self, call: Call, effect: Prepare, place: GateDir, shown: Preview, now: float) -> str:
        """Let Lobster create a gate; returns the gate's name if there is nothing to wait for."""
        if effect.action.kind is ActionKind.MANUAL or not self.program:
            return BUILTIN
        if shutil.which(self.program[0], path=self.setting.environ.get("PATH")) is None:
            return f"{BUILTIN}: {self.program[0]} is not installed"
        workflow = workflow_of(place)
        if workflow is None:
            return f"{BUILTIN}: the path of the workspace cannot be used in a Lobster workflow"
        place.write(_PREVIEW, shown.text.encode())
        place.write(place.workflow.name, workflow, 0o400)
        place.state.mkdir(mode=0o700)
        environment = lobster.lobster_environment(self.setting.environ, place.state)
        try:
            self.calls.start(call, lobster.run_argv(self.program, place.workflow), now, environment=environment)
        except NotStarted as missing:
            missing.require_lasting()
            return f"{BUILTIN}: {first_line(str(missing))}"
        return ""

    # performing

    def begin(self, order: Order, effect: Perform) -> None:
        """Start the runner when there is a slot, or adopt the one that an earlier daemon has started.

        Raises WorldError.
        """
        row = self.engine.store.approvals.get(effect.approval_id)
        if row is None or not _is_wanted(row, effect):
            self.reports.append(Settled(order))
            return
        now, place = self.engine.clock.monotonic(), GateDir(self.setting.root, row.id)
        call = Call(order.id, CallKind.ACTION, "", f"effect:{row.id}", self._seconds(row), order)
        found = self.calls.state(order.id)
        if found is State.RUNNING and self.calls.adopt(call, now):
            return
        if found is not State.NEVER_STARTED or row.state is Performed.STARTED:
            self.reports.append(RunnerEnded(order, effect, "nobody saw how its runner ended"))
            return
        if not self.calls.capacity.may_begin():
            return
        if row.purpose is Purpose.ACTION and not self.engine.store.tasks.may_act(order.task):
            return
        environment = plain_environment(self.setting.environ) | export_environment(self.setting)
        words = effect_argv(place)
        try:
            if _opens_lobster(row):  # Lobster's gate opens once; a retry uses the built-in one
                words = self._resume(place, approve=True)
                environment |= {"LOBSTER_STATE_DIR": str(place.state), "LOBSTER_APPROVAL_APPROVED_BY": row.resolved_by}
            self.calls.start(call, words, now, environment=environment)
        except (NotStarted, Impossible) as why:
            if isinstance(why, NotStarted):
                why.require_lasting()
            self.reports.append(RunnerEnded(order, effect, first_line(str(why))))

    def ended(self, order: Order, call: Call, exit_: Exit) -> None:
        """Take the end of a runner, or of the Lobster that started it."""
        if isinstance(order.effect, Perform):
            refused = exit_.rc == EXIT_TRY_AGAIN
            self.reports.append(RunnerEnded(order, order.effect, _how(call, exit_), refused=refused))

    def _resume(self, place: GateDir, *, approve: bool) -> tuple[str, ...]:
        """The command that opens or closes Lobster's gate. Raises Impossible if the gate was changed."""
        if place.read(place.workflow.name) != workflow_of(place):
            raise Impossible(f"{place.workflow} was changed after mailboxd wrote it; it is not resumed")
        gate = lobster.parse_answer(place.read(TOKEN) or b"")
        if not gate.id or not self.program:
            raise Impossible("Lobster's gate no longer exists")
        return lobster.resume_argv(self.program, gate.id, approve=approve)

    def _settle(self, report: RunnerEnded) -> None:
        """Settle an action whose caller has ended, by the database and the lock; inside a batch."""
        order, effect, how = report.order, report.effect, report.how
        row = self.engine.store.approvals.get(effect.approval_id)
        place = GateDir(self.setting.root, effect.approval_id)
        if row is not None and _is_wanted(row, effect):
            if place.is_locked() or self._lives_on(row, place):
                self.engine.store.outbox.postpone(order.id, plus(self.engine.now, _AGAIN))
                return
            if row.state is Performed.STARTED:
                why = f"it was started, but its end was not observed: {how}"
                self.engine.handle(order.task, ActionEnded(row.id, Performed.UNKNOWN, why, self._left(row, place)))
            elif report.refused and not _opens_lobster(row):  # the machine could not run it for now
                _log.warning("the action %s waits: %s", row.short_id, how)
                self.calls.discard(order.id)
                self.engine.store.outbox.postpone(order.id, plus(self.engine.now, _LATER))
                return
            else:
                self.engine.handle(order.task, ActionNotBegun(row.id, how))
        self._finish(order)

    def _lives_on(self, row: Approval, place: GateDir) -> bool:
        """Whether the action's program is alive without its runner; it is stopped after its timeout."""
        child = place.running_program()
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

    def _left(self, row: Approval, place: GateDir) -> str:
        """The output of the program."""
        if not place.effect.is_dir():
            return ""
        exit_ = read_exit(place.effect, None, self.setting.output_cap)
        return self._printed(row, exit_)

    # verifying

    def verify(self, order: Order, effect: Verify) -> None:
        """Start the action's `verify` when there is a slot. Raises WorldError."""
        row = self.engine.store.approvals.get(effect.approval_id)
        if row is None or not _is_wanted(row, effect):
            self.reports.append(Settled(order))
            return
        now, seconds = self.engine.clock.monotonic(), self.setting.seconds(row.action)
        call = Call(order.id, CallKind.VERIFY, "", f"verify:{row.id}", seconds, order, kill_leftovers=True)
        if self.calls.state(order.id) is State.RUNNING and self.calls.adopt(call, now):
            return
        if not self.calls.capacity.has_slot():
            return
        self.calls.discard(order.id)  # the end of an earlier run was not observed; asking again is harmless
        try:
            if not is_verify_as_approved(row.action, GateDir(self.setting.root, row.id)):
                raise Impossible("a file that verify names has changed since it was approved")
            environment = self.setting.variables(row.action)
            with working_directory(self.setting.root, row.action.cwd) as here:
                self.calls.start(call, row.action.verify, now, cwd=here, environment=environment)
        except (NotStarted, Impossible) as why:
            if isinstance(why, NotStarted):
                why.require_lasting()
            problem = f"{row.summary}; it cannot be verified: {first_line(str(why))}"
            self.reports.append(Settled(order, ActionEnded(row.id, Performed.UNKNOWN, problem)))

    def verify_ended(self, order: Order, call: Call, exit_: Exit) -> None:
        """Take what `verify` says of an action."""
        row = self.engine.store.approvals.get(order.effect.approval_id) if isinstance(order.effect, Verify) else None
        if row is None or (exit_.rc is None and not call.stopped):
            return  # adopted: its exit status is lost, so it is run again
        report = self._printed(row, exit_)
        if exit_.rc == _HAPPENED and not call.stopped:
            end = ActionEnded(row.id, Performed.DONE, f"{row.summary}; verify says that it happened", report)
        elif exit_.rc == _DID_NOT and not call.stopped:
            end = ActionEnded(row.id, Performed.FAILED, f"{row.summary}; verify says that it did not happen", report)
        else:
            why = call.stopped or f"exit status {exit_.rc}"
            end = ActionEnded(row.id, Performed.UNKNOWN, f"{row.summary}; verify is inconclusive: {why}", report)
        self.reports.append(Settled(order, end))

    # putting away

    def put_away(self) -> None:
        """Remove gates that are no longer needed; those of Lobster that were not approved are closed first."""
        if not self._has_gates or (last := self.engine.store.last_recorded) == self._seen:
            return
        self._seen, gates = last, existing_gates(self.setting.root)
        self._has_gates = bool(gates)
        for name in gates:
            row = self.engine.store.approvals.get(name)
            if name in self.unrecorded or (row is not None and (row.is_open or _is_doubtful(row))):
                continue
            place = GateDir(self.setting.root, name)
            if not place.is_locked() and not self._is_closing(row, place):
                place.remove()

    def _is_closing(self, row: Approval | None, place: GateDir) -> bool:
        """Whether Lobster is closing the gate, so that its directory is still needed."""
        call_id = f"{_CLOSING}{place.approval}"
        if call_id in self.calls.running:
            return True
        told = self.calls.state(call_id) is not State.NEVER_STARTED
        if row is None or row.gate != LOBSTER or row.status is ApprovalStatus.APPROVED or told:
            self.calls.discard(call_id)
            return False
        call = Call(call_id, CallKind.GATE_CLOSING, "", call_id, _SLACK)
        environment = lobster.lobster_environment(self.setting.environ, place.state)
        try:
            words = self._resume(place, approve=False)
            self.calls.start(call, words, self.engine.clock.monotonic(), environment=environment)
        except (NotStarted, Impossible):
            return False
        return True

    def gate_is_closed(self, call: Call) -> None:
        """Remove the directory of a gate that Lobster has closed."""
        GateDir(self.setting.root, call.id.removeprefix(_CLOSING)).remove()
        self.calls.discard_when_recorded(call.id)

    def _seconds(self, row: Approval) -> float:
        return self.setting.seconds(row.action) + GRACE + _SLACK

    def _printed(self, row: Approval, exit_: Exit) -> str:
        try:
            secrets = self.setting.secrets(row.action)
        except Impossible:
            if row.action.env:
                return "(not kept: its variables are no longer known)"
            secrets = {}
        return combined_output(exit_.stdout, exit_.stderr, secrets)

    def _record(self, report: Settled) -> None:
        if report.said is not None:
            self.engine.handle(report.order.task, report.said)
        if isinstance(report.order.effect, Prepare):
            self.unrecorded.discard(report.order.effect.approval_id)
        self._finish(report.order)

    def _finish(self, order: Order) -> None:
        self.engine.store.outbox.finish(order.id)
        self.calls.discard_when_recorded(order.id)


def _prepared(effect: Prepare, shown: Preview, gate: str) -> ActionPrepared:
    bound = (shown.content_sha256, shown.target_sha256)
    whole = digest(effect.action, *bound)
    return ActionPrepared(effect.approval_id, effect.action, shown.text, whole, gate, *bound, undoes=effect.undoes)


def _is_wanted(row: Approval, effect: Perform | Verify) -> bool:
    if isinstance(effect, Verify):
        return _is_doubtful(row)
    approved = row.status is ApprovalStatus.APPROVED
    return row.state is Performed.STARTED or (approved and row.state is Performed.NOT)


def _opens_lobster(row: Approval) -> bool:
    """Whether Lobster starts the runner."""
    return row.gate == LOBSTER and row.tries == 0


def _is_doubtful(row: Approval) -> bool:
    """Whether `verify` is still to determine the outcome."""
    return row.state is Performed.UNKNOWN and not row.checked


def _how(call: Call, exit_: Exit) -> str:
    """A short description of how the call ended; for people, it decides nothing."""
    if call.stopped:
        return call.stopped
    said = lobster.parse_answer(exit_.stdout).error if exit_.stdout.lstrip().startswith(b"{") else ""
    status = "exit status unknown" if exit_.rc is None else f"exit status {exit_.rc}"
    return summary_of(status, said or tail(exit_.stderr))
