"""Renders tasks as task.md, and turns edits of these files into inputs (protocol section 3).

SQLite is authoritative. An edit is compared with what the file would show now; a legal one becomes inputs, an illegal
one is kept beside the file, recorded, and overwritten.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import Any

from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.explain.model import Cause
from mailboxd.core.explain.why import explain
from mailboxd.core.inputs import (
    Cancel,
    ChildEdited,
    Edited,
    Imported,
    ImportedDispatched,
    ImportedDone,
    ImportedFailed,
    NewTask,
    SpecWritten,
    Start,
)
from mailboxd.core.lifecycle import BEFORE_EXECUTION
from mailboxd.core.model import Origin, PlannedChild, Task
from mailboxd.core.plans import given_to
from mailboxd.core.sanitize import first_line
from mailboxd.core.specs import apply, stated
from mailboxd.core.times import moment, to_epoch
from mailboxd.core.vocabulary import SELF, Mode, Phase, child_status, is_id, same_agent, task_status
from mailboxd.engine.engine import Engine
from mailboxd.engine.intake import provenance
from mailboxd.engine.intake.interpret import Intake
from mailboxd.engine.intake.provenance import Claims
from mailboxd.engine.operator_commands import settled
from mailboxd.engine.reports import Reports, TaskFileWritten
from mailboxd.errors import MailboxdError, MessageError, PlanError, Refused, StoreError, WorldError
from mailboxd.formats.mailbox.files import MANY, ObstructedError
from mailboxd.formats.mailbox.task_files import ChangedFile, TaskFileChanges, TaskFiles
from mailboxd.formats.protocol.headers import time
from mailboxd.formats.protocol.markdown import Section, join_body
from mailboxd.formats.protocol.plan import DagNode
from mailboxd.formats.protocol.prompts import Templates
from mailboxd.formats.protocol.spec import Sections, is_spec_section, rewritten, shown_sections
from mailboxd.formats.protocol.taskmd import (
    TaskEdit,
    TaskFile,
    compare,
    divide,
    is_sealed,
    of_spec,
    parse_task_file,
    render_task_file,
    seal_of,
    sealed,
    unsealed,
)
from mailboxd.ledger import explain_queries
from mailboxd.ledger.store import Store

# Adopting the status of a task.md that mailboxd did not write

_UNDER_WAY = ("executing", "aggregating", "done", "failed")
ACTOR = "task.md"


def adopt_status(engine: Engine, task: Task, written: TaskFile) -> None:
    """Bring a new task and its children to the status in its file; inside a batch.

    Work that was in progress here starts again, for its progress is unknown. Raises Refused.
    """
    if task.mode is Mode.COORDINATING and written.status in _UNDER_WAY:
        _adopt_children(engine, task, written)
    now = engine.store.tasks.get(task.id) or task
    if now.phase.is_terminal:
        return
    ended = _past(written.updated_at, engine.now)
    match written.status:
        case "done":
            result = written.synthesised if task.mode is Mode.COORDINATING else written.results
            engine.handle(task.id, ImportedDone(result, completed_at=ended), actor=ACTOR)
        case "failed":
            engine.handle(
                task.id,
                ImportedFailed(written.results, completed_at=ended),
                actor=ACTOR,
            )
        case "cancelled":
            engine.handle(task.id, Cancel(task.sender, "it was cancelled before mailboxd was set up"), actor=ACTOR)


def _adopt_children(engine: Engine, task: Task, written: TaskFile) -> None:
    results = dict(written.subtask_results)
    nodes = {node.key: node for node in written.dag}
    children = engine.store.tasks.children(task.id)
    for child in children:
        imported = _imported(nodes[child.key], results.get(child.key, ""), engine.now)
        if imported is not None:
            engine.handle(child.id, imported, actor=ACTOR)
    if written.status not in ("executing", "aggregating"):
        return
    engine.handle(task.id, Start())
    for child in children:
        node = nodes[child.key]
        if node.status == "dispatched" and child.executor != engine.settings.agent and not child.broadcast:
            engine.handle(child.id, ImportedDispatched(_past(node.dispatched_at, engine.now)), actor=ACTOR)


def _past(text: str, now: str) -> str:
    """A time as mailboxd writes it; empty if it is none, or in the future."""
    try:
        at = time(text, lambda _: None)
    except MessageError:
        return ""
    return at if at <= now else ""


def _imported(node: DagNode, result: str, now: str) -> Imported | None:
    kept = (node.result_summary, _past(node.dispatched_at, now), _past(node.completed_at, now))
    if node.status == "done":
        return ImportedDone(result or node.result_summary, *kept)
    if node.status == "failed":
        return ImportedFailed(result or node.result_summary, *kept)
    return None


# The section about what the task and its children wait for, as `mailboxd why` says it

HEADING = "Waiting For"
_MOST = 20
_STAYS = frozenset(
    {
        "paused", "order", "budget", "circuit", "question", "spec", "draft", "review", "reviewers", "check", "approval",
        "reply", "lookup", "backoff",
    }
)  # fmt: skip
"""Kinds of causes that end with an event of the task, after which its file is written again."""


def waiting_section(store: Store, task: Task, children: Sequence[Task], now: str) -> tuple[tuple[str, str], ...]:
    """The causes of waiting of the task and its children, blocked ones first; empty if there are none."""
    waiting = sorted((one for one in (task, *children) if _may_wait(one)), key=lambda one: not _is_blocked(one))
    lines = [line for one in waiting[:_MOST] for line in _lines(store, one, now)]
    if lines and len(waiting) > _MOST:
        lines.append(f"- and perhaps {len(waiting) - _MOST} more: `mailboxd why {task.local_id}`")
    return ((HEADING, "\n".join(lines)),) if lines else ()


def _may_wait(task: Task) -> bool:
    ready = task.phase is Phase.EXECUTION_READY and task.not_before is None
    return not task.phase.is_terminal and (not ready or bool(task.held))


def _is_blocked(task: Task) -> bool:
    return bool(task.held) or task.phase in (Phase.CIRCUIT_OPEN, Phase.AWAITING_APPROVAL)


def _lines(store: Store, task: Task, now: str) -> list[str]:
    # alone: its dependencies have files or entries of their own
    snapshot = explain_queries.load_lasting(store.db, task.id, now)
    causes = explain(snapshot, task.id).causes
    if causes[0].kind not in _STAYS or (causes[0].kind == "budget" and not task.held):
        return []
    lines = [line for cause in causes[:_MOST] for line in _cause_lines(cause, now)]
    if task.stronger.why:
        lines.append(f"  - escalated: {task.stronger.why}")
    if task.result:
        lines.append(f"  - last good result: {task.result_summary}")
    return lines


def _cause_lines(cause: Cause, now: str) -> list[str]:
    indent = "  " * cause.depth
    when = f" ({moment(cause.at, now)}: {cause.then})" if cause.at and cause.then else ""
    hint = f"`{cause.hint}`" if cause.hint.startswith("mailboxd ") else cause.hint
    return [f"{indent}- {cause.task}: {cause.text}{when}", *([f"{indent}  {hint}"] if hint else [])]


# What task.md shows


def to_record(engine: Engine, task: Task) -> TaskFile:
    """Return what the task.md of a task shows."""
    children = engine.store.tasks.children(task.id) if task.mode is Mode.COORDINATING else []
    needs = engine.store.tasks.needs_by_key(task.id) if children else {}
    waiting = waiting_section(engine.store, task, children, engine.clock.now())
    return TaskFile(
        task_id=task.task_id,
        title=task.title,
        mode=task.mode,
        status=_status(task),
        sender=task.sender,
        created_at=task.created_at,
        updated_at=task.updated_at,
        instructions=task.spec.instructions,
        notes=task.notes,
        results=task.result or task.error if task.mode is Mode.DIRECT else "",
        dag=tuple(_node(engine, child, tuple(needs.get(child.key, ()))) for child in children),
        subtask_results=tuple((c.key, c.result or c.error) for c in children if c.phase.is_terminal),
        synthesised=task.result if task.mode is Mode.COORDINATING else "",
        answers=task.flow.answers if task.parent is None else (),
        depends_on=tuple(one.name for one in engine.store.tasks.followed(task.id)) if task.parent is None else (),
        extra_headers=task.extra,
        extra_sections=shown_sections(task.spec, task.title) + waiting + task.sections,
    )


def _node(engine: Engine, child: Task, needs: tuple[str, ...]) -> DagNode:
    copies = tuple(copy.executor for copy in engine.store.tasks.children(child.id)) if child.broadcast else ()
    return DagNode(
        _planned(child, engine.settings.agent, needs, copies),
        status=child_status(child.phase, attempted=child.attempt > 0),
        dispatched_at=child.dispatched_at or "",
        completed_at=child.completed_at or "",
        result_summary=child.result_summary or child.error,
    )


def _status(task: Task) -> str:
    """clawflow's word for the status of a task."""
    return task_status(task.phase, task.mode, attempted=task.attempt > 0, has_result=bool(task.result))


