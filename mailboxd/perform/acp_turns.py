"""Turns that a harness takes for this agent (`runtime: acp`, docs/integrations.md): start, progress, permissions, end.

The call is an ordinary one (`effect_runner`, `process_table`). While it runs, the harness reports progress and may ask
for further permissions; it then waits in the middle of its turn until a person has decided, and takes no slot
meanwhile. All of this is exchanged through files in the call's directory (`agents.acp.turn_files`), so it survives a
restart of the daemon.

Tasks wait while their harness is not configured or its directory is missing: the operator must correct that. Unreadable
files in the call's directory are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from mailboxd.core.approvals import Approval, ApprovalStatus, PermissionAsked
from mailboxd.core.effects import AnswerPermission, LookUp, RunTurn
from mailboxd.core.inputs import Checkpoint
from mailboxd.core.model import Attempt, Task
from mailboxd.core.outcomes import Made, Outcome, Unknown
from mailboxd.core.sanitize import first_line
from mailboxd.core.times import to_epoch
from mailboxd.engine.engine import Engine
from mailboxd.engine.reports import Reports
from mailboxd.errors import Refused
from mailboxd.formats.config.model import HarnessSection
from mailboxd.formats.mailbox.layout import Workspace
from mailboxd.ledger.store import Order
from mailboxd.perform.agents.acp import transport, turn_files
from mailboxd.perform.agents.acp.turn_files import TurnRequest
from mailboxd.perform.agents.call_dir import PROMPT, Exit, refusal
from mailboxd.perform.agents.json_output import text_at
from mailboxd.perform.agents.process import NotStarted
from mailboxd.perform.process_table import PATIENCE, Call, CallKind, ProcessTable

_ASKING_SECONDS = 300
"""How long a harness may take to report what became of a turn."""


@dataclass(frozen=True, slots=True)
class HarnessProgress:
    """A report: a progress note from a harness."""

    task: str
    attempt: str
    note: str


@dataclass(frozen=True, slots=True)
class HarnessQuestion:
    """A report: a harness asks for permission during its turn."""

    call: Call
    effect: RunTurn
    number: int


@dataclass(slots=True)
class HarnessTurns:
    """Turns of one workspace's harnesses. `environ` is the daemon's environment."""

    engine: Engine
    calls: ProcessTable
    ws: Workspace
    configured: Mapping[str, HarnessSection]
    environ: Mapping[str, str]
    reports: Reports
    _notes_recorded: dict[str, int] = field(default_factory=dict)
    """The number of the last recorded progress note, by call."""

    def __post_init__(self) -> None:
        self.reports.route(HarnessProgress, self._record_progress)
        self.reports.route(HarnessQuestion, self._request_approval)

    # a turn begins

    def prompt(self, effect: RunTurn, task: Task, attempt: Attempt, text: bytes) -> bytes:
        """The prompt of a turn, with what a harness has to know. Raises NotStarted."""
        # Instructions come before the task, whose text is not trusted.
        header, _, rest = text.partition(b"\n")
        place = transport.instructions(self._request(effect.harness, task, attempt.id), effect.harness).encode()
        return b"\n".join([header, place, rest])

    def start(self, call: Call, effect: RunTurn, task: Task, attempt: Attempt, prompt: bytes) -> None:
        """Start a turn. Raises NotStarted, WorldError."""
        request = self._request(effect.harness, task, attempt.id)
        self._run(call, effect.harness, replace(request, session=attempt.session_ref or ""), prompt)

    def _request(self, harness: str, task: Task, attempt_id: str) -> TurnRequest:
        found = self.configured.get(harness)
        if found is None:
            raise NotStarted(harness, OSError(0, "no such harness is configured (acp.harnesses)"))
        try:
            cwd = transport.working_directory(self.ws.root, found.cwd)
        except OSError as problem:
            raise NotStarted(
                harness, OSError(0, f"its working directory is unavailable: {problem.strerror}")
            ) from problem
        return TurnRequest(
            argv=found.argv,
            cwd=cwd,
            state=str(self.ws.state),
            task_id=task.task_id,
            attempt_id=attempt_id,
            capabilities=found.capabilities,
            timeout=task.policy.timeout,
            grace=self.calls.grace,
        )

    def _folder(self, call_id: str) -> Path:
        return Path(self.calls.directory(call_id))

    def _run(self, call: Call, harness: str, request: TurnRequest, prompt: bytes) -> None:
        self.calls.start(
            call,
            transport.turn_argv(self._folder(call.id)),
            self.engine.clock.monotonic(),
            files={PROMPT: prompt, turn_files.REQUEST: transport.turn_request(request)},
            cwd=request.cwd,
            environment=transport.environment(self.environ, self.configured[harness].environment),
        )

    # while it runs

    def collect_updates(self) -> None:
        """Take progress notes and permission questions of running turns."""
        for call in list(self.calls.running.values()):
            if call.kind is CallKind.HARNESS_TURN and call.order and isinstance(call.order.effect, RunTurn):
                self._collect(call, call.order.effect)

    def _collect(self, call: Call, effect: RunTurn) -> None:
        folder = self._folder(call.id)
        progress = turn_files.read_note(folder, turn_files.PROGRESS) or {}
        number = progress.get("number")
        if isinstance(number, int) and number > self._notes_recorded.get(call.id, 0):
            self._notes_recorded[call.id] = number
            note = first_line(text_at(progress, "note"))
            self.reports.append(HarnessProgress(call.task, effect.attempt_id, note))
        self._suspend_while_asking(
            call, effect, [number for number in turn_files.questions(folder) if not self._is_answered(call, number)]
        )

    def _is_answered(self, call: Call, number: int) -> bool:
        return turn_files.read_note(self._folder(call.id), turn_files.answer(number)) is not None

    def _suspend_while_asking(self, call: Call, effect: RunTurn, open_questions: list[int]) -> None:
        """While a question is open, the turn takes no slot and its timeout does not run."""
        now, until = self.engine.clock.monotonic(), 0.0
        for number in open_questions:
            row = self._row(call.task, f"{call.id}.{number}")
            if row is None:
                self.reports.append(HarnessQuestion(call, effect, number))
            else:
                until = max(until, to_epoch(row.expires_at) - to_epoch(self.engine.clock.now()))
        if open_questions or call.without_slot:
            task = self.engine.store.tasks.get(call.task)
            call.deadline = now + until + (task.policy.timeout if task else 0) + PATIENCE
        call.without_slot = bool(open_questions)

    def _record_progress(self, progress: HarnessProgress) -> None:
        with suppress(Refused):
            self.engine.handle(progress.task, Checkpoint(progress.note, progress.attempt))

    def _request_approval(self, asked: HarnessQuestion) -> None:
        """Request the operator's approval, once per question."""
        call, effect, number = asked.call, asked.effect, asked.number
        origin = f"{call.id}.{number}"
        said = turn_files.read_note(self._folder(call.id), turn_files.question(number)) or {}
        if self._row(call.task, origin) is not None or not said:
            return
        wish = f"{effect.harness}: {first_line(text_at(said, 'wish'), 300) or 'does not say what it wants'}"
        preview, risk = text_at(said, "preview"), first_line(text_at(said, "why"), 300)
        request = PermissionAsked(self.engine.new_id("apr"), origin, wish, preview, risk, effect.attempt_id)
        try:
            self.engine.handle(call.task, request)
        except Refused as refused:
            self._answer(origin, "rejected", str(refused))

    # what was decided

    def answer(self, effect: AnswerPermission) -> None:
        """Give the decision to the waiting harness, unless its turn is over and removed. Raises WorldError."""
        row = self.engine.store.approvals.get(effect.approval_id)
        if row is not None and row.status is not ApprovalStatus.PENDING:
            self._answer(row.origin, str(row.status), row.note)

    def _answer(self, origin: str, decision: str, note: str) -> None:
        call_id, _, number = origin.partition(".")
        folder = self._folder(call_id)
        with suppress(FileNotFoundError):
            try:
                turn_files.write(folder, turn_files.answer(int(number)), {"decision": decision, "note": note})
            except FileNotFoundError:
                raise
            except OSError as problem:
                raise refusal(folder, problem) from problem

    def _row(self, task: str, origin: str) -> Approval | None:
        return next((row for row in self.engine.store.approvals.of_task(task) if row.origin == origin), None)

    # a turn has ended

    def finish(self, effect: RunTurn, outcome: Outcome) -> tuple[Outcome, tuple[Made, ...]]:
        """The outcome and artifacts of an ended turn; kills the processes that it left running."""
        folder = self._folder(effect.turn_id)
        self._notes_recorded.pop(effect.turn_id, None)
        transport.kill_leftover(folder)
        if isinstance(outcome, Unknown):
            outcome = replace(outcome, run_id=effect.turn_id)  # leads to its session
        return outcome, transport.artifacts(folder)

    # a turn was lost

    def look_up(self, order: Order, effect: LookUp) -> Outcome | None:
        """Ask the harness about a lost turn; None while that call runs or waits for a slot."""
        call_id = f"{order.id}.ask"
        task = self.engine.store.tasks.get(order.task)
        session = transport.resumable_session(self._folder(effect.run_id)) if effect.run_id else None
        if task is None or session is None:
            return Unknown("its end was not observed, and its harness cannot be asked", looked_up=True)
        if not self.calls.capacity.has_slot():
            return None
        key, timeout = f"ask:{effect.session_key}", _ASKING_SECONDS + PATIENCE
        call = Call(call_id, CallKind.HARNESS_LOOKUP, "", key, timeout, order, order.task)
        self.calls.discard(call_id)
        try:
            request = self._request(effect.harness, task, effect.attempt_id)
            asks = replace(request, session=session, asks=True, capabilities=(), timeout=_ASKING_SECONDS)
            self._run(call, effect.harness, asks, transport.QUESTION.encode())
        except NotStarted as missing:
            return Unknown(str(missing), looked_up=True)
        return None

    def looked_up(self, call: Call, exit_: Exit) -> Outcome:
        """The outcome of a lost turn, as reported by its harness."""
        transport.kill_leftover(self._folder(call.id))
        self.calls.discard_when_recorded(call.id)
        return transport.recovered_outcome(exit_, "it was interrupted during the turn")
