"""task.md, both ways: the store shown as files, and edits of those files taken as inputs (protocol section 3).

SQLite is authoritative. An edit is compared with what the file would show now; a legal one becomes inputs, an
illegal one is undone, kept beside the file and recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mailboxd.core.events import Event, Kind, Role
from mailboxd.core.inputs import Cancel, ChildEdited, Edited, NewTask, SpecWritten
from mailboxd.core.mending import WRITABLE
from mailboxd.core.specs import apply
from mailboxd.core.terms import Mode, Phase, is_id
from mailboxd.core.times import to_epoch
from mailboxd.core.types import Origin, PlannedChild, Task
from mailboxd.engine import Engine
from mailboxd.errors import MessageError, PlanError, Refused, StoreError, WorldError
from mailboxd.inbox.intake import Intake
from mailboxd.messages.seal import is_sealed, sealed, unsealed
from mailboxd.messages.sections import Section, join_body
from mailboxd.messages.spec import Sections, rewritten, shown_sections
from mailboxd.messages.taskedit import TaskEdit, compare, divide, of_spec
from mailboxd.messages.taskfile import TaskFile, parse_task_file, render_task_file
from mailboxd.messages.templates import Templates
from mailboxd.taskfiles.basis import as_read, caught_up
from mailboxd.taskfiles.blocked import HEADING
from mailboxd.taskfiles.showing import picture
from mailboxd.taskfiles.takeover import take_over
from mailboxd.workspace.files import ObstructedError
from mailboxd.workspace.syncing import MANY
from mailboxd.workspace.taskfiles import Changed, Look, TaskFiles

_log = logging.getLogger("mailboxd")
_AT_ONCE = 1000
_STEER = "Steer it, or cancel it and send it again."


@dataclass(slots=True)
class TaskMarkdown:
    """The task.md files of one workspace."""

    engine: Engine
    intake: Intake
    files: TaskFiles
    templates: Templates
    reports: list[Callable[[], None]]
    _shown: dict[str, TaskFile] = field(default_factory=dict)
    _refused_plans: dict[str, str] = field(default_factory=dict)
    more: bool = False  # the last writing has left files that are out of date
    _behind: str = ""

    # -------------------------------------------------------------- store -> file

    def perform(self, seconds: float = 5.0) -> int:
        """Write the files that show less than the tables know; after so many seconds none is begun. Returns how many.

        The next time goes on where time or room has ended: what is always out of date holds up no other. Raises
        WorldError, when all were tried.
        """
        end = self.engine.clock.monotonic() + seconds
        stale = self.engine.store.stale_files(self._behind, _AT_ONCE) or self.engine.store.stale_files("", _AT_ONCE)
        self.more = len(stale) == _AT_ONCE
        begun: list[tuple[Task, TaskFile, int]] = []
        answers = self.files.write_all(self._texts(stale, end, begun), many=len(stale) > MANY)
        written, trouble = 0, None
        for (task, shown, marks), answer in zip(begun, answers, strict=True):
            if isinstance(answer, ObstructedError):
                _log.error("%s", answer)  # tried again when the task changes
            elif isinstance(answer, WorldError):
                trouble = trouble or answer
                continue
            elif not answer:
                continue  # somebody edited it meanwhile: that is read first
            elif task.phase.is_terminal:
                self._shown.pop(task.id, None)
            else:
                self._shown[task.id] = shown  # an edit is of what was shown before
            self.reports.append(partial(self.engine.store.file_is_fresh, task.id, marks))
            written += 1
        if trouble is not None:
            raise trouble
        return written

    def _texts(
        self, stale: Sequence[tuple[str, int]], end: float, begun: list[tuple[Task, TaskFile, int]]
    ) -> Iterator[tuple[str, bytes]]:
        for task_id, marks in stale:
            if begun and self.engine.clock.monotonic() >= end:
                self.more = True
                return
            self._behind = task_id
            task = self.engine.store.task(task_id)
            if task is None:
                self.reports.append(partial(self.engine.store.file_is_fresh, task_id, marks))
            else:
                begun.append((task, shown := picture(self.engine, task), marks))
                yield task.local_id, sealed(render_task_file(shown, self.templates))
        if not self.more:
            self._behind = ""  # else newer ones, which come behind it, could put off an older one for ever

    # -------------------------------------------------------------- file -> store

    def look(self, now: float, among: Sequence[str] | None = None) -> Look:
        """Let every task.md that somebody wrote since the last look happen; inside a batch. Raises WorldError."""
        found = self.files.look(now, among)
        for index, changed in enumerate(found.changed):
            try:
                if not is_sealed(changed.raw):
                    self.take(changed)
            except WorldError:
                for unread in found.changed[index:]:
                    self.files.forget(unread.local_id)  # reported again by the next look
                raise
        for unusable in found.unusable:
            task = self.engine.store.by_local_id(unusable.local_id)
            self._refuse(unusable.local_id, None, task, str(unusable.error))
        for local_id in found.missing:
            task = self.engine.store.by_local_id(local_id)
            self.files.forget(local_id)
            if task is not None:
                self.engine.store.mark_for_rendering([task.id])
        return found

    def restore(self) -> None:
        """Have the files rendered again that were deleted while no daemon ran; inside a batch."""
        tasks = {local_id: task for task, local_id in self.engine.store.open_shown()}
        self.engine.store.mark_for_rendering([tasks[local_id] for local_id in self.files.missing(tasks)])

    def look_at(self, task: Task) -> str:
        """Take what was written into one task's file: its agent's turn is about to be judged.

        Returns why a plan that was written there could not be taken, now or earlier in the turn; else nothing.
        """
        try:
            self.look(to_epoch(self.engine.now), [task.local_id])
        except StoreError:
            raise
        except WorldError as error:
            _log.error("what %s wrote into its task.md cannot be read: %s", task.local_id, error)
        return self._refused_plans.pop(task.id, "")

    def take(self, changed: Changed) -> None:
        """Let one task.md happen; inside a batch."""
        task = self.engine.store.by_local_id(changed.local_id)
        try:
            written = parse_task_file(unsealed(changed.raw), f"tasks/{changed.local_id}/task.md")
            with self.engine.store.savepoint():
                if task is None:
                    self.create_task(changed.local_id, written)
                else:
                    self._edit(task, written, changed.raw)
        except (MessageError, PlanError, Refused) as error:
            self._refuse(changed.local_id, changed.raw, task, str(error))
            if task is not None and task.mode is Mode.DIRECT and b"\n## DAG" in changed.raw:
                self._refused_plans[task.id] = str(error)
        except (WorldError, MemoryError):
            raise
        except Exception as bug:
            # A bug of ours must not stop the other work, nor meet the same file again after every restart.
            _log.exception(
                "a bug of mailboxd: tasks/%s/task.md could not be taken; please report this", changed.local_id
            )
            why = f"a bug of mailboxd ({type(bug).__name__}); its log has the details"
            self._refuse(changed.local_id, changed.raw, task, why)
        if task is not None:
            self.engine.store.mark_for_rendering([task.id])  # also where the edit said nothing: the store's words stand

    def create_task(self, local_id: str, written: TaskFile) -> None:
        """A task.md that no task is known for becomes one, where it says that it is; inside a batch."""
        sender = written.sender or "operator"
        if not is_id(sender):
            raise MessageError("bad-id", f"{sender[:80]!r} cannot be a sender", field="from")
        policy = apply(self.engine.settings.policy, written.overrides)
        plan = written.plan if written.dag else None
        known = {heading.lower() for heading, _ in (*shown_sections(written.spec(), written.title), (HEADING, ""))}
        task_id = written.task_id or local_id
        subtask_id, message_id = self.engine.store.imported_work(sender, task_id) or (None, None)
        new = NewTask(
            task_id if message_id or subtask_id else local_id,
            subtask_id,
            local_id,
            sender,
            written.title or local_id,
            written.spec(),
            policy,
            plan=plan,
            origin=Origin(message_id=message_id),
            extra=written.extra_headers,
            sections=tuple(item for item in written.extra_sections if item[0].lower() not in known),
        )
        take_over(self.engine, self.intake.create(new, actor=sender), written)

    def _edit(self, task: Task, written: TaskFile, raw: bytes) -> None:
        current = as_read(self.engine, task, self._shown.get(task.id) or picture(self.engine, task), written)
        edit = compare(current, written)
        if edit.problems:
            raise Refused("illegal-edit", "; ".join(edit.problems)[:1500], "Edit only what has not started.")
        fixed = [] if task.phase in WRITABLE else of_spec(edit.extra_sections, current.extra_sections)
        if fixed and task.phase is not Phase.EXECUTING:
            raise Refused(
                "spec-fixed", f"{task.local_id} is {task.phase}: {', '.join(fixed)} can no longer change", _STEER
            )
        with self.engine.store.savepoint():  # an illegal edit changes nothing, also where only its last part is
            self.apply(task, caught_up(task, edit, current))
        if fixed and any(heading in dict(current.extra_sections) for heading in fixed):
            # its agent may have written the file from memory, and its results count; what it said of its spec is kept
            why = f"{', '.join(fixed)} cannot change while it is {task.phase}; the rest is taken (spec-fixed). {_STEER}"
            self._refuse(task.local_id, raw, task, why)
        # Until it is rendered again the file says what was written: whoever saves a second time changes that.
        shown = picture(self.engine, self.engine.store.task(task.id) or task)
        keys = {node.key for node in written.dag} or {node.key for node in shown.dag}
        said, dag = written.instructions or shown.instructions, tuple(node for node in shown.dag if node.key in keys)
        self._shown[task.id] = replace(shown, updated_at=written.updated_at, instructions=said, dag=dag)

    def apply(self, task: Task, edit: TaskEdit) -> None:
        """A legal edit, as inputs: first what is added, then what is changed, then what is removed.

        In this order a changed child may need an added one, and one that no longer needs a removed one is not
        cancelled with it.
        """
        children = {child.key: child for child in self.engine.store.children(task.id)}
        ours = tuple(item for item in edit.extra_sections or () if item[0] == HEADING)
        shown = shown_sections(task.spec, task.title) + ours
        said, sections = divide(edit.extra_sections, shown, writable=task.phase in WRITABLE)
        heard = Edited(edit.added, edit.notes, edit.results, edit.instructions, sections)
        if heard != Edited():
            self.engine.hear(task.id, heard, actor="task.md")
        if said:
            self._rewrite_spec(task, said)
        for planned in edit.changed:
            self._change(task, planned, children[planned.key])
        for key in edit.cancelled:
            self.engine.hear(
                children[key].id, Cancel("operator", "as the parent's task.md says"), Role.OPERATOR, "task.md"
            )

    def _rewrite_spec(self, task: Task, said: Sections) -> None:
        now = self.engine.store.task(task.id) or task  # the instructions may just have been edited
        text = join_body("", "", [Section(heading, text) for heading, text in said])
        spec = rewritten(now.spec, text)
        if spec is not None:
            self.engine.hear(task.id, SpecWritten(spec), actor="task.md")

    def _change(self, task: Task, planned: PlannedChild, child: Task) -> None:
        if child.broadcast or len(planned.agents) > 1:
            raise Refused("illegal-edit", f"{planned.key} is a broadcast", "Cancel it and add another child.")
        needs = self.engine.needs_of_edited(task, planned)
        before = {needed.id for needed in self.engine.store.dependencies(child.id)}
        self.engine.hear(child.id, ChildEdited(planned, None if before == {*needs} else needs), actor="task.md")

    def _refuse(self, local_id: str, raw: bytes | None, task: Task | None, why: str) -> None:
        """Keep what was written beside the file, and show the store's truth again."""
        try:
            kept = self.files.keep_rejected(local_id, raw, self.engine.now)
        except ObstructedError as error:
            kept, why = "", f"{why}; it could not be kept: {error}"
        data = {"at": self.engine.now, "file": f"tasks/{local_id}/task.md", "kept_as": kept, "why": why[:2000]}
        self.engine.record(Event(Kind.EDIT_REFUSED, task.id if task else None, data))