def _planned(task: Task, own: str, needs: tuple[str, ...], copies: tuple[str, ...] = ()) -> PlannedChild:
    """A child as its plan would list it now. `own`: the agent that `self` means here."""
    if task.body is not None:
        return replace(task.body, depends_on=needs, flow=task.flow, children=())
    spec, given_to = stated(task.spec), task.stronger.instead_of or task.executor
    description, goal = (spec.goal, "") if first_line(spec.goal) == task.title else (task.title, spec.goal)
    agents = copies or (SELF if given_to == own else given_to,)
    return PlannedChild(
        key=task.key,
        agents=agents,
        description=description,
        depends_on=needs,
        instructions=spec.instructions if spec.instructions != description else "",
        expected_output=spec.expected_output,
        goal=goal,
        context=spec.context,
        scope_in=spec.scope_in,
        scope_out=spec.scope_out,
        inputs=spec.inputs,
        outputs=spec.outputs,
        acceptance_criteria=spec.acceptance_criteria,
        risks=spec.risks,
        checks=spec.checks,
        planned_actions=spec.planned_actions,
        overrides=task.said,
        flow=task.flow,
        claims=task.claims,
        extra=task.extra,
    )


# Edits of an older version: what the author has not seen must not be reverted
#
# New instructions, an answer or `mailboxd edit` may have changed the spec since the author of an edit read the file.


