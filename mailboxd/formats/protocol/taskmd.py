"""tasks/<local-id>/task.md, a readable projection of a task: bytes <-> `TaskFile` (protocol section 3).

`parse_task_file(render_task_file(task)) == task` for any texts: foreign text is escaped, so that a result that contains
`## DAG`, `### x` or front matter stays a result. Code writes the front matter and the YAML of the DAG; a template
arranges the body and cannot lose a section of it.

Parsing accepts missing parts (a person may write `# Task` and `## DAG` only, or plain markdown) and is strict about the
parts that are there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from mailboxd.core.model import NO_OVERRIDES, Overrides, Plan, PlannedChild, Spec
from mailboxd.core.sanitize import excerpt, storable_line, storable_text
from mailboxd.core.vocabulary import OPERATORS, Mode, is_id
from mailboxd.errors import ConfigError, MessageError
from mailboxd.formats.protocol import front_matter, no_task
from mailboxd.formats.protocol.deadlines import Calendar
from mailboxd.formats.protocol.dropped import read_sections, read_text
from mailboxd.formats.protocol.head import NOWHERE, Head, Place, read_head
from mailboxd.formats.protocol.headers import ID_RULE, OVERRIDES, Source, override_headers
from mailboxd.formats.protocol.left_aside import declares_task
from mailboxd.formats.protocol.markdown import (
    Outline,
    OutlineSection,
    Section,
    entries,
    escape_outline,
    outline,
    unescape_outline,
)
from mailboxd.formats.protocol.plan import Dag, DagNode, blank_children, parse_dag, render_dag
from mailboxd.formats.protocol.plan_values import STATE
from mailboxd.formats.protocol.prompts import Templates
from mailboxd.formats.protocol.spec import Sections, derive_spec, is_spec_section
from mailboxd.formats.protocol.strict_yaml import Path, Yaml, YamlText, flow

MAX_BYTES = 16 * 1024 * 1024
"""Enough for the largest DAG and the results of 10,000 children."""
STATUSES = {
    Mode.DIRECT: ("pending", "in-progress", "done", "failed", "blocked", "cancelled"),
    Mode.COORDINATING: ("planning", "executing", "aggregating", "done", "failed", "blocked", "cancelled"),
}
"""The statuses of a task by mode."""
_MODES = f"Expected: {' or '.join(Mode)}."
_STATUS_RULE = "; ".join(f"{mode}: {', '.join(statuses)}" for mode, statuses in STATUSES.items())
CHILD_STATUSES = ("pending", "dispatched", "done", "failed", "blocked", "cancelled")

_HEADERS = {"task_id": "task_id", "mode": "mode", "status": "status", "from": "sender"}
_TIMES = ("created_at", "updated_at")
_TITLE = re.compile(r"task\s*(?::\s*(.*))?", re.IGNORECASE)
_KNOWN_HEADERS = frozenset((*_HEADERS, *_TIMES, *OVERRIDES, "answers"))
_VALID_STATUSES = frozenset(("", *STATUSES[Mode.DIRECT], *STATUSES[Mode.COORDINATING]))
_ENDED = frozenset({"done", "failed", "cancelled"})
_VALID_MODES = frozenset(("", *Mode))
_KNOWN = {
    "instructions": "instructions",
    "original instructions": "instructions",
    "working notes": "notes",
    "results": "results",
    "dag": "dag",
    "subtask results": "subtask_results",
    "synthesised output": "synthesised",
    "synthesized output": "synthesised",
}
_OWN_PLACE = {
    Mode.DIRECT: ("Instructions", "Working Notes", "Results"),
    Mode.COORDINATING: ("Original Instructions", "DAG", "Subtask Results", "Synthesised Output"),
}


@dataclass(frozen=True)
class TaskFile:
    """A task.md. Empty text = absent. Texts are storable and have no blank lines around them.

    A task with children is coordinating, whatever `mode` says. `outline` names children of which nothing else is said:
    nobody has planned them yet. The result has to declare one of `answers`, if there are any. `extra_headers` are
    unknown headers (values as YAML text) and `extra_sections` other sections by heading, those of the specification
    first; both are preserved.
    """

    task_id: str = ""
    title: str = ""
    mode: Mode = Mode.DIRECT
    status: str = ""
    sender: str = ""
    created_at: str = ""
    updated_at: str = ""
    instructions: str = ""
    notes: str = ""
    results: str = ""
    dag: tuple[DagNode, ...] = ()
    outline: tuple[str, ...] = ()
    synthesis: str | None = None
    subtask_results: tuple[tuple[str, str], ...] = ()
    synthesised: str = ""
    overrides: Overrides = NO_OVERRIDES
    agent: str = ""
    depends_on: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    extra_headers: tuple[tuple[str, str], ...] = ()
    extra_sections: tuple[tuple[str, str], ...] = ()
    doubts: tuple[str, ...] = field(default=(), compare=False)
    """Of the plan that was read, as in `Plan`; a file that is rendered has none."""
    head_doubts: tuple[str, ...] = field(default=(), compare=False)
    """Of the headers and the text of a new task."""

    def __post_init__(self) -> None:
        normal: dict[str, Any] = {name: _normal(getattr(self, name)) for name in _TEXTS}
        normal["title"] = storable_line(self.title)
        normal["mode"] = Mode.COORDINATING if self.dag else self.mode
        normal["subtask_results"] = tuple((key, _normal(text)) for key, text in self.subtask_results)
        extra = ((storable_line(name), _normal(text)) for name, text in self.extra_sections)
        normal["extra_sections"] = tuple(sorted(extra, key=lambda section: not is_spec_section(*section)))
        for name, value in normal.items():
            object.__setattr__(self, name, value)

    @property
    def plan(self) -> Plan:
        """The plan in the DAG, without its state."""
        return Dag(self.dag, self.synthesis, self.doubts).plan

    def spec(self) -> Spec:
        """The spec that a task message with these sections has (protocol section 2)."""
        parts = tuple(Section(heading, text) for heading, text in self.extra_sections)
        return derive_spec(self.title, self.instructions, parts)


_TEXTS = ("instructions", "notes", "results", "synthesised")


def _normal(text: str) -> str:
    return storable_text(text).strip("\n")


def render_task_file(task: TaskFile, templates: Templates) -> bytes:
    """The task.md of `task`. Raises ConfigError if an override of the template is broken or loses a section."""
    name = f"task-{task.mode}.md.j2"
    title = f"Task: {task.title}" if task.title else "Task"
    parts = _parts(task)
    own = _OWN_PLACE[task.mode]
    values = {_KNOWN[heading.lower()]: parts.get(heading, "") for heading in own}
    others = [{"heading": heading, "text": text} for heading, text in parts.items() if heading not in own and text]
    extra = [{"heading": heading, "text": escape_outline(text)} for heading, text in task.extra_sections]
    specs = sum(is_spec_section(*section) for section in task.extra_sections)  # they come first
    others += extra[specs:]
    body = templates.render(name, title=title, spec=extra[:specs], others=others, **values)
    override = templates.override(name)
    if override is not None:
        wanted = [(heading, parts.get(heading, "")) for heading in own]
        wanted += [(one["heading"], one["text"]) for one in (*extra[:specs], *others)]
        _check_complete(outline(body), title, wanted, str(override))
    return front_matter.join(_front_matter(task), body.strip("\n") + "\n")


def _parts(task: TaskFile) -> dict[str, str]:
    """The known sections by heading, escaped."""
    results = "\n\n".join(f"### {key}\n\n{escape_outline(text)}" for key, text in task.subtask_results)
    coordinating = task.mode is Mode.COORDINATING
    return {
        "Original Instructions" if coordinating else "Instructions": escape_outline(task.instructions),
        "DAG": f"```yaml\n{render_dag(Dag(task.dag, task.synthesis))}```" if coordinating else "",
        "Subtask Results": results,
        "Synthesised Output": escape_outline(task.synthesised),
        "Working Notes": escape_outline(task.notes),
        "Results": escape_outline(task.results),
    }


def _front_matter(task: TaskFile) -> dict[str, object]:
    header: dict[str, object] = {name: value for name, field in _HEADERS.items() if (value := getattr(task, field))}
    header |= {name: value for name in _TIMES if (value := getattr(task, name))}
    header |= override_headers(task.overrides)
    header |= {"answers": list(task.answers)} if task.answers else {}
    header |= {"depends_on": [*task.depends_on]} if task.depends_on else {}
    return header | {name: YamlText(value) for name, value in task.extra_headers}


def _check_complete(found: Outline, title: str, wanted: list[tuple[str, str]], template: str) -> None:
    there = {(section.heading, section.text) for section in found.sections}
    lost = [heading for heading, text in wanted if (heading, text) not in there]
    if found.title != title:
        lost.insert(0, "# Task")
    if lost:
        raise ConfigError(
            f"{template}: this template loses or changes {', '.join(lost[:5])} of a task.md. "
            "Correct it, or delete it to use the packaged one."
        )


def parse_task_file(raw: bytes, path: str, *, is_new: bool = False, place: Place = NOWHERE) -> TaskFile:
    """Parse the task.md `raw` (at most MAX_BYTES) of the file `path`; `is_new`: of a task that does not exist yet,
    which is judged like a file in the inbox: its words are those of people and of other tools, as they mean it at
    `place`.

    Raises MessageError with line and field: the rules of `front_matter.split` and `parse_plan`, `duplicate-section`,
    `duplicate-subtask`, `wrong-type` for an unknown mode or status, `unterminated` for an unclosed code fence, and for
    a new task that has not ended those of `head.read_head` and `dropped.read_sections`; for one that a person wrote
    also those of `no_task.refusal`.
    """
    by_person = is_new and not declares_task(raw)
    if by_person and (refused := no_task.refusal(path, raw)) is not None:
        raise refused
    split = front_matter.split(raw, path, max_bytes=MAX_BYTES)
    source, head, title = Source(path, 1, split.lines), Head(split.header), ""
    is_judged = is_new and split.header.get("status") not in _ENDED
    if is_judged:
        head = _in_our_words(source, split.header, place, split.lines)
        title = source.text(head.header.pop("title", ""), ("title",))
    text = "\n\n".join(filter(None, [split.body.rstrip("\n"), head.text])) if head.text else split.body
    parts = outline(storable_text(text), split.body_line)
    if parts.unclosed is not None:
        hint = "Close it, or put a backslash before it."
        raise MessageError("unterminated", "this code fence is not closed", hint, path, parts.unclosed)
    if is_judged:
        said = read_sections(_others(parts), head.header, place, path)
        head.header |= said.header
        head.doubts += said.doubts
    values = _read_headers(source, head.header)
    values |= _read_sections(parts, path, place.calendar)
    values |= _read_top(parts, values.get("instructions", ""))
    if title and parts.title in (None, ""):
        values["title"] = title
    if by_person and is_judged:
        sections, doubts = read_text(text, _others(parts), values["title"], PurePath(path).parent.name, place)
        values["extra_sections"] = tuple((section.heading, section.text) for section in sections)
        head.doubts += doubts
    return TaskFile(**values | {"head_doubts": tuple(head.doubts)})


def _others(parts: Outline) -> tuple[Section, ...]:
    """The sections that are not those of a task.md itself."""
    others = (one for one in parts.sections if one.heading.rstrip(" :").lower() not in _KNOWN)
    return tuple(Section(one.heading, unescape_outline(one.text), one.line) for one in others)


def _read_headers(source: Source, header: Mapping[str, Yaml]) -> dict[str, Any]:
    values: dict[str, Any] = {field: source.text(header.get(name, ""), (name,)) for name, field in _HEADERS.items()}
    for name in ("task_id", "from"):
        if header.get(name, "") != "":
            source.header(name, header[name], (name,))
    for name in header:
        if name.strip().casefold() == "approved":
            hint = "Only a person approves, with `mailboxd approve`."
            source.fail("unknown-field", "a task cannot approve itself", (name,), hint)
    if values["status"] not in _VALID_STATUSES:
        source.fail("wrong-type", f"{excerpt(values['status'])} is not a status", ("status",), _STATUS_RULE)
    if values["mode"] not in _VALID_MODES:
        source.fail(
            "wrong-type", f"{excerpt(values['mode'])} is not a mode", ("mode",), "Expected: direct or coordinating."
        )
    values["mode"] = Mode(values["mode"] or Mode.DIRECT)
    values |= {name: source.header("sent_at", header[name], (name,)) for name in _TIMES if header.get(name, "") != ""}
    values["overrides"] = source.overrides(header, ())
    known = {*_KNOWN_HEADERS, "agent", "depends_on"}
    if agent := header.get("agent", ""):
        values["agent"] = source.header("agent", agent, ("agent",))
    if answers := header.get("answers", ""):
        values["answers"] = source.header("answers", answers, ("answers",))
    if needs := header.get("depends_on", ""):
        values["depends_on"] = source.header("depends_on", needs, ("depends_on",))
    values["extra_headers"] = tuple((name, flow(value)) for name, value in header.items() if name not in known)
    return values


def _in_our_words(source: Source, header: Mapping[str, Yaml], place: Place, lines: Mapping[Path, int]) -> Head:
    """The head of a new task. A budget or gate that is ignored for its spelling would only be missed afterwards."""
    known = {*_KNOWN_HEADERS, "title", "agent", "depends_on"}
    is_of_person = header.get("from", "operator") in OPERATORS
    states = _VALID_STATUSES - {"", *(("blocked", "in-progress") if "task_id" not in header else ())}
    try:
        return read_head(header, known, place, by_person=is_of_person, statuses=states, lines=lines)
    except MessageError as error:
        source.fail(error.rule, error.problem, () if error.field is None else (error.field,), error.hint)


def _read_sections(found: Outline, path: str, calendar: Calendar | None) -> dict[str, Any]:
    values: dict[str, Any] = {}
    extra = []
    for section in found.sections:
        name = _KNOWN.get(section.heading.rstrip(" :").lower())
        if name is None:
            extra.append((section.heading, unescape_outline(section.text)))
            continue
        if name in values:
            problem = f"the section {excerpt(section.heading)} occurs twice"
            raise MessageError("duplicate-section", problem, "Keep one of them.", path, section.line - 1)
        if name == "dag":
            try:
                dag = parse_dag(section.text, path=path, first_line=section.line, is_file=True, calendar=calendar)
            except MessageError as error:
                names = blank_children(section.text, path=path, first_line=section.line)
                if error.rule != "missing-field" or not names:
                    raise
                values["outline"] = names
                continue
            values["dag"], values["synthesis"], values["doubts"] = dag.nodes, dag.synthesis, dag.doubts
            _check_statuses(dag, path, section.line)
        elif name == "subtask_results":
            values[name] = _read_results(section, path)
        else:
            values[name] = unescape_outline(section.text)
    outlined = values.get("outline", ())
    if "subtask_results" in values:
        values["subtask_results"] = tuple(one for one in values["subtask_results"] if one[1] or one[0] not in outlined)
    return values | {"extra_sections": tuple(extra)}


def _check_statuses(dag: Dag, path: str, line: int) -> None:
    for node in dag.nodes:
        if node.status and node.status not in CHILD_STATUSES:
            problem = f"{excerpt(node.status)} is not a status of a child"
            hint = f"Expected: {', '.join(CHILD_STATUSES)}."
            raise MessageError("wrong-type", problem, hint, path, line, f"subtasks.{node.key}.status")


def _read_results(section: OutlineSection, path: str) -> tuple[tuple[str, str], ...]:
    before, subsections = entries(section)
    if before.strip():
        problem = "there is text before the first `### <child>`"
        raise MessageError("wrong-type", problem, "Move it to Working Notes.", path, section.line, "Subtask Results")
    results: dict[str, str] = {}
    for entry in subsections:
        if not is_id(entry.heading):
            problem = f"{excerpt(entry.heading)} is not a valid id of a child"
            raise MessageError("bad-id", problem, ID_RULE, path, entry.line - 1, "Subtask Results")
        if entry.heading in results:
            problem = f"there are two results of {entry.heading}"
            raise MessageError(
                "duplicate-subtask", problem, "Keep one of them.", path, entry.line - 1, "Subtask Results"
            )
        results[entry.heading] = unescape_outline(entry.text)
    return tuple(results.items())


def _read_top(found: Outline, instructions: str) -> dict[str, str]:
    """Title and instructions. Text above the sections belongs to the instructions and names a task without an H1."""
    before = unescape_outline(found.preamble)
    if found.title is None:
        title = before.strip().partition("\n")[0]
    else:
        task = _TITLE.fullmatch(found.title)
        title = (task[1] or "") if task else found.title
    return {"title": title, "instructions": "\n\n".join(part for part in (before, instructions) if part.strip("\n"))}


# Edits of a task.md (protocol section 3).
#
# Allowed: adding children, editing or cancelling pending ones, Working Notes, Instructions, and what an agent reports
# about its own work (Results, Synthesised Output, its status). The store owns the rest. Missing headers and state
# are not an edit: agents write files from memory.

_PENDING = ("", "pending")
_FINAL = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class TaskEdit:
    """An edit of a task.md. None = unchanged. If there are `problems`, the whole edit is refused.

    `status` is the editor's claim about the task, not its state. `results` is the text under Results, or under
    Synthesised Output if only that was written.
    """

    added: tuple[PlannedChild, ...] = ()
    changed: tuple[PlannedChild, ...] = ()
    cancelled: tuple[str, ...] = ()
    notes: str | None = None
    results: str | None = None
    instructions: str | None = None
    status: str | None = None
    extra_sections: tuple[tuple[str, str], ...] | None = None
    doubts: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def compare(current: TaskFile, edited: TaskFile) -> TaskEdit:
    """How `edited` differs from `current`, the current projection of the store."""
    added, changed, cancelled, problems = _compare_children(current, edited)
    problems = [*_compare_headers(current, edited), *problems]
    # A missing section is not an edit: agents write the file from memory. The next rendering restores it.
    results = edited.results or current.results
    output = edited.synthesised or current.synthesised
    written = results if results != current.results else output if output != current.synthesised else None
    return TaskEdit(
        added=added,
        changed=changed,
        cancelled=cancelled,
        notes=_new(current.notes, edited.notes),
        results=written,
        instructions=_new(current.instructions, edited.instructions or current.instructions),
        status=edited.status if edited.status not in ("", current.status) else None,
        extra_sections=edited.extra_sections if edited.extra_sections != current.extra_sections else None,
        doubts=edited.doubts,
        problems=tuple(problems),
    )


def _new(before: str, after: str) -> str | None:
    return after if after != before else None


def _compare_headers(current: TaskFile, edited: TaskFile) -> list[str]:
    problems = []
    for header, name in (("task_id", "task_id"), ("from", "sender"), ("created_at", "created_at"), ("title", "title")):
        before, after = getattr(current, name), getattr(edited, name)
        if after and after != before:
            problems.append(f"{header} is {before!r} and cannot become {after[:140]!r}")
    if current.status in _FINAL and edited.status not in ("", current.status):
        problems.append(f"the task is {current.status} and cannot become {edited.status}")
    for what, before, after in (
        ("policy", current.overrides, edited.overrides),
        ("extra headers", current.extra_headers, edited.extra_headers),
        ("agent", current.agent, edited.agent),
        ("order", current.depends_on, edited.depends_on),
        ("answers", current.answers, edited.answers),
    ):
        if after and after != before:
            problems.append(f"the {what} of an existing task cannot be changed here")
    return problems


def _compare_children(
    current: TaskFile, edited: TaskFile
) -> tuple[tuple[PlannedChild, ...], tuple[PlannedChild, ...], tuple[str, ...], list[str]]:
    problems: list[str] = []
    before = {node.key: node for node in current.dag}
    after = {node.key: node for node in edited.dag}
    if before and not after:
        return (), (), (), ["the DAG is missing; to cancel a child, set its status to cancelled"]
    added = [node for key, node in after.items() if key not in before]
    problems += [f"{node.key} is new and cannot be {node.status}" for node in added if node.status not in _PENDING]
    changed, cancelled = [], []
    for key, node in before.items():
        if node.status not in _PENDING:
            problems += _rewritten(node, after.get(key))
        elif key not in after or after[key].status == "cancelled":
            cancelled.append(key)
        elif after[key].status not in _PENDING:
            problems.append(f"{key} is pending and cannot be made {after[key].status}")
        elif after[key].planned != node.planned:
            changed.append(after[key].planned)
    if edited.subtask_results and edited.subtask_results != current.subtask_results:
        problems.append("the results of children cannot be rewritten")
    if edited.dag and edited.synthesis is not None and edited.synthesis != current.synthesis and current.dag:
        problems.append("synthesis cannot be changed while the children run")
    return tuple(node.planned for node in added), tuple(changed), tuple(cancelled), problems


def _rewritten(before: DagNode, after: DagNode | None) -> list[str]:
    """The problems of `after`, where `before` is a child that was dispatched."""
    if after is None:
        return [f"{before.key} is {before.status} and cannot be removed"]
    if after.planned != before.planned:
        return [f"{before.key} is {before.status} and cannot be edited"]
    return [
        f"{before.key}: {name} is {getattr(before, name)!r} and cannot become {value[:140]!r}"
        for name in STATE
        if (value := getattr(after, name)) and value != getattr(before, name)
    ]


def of_spec(edited: Sections | None, shown: Sections) -> list[str]:
    """The headings of the spec whose text an edit changes; `shown` is the spec before the edit."""
    before = {heading.casefold(): text for heading, text in shown}
    return [name for name, text in edited or () if is_spec_section(name, text) and before.get(name.casefold()) != text]


def divide(edited: Sections | None, shown: Sections, *, writable: bool) -> tuple[Sections, Sections | None]:
    """Divide edited extra sections into changed sections of the spec and other sections (None: not edited).

    `shown` is the spec before the edit. Unless it is `writable`, changes to it are ignored.
    """
    if edited is None:
        return (), None
    headings = {heading for heading, _ in shown}
    own = tuple(item for item in edited if item[0] in headings or (writable and is_spec_section(*item)))
    changed = tuple(item for item in own if item not in shown) if writable else ()
    return changed, tuple(item for item in edited if item not in own)


# The seal: a digest in the front matter of a rendered file, by which an unedited file is recognized.

_SEAL = re.compile(rb"\nrendered: ([0-9a-f]{16})(?=\n)")


def sealed(raw: bytes) -> bytes:
    """A rendered file with a line `rendered: <digest>` at the end of its front matter."""
    head, fence, body = raw.partition(b"\n---\n")
    return head + b"\nrendered: " + _digest(raw) + fence + body


def seal_of(raw: bytes) -> bytes | None:
    """The digest that an edited file has of the file that was edited."""
    seal = _SEAL.search(raw)
    return None if seal is None else seal[1]


def is_sealed(raw: bytes) -> bool:
    """Whether the file is unchanged since it was rendered."""
    return seal_of(raw) == _digest(unsealed(raw))


def unsealed(raw: bytes) -> bytes:
    return _SEAL.sub(b"", raw, count=1)


def _digest(raw: bytes) -> bytes:
    return hashlib.sha256(raw).hexdigest()[:16].encode()