def edit_base(engine: Engine, task: Task, current: TaskFile, written: TaskFile) -> TaskFile:
    """Return `current` with the spec as the author of `written` saw it, according to its `updated_at`.

    Without `updated_at` the author is assumed to have read the first version.
    """
    if written.updated_at == current.updated_at:
        return current
    spec = engine.store.task_as_of(task, written.updated_at).spec
    read = to_record(engine, replace(task, spec=spec))
    return replace(current, instructions=read.instructions, extra_sections=read.extra_sections)


def rebase_edit(task: Task, edit: TaskEdit, read: TaskFile) -> TaskEdit:
    """Convert an edit of `read` into one of the current spec of the task."""
    now = TaskFile(instructions=task.spec.instructions, extra_sections=shown_sections(task.spec, task.title))
    instructions = edit.instructions
    if instructions is not None:
        instructions = _with_later_instructions(read.instructions, now.instructions, instructions)
    sections = edit.extra_sections
    if sections is not None:
        sections = _with_later_sections(read.extra_sections, now.extra_sections, sections)
    return replace(
        edit, instructions=instructions if instructions != now.instructions else None, extra_sections=sections
    )


def _with_later_instructions(read: str, now: str, edited: str) -> str:
    """Keep instructions that were appended meanwhile; if they were rewritten, the edit counts."""
    appended = now.removeprefix(read).strip() if now.startswith(read) else ""
    return edited if appended in edited else f"{edited}\n\n{appended}"


def _with_later_sections(read: Sections, now: Sections, edited: Sections) -> Sections:
    """The edited sections, with sections of the spec that the author left unchanged as they are now."""
    texts = {heading.casefold(): text for heading, text in now}
    return tuple(
        (
            heading,
            texts.get(heading.casefold(), text) if (heading, text) in read and is_spec_section(heading, text) else text,
        )
        for heading, text in edited
    )


_ENTRY = re.compile(r"[\s-]*(?:id:\s*)?[\"']?([\w.-]+)[\"']?\s*(?::|$)")
"""A line of a plan that begins with a subtask's key."""


def _line_of(said: str | MailboxdError, raw: bytes) -> int | None:
    """The line that is refused: the error's own, that of the first subtask that it names, or that of the plan."""
    if not isinstance(said, PlanError | Refused):
        return getattr(said, "line", None)
    lines = raw.decode("utf-8", "replace").splitlines()
    plan = next((number for number, line in enumerate(lines, 1) if line.strip() == "## DAG"), None)
    if plan is None:
        return None
    words = set(re.findall(r"[\w.-]+", said.problem))
    keys = ((number, _ENTRY.match(line)) for number, line in enumerate(lines[plan:], plan + 1))
    return next((number for number, key in keys if key is not None and key[1] in words), plan)


# Rendering and reading

_log = logging.getLogger("mailboxd")
_AT_ONCE = 1000
_MOST_SHOWN = 1000
"""Files of which is kept what they show. Of others that is what the store has, as it is of all after a restart."""
_STEER = "Give it instructions (`mailboxd edit`), or cancel it and send it again."


@dataclass(slots=True)
class TaskMarkdown:
    """The task.md files of one workspace."""

    engine: Engine
    intake: Intake
    files: TaskFiles
    templates: Templates
    reports: Reports
    _shown: dict[str, TaskFile] = field(default_factory=dict)
    _refused_plans: dict[str, str] = field(default_factory=dict)
    more: bool = False  # the last `perform` left files that are out of date
    _behind: str = ""

    # Store to file

    def perform(self, seconds: float = 5.0) -> int:
        """Write files that are out of date; begin no other after this number of seconds. Return how many were written.

        The next call continues where this one stopped, so a file that is always out of date does not delay others.
        Raises WorldError after all were tried.
        """
        end = self.engine.clock.monotonic() + seconds
        stale = self.engine.store.stale_files.batch(self._behind, _AT_ONCE) or self.engine.store.stale_files.batch(
            "", _AT_ONCE
        )
        self.more = len(stale) == _AT_ONCE
        started: list[tuple[Task, TaskFile, int]] = []
        answers = self.files.write_all(self._texts(stale, end, started), many=len(stale) > MANY)
        written, trouble = 0, None
        for (task, shown, marks), answer in zip(started, answers, strict=True):
            if isinstance(answer, ObstructedError):
                _log.error("%s", answer)  # retried when the task changes
            elif isinstance(answer, WorldError):
                trouble = trouble or answer
                continue
            elif not answer:
                continue  # it was edited meanwhile: read that first
            elif task.phase.is_terminal:
                self._shown.pop(task.id, None)
            else:
                self._has_shown(task.id, shown)
            self.reports.append(TaskFileWritten(task.id, marks))
            written += 1
        if trouble is not None:
            raise trouble
        return written

    def _has_shown(self, task_id: str, shown: TaskFile) -> None:
        """Keep what the file of a task shows: an edit is of that."""
        self._shown.pop(task_id, None)
        self._shown[task_id] = shown
        if len(self._shown) > _MOST_SHOWN:
            del self._shown[next(iter(self._shown))]

    def _texts(
        self, stale: Sequence[tuple[str, int]], end: float, started: list[tuple[Task, TaskFile, int]]
    ) -> Iterator[tuple[str, bytes]]:
        for task_id, marks in stale:
            if started and self.engine.clock.monotonic() >= end:
                self.more = True
                return
            self._behind = task_id
            task = self.engine.store.tasks.get(task_id)
            if task is None:
                self.reports.append(TaskFileWritten(task_id, marks))
            else:
                started.append((task, shown := to_record(self.engine, task), marks))
                yield task.local_id, sealed(render_task_file(shown, self.templates))
        if not self.more:
            self._behind = ""  # or newer ones, sorted behind it, could delay an older one forever

    # File to store

    def scan(self, now: float, among: Sequence[str] | None = None) -> TaskFileChanges:
        """Take every task.md that was edited since the last scan; inside a batch. Raises WorldError."""
        found = self.files.scan(now, among)
        for index, changed in enumerate(found.changed):
            try:
                if not is_sealed(changed.raw):
                    self.take(changed)
            except WorldError:
                for unread in found.changed[index:]:
                    self.files.forget(unread.local_id)  # reported again by the next scan
                raise
        for unusable in found.unusable:
            task = self.engine.store.tasks.by_local_id(unusable.local_id)
            self._refuse(unusable.local_id, None, task, unusable.error)
        for local_id in found.missing:
            task = self.engine.store.tasks.by_local_id(local_id)
            self.files.forget(local_id)
            if task is not None:
                self.engine.store.stale_files.mark([task.id])
            elif self.engine.store.refused_files.get(local_id) is not None:
                self.engine.record(settled(self.engine, local_id, "removed"))
        return found

    def restore(self) -> None:
        """Notice what was deleted while no daemon ran: files to be rendered again, and refused ones; in a batch."""
        for local_id in sorted(self.files.missing(self.engine.store.refused_files.of_no_task())):
            self.engine.record(settled(self.engine, local_id, "removed"))
        tasks = {local_id: task for task, local_id in self.engine.store.tasks.open_with_file()}
        self.engine.store.stale_files.mark([tasks[local_id] for local_id in self.files.missing(tasks)])

    def scan_task(self, task: Task) -> str:
        """Take an edit of one task's file before its agent's turn is judged.

        Return why a plan in it could not be taken, now or earlier in the turn; empty if it could.
        """
        try:
            self.scan(to_epoch(self.engine.now), [task.local_id])
        except StoreError:
            raise
        except WorldError as error:
            _log.error("the edited task.md of %s cannot be read: %s", task.local_id, error)
        return self._refused_plans.pop(task.id, "")

    def take(self, changed: ChangedFile) -> None:
        """Take one edited task.md; inside a batch."""
        task = self.engine.store.tasks.by_local_id(changed.local_id)
        refused = self.engine.store.refused_files.get(changed.local_id)
        self.engine.file_owner = changed.owner
        try:
            path = f"tasks/{changed.local_id}/task.md"
            place = self.intake.place()
            written = parse_task_file(unsealed(changed.raw), path, is_new=task is None, place=place)
            if task is not None and written.outline:
                return  # its agent is about to fill it in
            if task is not None and task.id not in self._shown and task.origin.file == sha256(changed.raw).hexdigest():
                self.engine.store.stale_files.mark([task.id])
                return  # what it was created from, before it was rendered for the first time
            with self.engine.store.savepoint():
                if task is None:
                    self.create_task(changed.local_id, written, sha256(changed.raw).hexdigest())
                else:
                    self._edit(task, written, changed.raw)
                if refused is not None and self.engine.store.refused_files.get(changed.local_id) == refused:
                    self.engine.record(settled(self.engine, changed.local_id, "a better one was taken"))
        except (MessageError, PlanError, Refused) as error:
            is_plan = task is not None and task.mode is Mode.DIRECT and b"\n## DAG" in changed.raw
            if task is not None and is_plan:
                self._refused_plans[task.id] = str(error)
            asked = is_plan and task is not None and task.phase is Phase.EXECUTING  # its agent is told, and tries again
            self._refuse(changed.local_id, changed.raw, task, error, for_person=not asked)
        except (WorldError, MemoryError):
            raise
        except Exception as bug:
            # must not stop other work, nor be repeated after every restart
            _log.exception(
                "a bug in mailboxd: tasks/%s/task.md could not be taken; please report this", changed.local_id
            )
            why = f"a bug in mailboxd ({type(bug).__name__}); its log has the details"
            self._refuse(changed.local_id, changed.raw, task, why)
        finally:
            self.engine.file_owner = None
        if task is not None:
            self.engine.store.stale_files.mark([task.id])  # even if nothing was edited: the store's text must show

    def create_task(self, local_id: str, written: TaskFile, digest: str) -> None:
        """Create a task from a task.md without one, with the status and the times in the file; inside a batch.

        `digest` is the file's SHA-256.
        """
        sender = written.sender or "operator"
        if not is_id(sender):
            raise MessageError("bad-id", f"{sender[:80]!r} cannot be a sender", field="from")
        if written.outline:
            hint = f"Plan these subtasks: {', '.join(written.outline)}."
            written = replace(written, instructions=f"{written.instructions}\n\n{hint}".strip())
        policy = apply(self.engine.settings.policy, written.overrides)
        plan = written.plan if written.dag else None
        if written.agent and not same_agent(written.agent, self.engine.settings.agent):
            if plan is not None:
                hint = "Write the agents into the plan, and remove the header."
                raise MessageError("unknown-field", f"it has a plan, and is given to {written.agent}", hint)
            plan = given_to(written.agent, written.title or local_id, written.spec())
        known = {heading.lower() for heading, _ in (*shown_sections(written.spec(), written.title), (HEADING, ""))}
        task_id = written.task_id or local_id
        subtask_id, message_id = self.engine.store.messages.imported_work(sender, task_id) or (None, None)
        is_new = written.status in ("", "pending") and not message_id
        work = sha256(f"{written.title}\0{written.instructions}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        came = provenance.of(self.engine, Claims(sender, work)) if is_new else provenance.BY_PERSON
        new = NewTask(
            task_id if message_id or subtask_id else local_id,
            subtask_id,
            local_id,
            sender,
            written.title or local_id,
            written.spec(),
            policy,
            plan=plan,
            needs=self.intake.needs(written.depends_on, local_id, written.title),
            answers=written.answers,
            origin=Origin(message_id=message_id, file=digest, handover=came.handover),
            created_at=_past(written.created_at, self.engine.now),
            extra=written.extra_headers,
            sections=tuple(item for item in written.extra_sections if item[0].lower() not in known),
            doubts=written.head_doubts,
            held=self.intake.held(came),
        )
        adopt_status(self.engine, self.intake.create(new, actor=sender), written)

    def _edit(self, task: Task, written: TaskFile, raw: bytes) -> None:
        shown = self._shown.get(task.id) or to_record(self.engine, task)
        current = edit_base(self.engine, task, shown, written)
        edit = compare(current, written)
        if edit.problems:
            raise Refused("illegal-edit", "; ".join(edit.problems)[:1500], "Edit only what has not started.")
        fixed = [] if task.phase in BEFORE_EXECUTION else of_spec(edit.extra_sections, current.extra_sections)
        if fixed and task.phase is not Phase.EXECUTING:
            raise Refused("spec-fixed", f"{task.local_id} has started: {', '.join(fixed)} can no longer change", _STEER)
        with self.engine.store.savepoint():  # an edit with any illegal part changes nothing
            self.apply(task, rebase_edit(task, edit, current))
        if fixed and any(heading in dict(current.extra_sections) for heading in fixed):
            # its agent may have rewritten the whole file: take its results, and keep what it wrote about the spec
            why = f"{', '.join(fixed)} cannot change once it has started; the rest is taken (spec-fixed)."
            why = f"{why} {_STEER}"
            self._refuse(task.local_id, raw, task, why)
        if self._waits_otherwise(shown, written, raw):
            why = f"{HEADING} says what the task waits for: it is written by mailboxd; the rest is taken (illegal-edit)"
            self._refuse(task.local_id, raw, task, f"{why}. `mailboxd why {task.local_id}` has it")
        # until it is rendered again the file shows the edit, to which a second edit is compared
        shown = to_record(self.engine, self.engine.store.tasks.get(task.id) or task)
        keys = {node.key for node in written.dag} or {node.key for node in shown.dag}
        text, dag = written.instructions or shown.instructions, tuple(node for node in shown.dag if node.key in keys)
        self._has_shown(task.id, replace(shown, updated_at=written.updated_at, instructions=text, dag=dag))

    def _waits_otherwise(self, shown: TaskFile, written: TaskFile, raw: bytes) -> bool:
        """Whether the section about waiting was edited: only an edit of the latest file can tell."""
        text = dict(written.extra_sections).get(HEADING)
        if text is None or text == dict(shown.extra_sections).get(HEADING):
            return False
        return seal_of(raw) == seal_of(sealed(render_task_file(shown, self.templates)))

    def apply(self, task: Task, edit: TaskEdit) -> None:
        """Turn a legal edit into inputs: first additions, then changes, then removals.

        So a changed child may depend on an added one, and one that no longer depends on a removed one is not cancelled.
        """
        children = {child.key: child for child in self.engine.store.tasks.children(task.id)}
        waiting = tuple(item for item in edit.extra_sections or () if item[0] == HEADING)
        shown = shown_sections(task.spec, task.title) + waiting
        spec_sections, sections = divide(edit.extra_sections, shown, writable=task.phase in BEFORE_EXECUTION)
        edited = Edited(edit.added, edit.notes, edit.results, edit.instructions, sections, edit.doubts)
        if edited != Edited():
            self.engine.handle(task.id, edited, actor="task.md")
        if spec_sections:
            self._rewrite_spec(task, spec_sections)
        for planned in edit.changed:
            self._change(task, planned, children[planned.key])
        for key in edit.cancelled:
            self.engine.handle(
                children[key].id, Cancel("operator", "as the parent's task.md says"), Role.OPERATOR, "task.md"
            )

    def _rewrite_spec(self, task: Task, sections: Sections) -> None:
        now = self.engine.store.tasks.get(task.id) or task  # its instructions may just have been edited
        text = join_body("", "", [Section(heading, text) for heading, text in sections])
        spec = rewritten(now.spec, text)
        if spec is not None:
            self.engine.handle(task.id, SpecWritten(spec), actor="task.md")

    def _change(self, task: Task, planned: PlannedChild, child: Task) -> None:
        needs = self.engine.needs_of_edited(task, planned)
        before = {needed.id for needed in self.engine.store.tasks.dependencies(child.id)}
        self.engine.handle(
            child.id,
            ChildEdited(planned, None if before == {*needs} and planned.flow == child.flow else needs),
            actor="task.md",
        )

    def _refuse(
        self,
        local_id: str,
        raw: bytes | None,
        task: Task | None,
        said: str | MailboxdError,
        *,
        for_person: bool = True,
    ) -> None:
        """Keep a refused text beside the file, which is rendered again if there is a task; else it stays as it is."""
        digest, why = None if raw is None else sha256(raw).hexdigest(), str(said)
        known = self.engine.store.refused_files.get(local_id) if task is None else None
        if known is not None and known.task is None and digest is not None and known.sha256 == digest:
            return  # read again after a restart
        try:
            kept = self.files.keep_rejected(local_id, raw, self.engine.now)
        except ObstructedError as error:
            kept, why = "", f"{why}; it could not be kept: {error}"
        data: dict[str, Any] = {
            "at": self.engine.now,
            "file": f"tasks/{local_id}/task.md",
            "kept_as": kept,
            "why": why[:2000],
        }
        if for_person:
            data |= {"local_id": local_id, "line": _line_of(said, raw or b""), "sha256": digest}
        if self.engine.file_owner is not None:
            data["owner"] = asdict(self.engine.file_owner)
        self.engine.record(Event(Kind.EDIT_REFUSED, task.id if task else None, data))
