"""The section `## DAG` of a plan or a task.md: YAML or JSON <-> `core.model.Plan` (protocol section 3).

    subtasks:
      research:
        agent: scout                  # [a, b, c] is a broadcast; self is this agent
        description: Find the sources
        depends_on: []                # or "a, b"
        when: {check: approve}        # optional, like needs, rounds, until and answers: see `core.model.Flow`
        instructions: ...             # optional, like the other parts of a spec, the optional headers of protocol
                                      # section 2, and `subtasks:`, a nested plan
        x-ticket: OPS-12              # keys that begin with `x-` are preserved
    synthesis: agent

So plans are written. What can mean only one thing is read too, and written as above from then on: a list instead of a
mapping, other words for the keys (`protocol.words`), titles as names, `@scout`, `blocks`, words with a unit. A key that
is not known is refused, in a file only if it may restrain the work. Order, agents and limits are never guessed, and all
errors of a plan are given at once.

Only the form is checked here; `core.plans` checks the graph (cycles, unknown names, limits), and so does this module
where it is told which subtasks there are. `status`, `dispatched_at`, `completed_at` and `result_summary` are state:
read from a task.md, and in a plan only a status of work that is still to be done.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anyascii import anyascii

from mailboxd.core.model import NO_FLOW, NO_OVERRIDES, Condition, Flow, Overrides, Plan, PlannedChild
from mailboxd.core.plans import check_order
from mailboxd.core.sanitize import excerpt, storable_line
from mailboxd.core.task_view import Level
from mailboxd.core.vocabulary import SELF, is_id
from mailboxd.errors import MessageError, MessageErrors, PlanError
from mailboxd.formats.protocol import strict_yaml, words
from mailboxd.formats.protocol.deadlines import Calendar
from mailboxd.formats.protocol.headers import (
    ID_RULE,
    OVERRIDES,
    Source,
    override_headers,
)
from mailboxd.formats.protocol.markdown import Section, block_end, fenced, split_body
from mailboxd.formats.protocol.plan_values import FLOW_VALUES, QUOTES, STATE, TEXTS, Entry, Values, name_of
from mailboxd.formats.protocol.spec import action_lines, render_checks
from mailboxd.formats.protocol.strict_yaml import Path, Value, Yaml, block, flow, scalar, value_text

MAX_BYTES = 4 * 1024 * 1024
MAX_EVENTS = 600_000
"""Twice what 10,000 children with eight fields and five dependencies each need."""
MAX_DEPTH = 64
"""YAML levels; a nested plan takes two."""
MAX_ERRORS = 20
"""Errors that are given at once."""

_SAYS = ("description", "goal", "instructions")
"""What says what a child is to do, in place of its title."""
_TOP = ("subtasks", "synthesis")
_AROUND = ("plan", "dag")
_TOLD = frozenset({"goal", "title", "type", "task_id", "from"})
"""Keys beside the subtasks that say nothing new: of the task whose plan it is, and of the form."""
_START = re.compile(r"[\"']?(?:sub_?-?tasks|tasks|synthesis|plan|dag|type|goal|title)[\"']? *:|\{|\[|- ", re.IGNORECASE)
SUBTASKS = re.compile(r"(?:^|\{)[ \t]*[\"']?sub[_-]?tasks[\"']?[ \t]*:", re.MULTILINE | re.IGNORECASE)
_DAG = re.compile(r"^ {0,3}##[ \t]+(?:DAG|Plan|Subtasks)\b", re.MULTILINE | re.IGNORECASE)
_GAPS = re.compile(r"[^\w]+|_+")
_NOT_IN_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 48
_SHOWN = 10


def claimed_plans(text: str) -> list[Section]:
    """The sections `## DAG` of a text that have subtasks."""
    if not _DAG.search(text):
        return []
    try:
        sections = split_body(text, path="plan").sections
    except MessageError:
        return []  # too many headings to be a plan: a long result
    own = ("dag", "subtasks")
    return [
        section
        for section in sections
        if words.spelled(section.heading.strip(" :#")) in own and SUBTASKS.search(section.text)
    ]


@dataclass(frozen=True, slots=True)
class DagNode:
    """A child in a DAG: its plan and its state. Times and status are text; empty = absent."""

    planned: PlannedChild
    status: str = ""
    dispatched_at: str = ""
    completed_at: str = ""
    result_summary: str = ""

    def __post_init__(self) -> None:
        # The summary is foreign text and must fit on one line of YAML.
        object.__setattr__(self, "result_summary", storable_line(self.result_summary))

    @property
    def key(self) -> str:
        return self.planned.key


@dataclass(frozen=True, slots=True)
class Dag:
    """The children of a task in order, how their results are combined, and what is doubtful in its text."""

    nodes: tuple[DagNode, ...]
    synthesis: str | None = None
    doubts: tuple[str, ...] = field(default=(), compare=False)

    @property
    def plan(self) -> Plan:
        return Plan(tuple(node.planned for node in self.nodes), self.synthesis, self.doubts)


@dataclass(frozen=True, slots=True)
class Known:
    """What exists around a plan. None = not known here: names are taken as they are, and judged later."""

    agents: Collection[str] | None = None
    """The agents that it may name, with the agent itself."""
    subtasks: Collection[str] | None = None
    """The subtasks that the task has already."""
    calendar: Calendar | None = None
    """When and where it was written: without it, `tomorrow` is not read."""
    by_person: bool = True
    """A person wrote it: a time without a zone is theirs, while an agent's is UTC."""


NOTHING_KNOWN = Known()


def parse_plan(
    yaml_text: str, *, path: str, first_line: int = 1, known: Known = NOTHING_KNOWN, is_file: bool = False
) -> Plan:
    """The plan in `yaml_text`, bare or in one fenced block; `first_line` is its first line in the file `path`.

    At most 4 MiB. Raises MessageError with line and field, or MessageErrors for several: the rules of `strict_yaml`,
    and `missing-field`, `unknown-field`, `wrong-type`, `field-range`, `bad-time`, `bad-id`, `ambiguous-plan`,
    `duplicate-subtask`, `unterminated`, `too-large`; `unknown-agent`, `unknown-dependency` and `cycle` by what is
    `known`. With `is_file`, unknown keys that restrain nothing are kept, with a doubt.
    """
    return _parse(yaml_text, path, first_line, known, is_file=is_file, has_state=False).plan


def parse_dag(
    yaml_text: str, *, path: str, first_line: int = 1, is_file: bool = False, calendar: Calendar | None = None
) -> Dag:
    """Like `parse_plan`, with the state of the children."""
    return _parse(yaml_text, path, first_line, Known(calendar=calendar), is_file=is_file, has_state=True)


def _parse(yaml_text: str, path: str, first_line: int, known: Known, *, is_file: bool, has_state: bool) -> Dag:
    if len(yaml_text) > MAX_BYTES or len(yaml_text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise MessageError(
            "too-large", f"the plan is larger than {MAX_BYTES} bytes", "Split it.", path=path, line=first_line
        )
    text, first_line = _bare(yaml_text, path, first_line)
    try:
        return _Reader(known, is_file=is_file, has_state=has_state).read(text, path, first_line)
    except MessageError as error:
        repaired = strict_yaml.repaired(text)
        if repaired == text:
            raise
        try:
            return _Reader(known, is_file=is_file, has_state=has_state).read(repaired, path, first_line)
        except MessageError as second:
            # what is wrong besides what could be repaired; but of a text that is not even YAML then, the first error
            raise (error if second.rule == "bad-yaml" else second) from None


def blank_children(yaml_text: str, *, path: str, first_line: int = 1) -> tuple[str, ...]:
    """The names in a plan with nothing else filled in, as clawflow's message.py writes one; else empty."""
    text, first_line = _bare(yaml_text, path, first_line)
    loaded = strict_yaml.load(text, path=path, first_line=first_line, max_events=MAX_EVENTS, max_depth=MAX_DEPTH)
    top = loaded.value if isinstance(loaded.value, dict) else {}
    nodes = top.get("subtasks", "")
    if not isinstance(nodes, dict) or not all(isinstance(node, dict) and _is_blank(node) for node in nodes.values()):
        return ()
    return tuple(key for key in nodes if is_id(key))


def _is_blank(node: Mapping[str, Yaml]) -> bool:
    return all(value in ("", []) or (name, value) == ("status", "pending") for name, value in node.items())


def _bare(yaml_text: str, path: str, first_line: int) -> tuple[str, int]:
    """The YAML itself: the whole text, or the content of its one fenced block without the prose around it."""
    lines = yaml_text.split("\n")
    inside, unclosed = fenced(lines)
    start = next((i for i, line in enumerate(lines) if inside[i] or _START.match(line)), None)
    if start is None or not inside[start]:
        return yaml_text, first_line
    if unclosed is not None:
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        problem = f"the fenced block is not closed, so the plan may be cut off; it ends with {excerpt(last)}"
        hint = "Send it again as a whole; a line of description for each subtask is enough."
        raise MessageError("unterminated", problem, hint, path, first_line + unclosed, "DAG")
    end = block_end(lines, start)
    if any(inside[end + 1 :]):
        raise MessageError(
            "ambiguous-plan",
            "there is more than one fenced block",
            "Put the whole plan into one block.",
            path,
            first_line + inside.index(True, end + 1),
            "DAG",
        )
    return "\n".join(lines[start + 1 : end]), first_line + start + 1


class _Level:
    """The names that a dependency can mean at one level of a plan."""

    def __init__(self, names: Iterable[str], entries: Sequence[Entry] = ()) -> None:
        self.names = dict.fromkeys(names)
        self._entries = entries
        self._also: dict[str, set[str]] | None = None

    def find(self, said: str) -> str | None:
        """The child that is called so in another spelling, or that has this title; None if there is not exactly one."""
        if self._also is None:
            self._also = {}
            called = [(name, name) for name in self.names]
            for entry in self._entries:
                titles = [*entry.titles, entry.values.get("description", ""), entry.called]
                called += [(title, entry.key) for title in titles if title]
            for title, key in called:
                self._also.setdefault(_plain(title), set()).add(key)
        found = self._also.get(_plain(said), set())
        return next(iter(found)) if len(found) == 1 else None


def _plain(name: str) -> str:
    return _GAPS.sub(" ", name.strip(QUOTES).casefold()).strip()


def _named(title: str) -> str:
    """A title as the name of a child; empty if there is nothing in it."""
    return _NOT_IN_NAME.sub("-", anyascii(title[:200]).lower())[:_LONGEST_NAME].strip("-")


class _Reader:
    """Reads one plan, collecting its errors."""

    def __init__(self, known: Known, *, is_file: bool, has_state: bool) -> None:
        self.known, self.is_file, self.has_state = known, is_file, has_state
        self.errors: list[MessageError] = []
        self._collecting = _Collecting(self.errors)
        self.source: Source
        self.values: Values

    def read(self, text: str, path: str, first_line: int) -> Dag:
        loaded = strict_yaml.load(text, path=path, first_line=first_line, max_events=MAX_EVENTS, max_depth=MAX_DEPTH)
        source = self.source = Source(path, first_line, loaded.lines, loaded.plain)
        self.values = Values(
            source,
            self.known.agents,
            self.known.calendar,
            by_person=self.known.by_person,
            is_file=self.is_file,
            has_state=self.has_state,
        )
        top, where = self._top(loaded.value)
        said: tuple[Yaml, Path] = ("", where)
        synthesis = ""
        for word, value in top.items():
            name = word if word in _TOP else _top_name(word)
            if name == "subtasks":
                said = (value, (*where, word))
            elif name == "synthesis":
                synthesis = source.text(value, (*where, word))
            elif name not in _TOLD or (name == "type" and words.spelled(source.text(value, (*where, word))) != "plan"):
                with self._collecting:
                    self.values.unknown(word, value, (*where, word), "a plan", _TOP)
        if said[0] == "":
            source.fail("missing-field", "the plan has no subtasks", (), "Write `subtasks:` with one entry per child.")
        entries = self._entries(*said)
        levels = [_Level(self.known.subtasks or ()), _Level((one.key for one in entries), entries)]
        shift = self.values.shift
        self._turn_round(entries, levels)
        nodes = [self._node(entry, levels, shift) for entry in entries]
        if synthesis:
            with self._collecting:
                key = synthesis if synthesis in levels[-1].names else levels[-1].find(synthesis) or synthesis
                synthesis = source.header("synthesis", key, (*where, "synthesis"))
        plan = Plan(tuple(node.planned for node in nodes), synthesis or None)
        if self.known.subtasks is not None:
            self._check_order(plan, said[1])
        if self.errors:
            raise MessageErrors.of(sorted(self.errors, key=lambda one: one.line or 0))
        return Dag(tuple(nodes), synthesis or None, self.values.doubts())

    def _top(self, value: Yaml) -> tuple[dict[str, Yaml], Path]:
        """The mapping with the subtasks, and where it is: the whole text, or inside `plan` or `dag`."""
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            return {"subtasks": value}, ()
        top = self.source.mapping(value, ())
        around = [word for word in top if words.spelled(word) in _AROUND]
        if len(around) != 1 or any(_top_name(word) == "subtasks" for word in top):
            return top, ()
        (word,) = around
        inner = top[word]
        if not isinstance(inner, dict) or not any(_top_name(one) == "subtasks" for one in inner):
            inner = {"subtasks": inner}
        outer = {one: item for one, item in top.items() if one != word}
        return {**inner, **{one: item for one, item in outer.items() if one not in inner}}, (word,)

    # What is written

    def _entries(self, value: Yaml, where: Path) -> list[Entry]:
        """The children in a mapping or a list, each with a name of its own."""
        if value in ("", []):
            return []
        items: Iterable[tuple[str, Yaml, Path]]
        if isinstance(value, list):
            items = (("", item, (*where, number)) for number, item in enumerate(value))
        else:
            items = ((key, item, (*where, key)) for key, item in self.source.mapping(value, where).items())
        entries: list[Entry] = []
        taken: dict[str, Path] = {}
        for key, item, here in items:
            with self._collecting:
                entry = self._entry(key, item, here)
                if entry.key in taken:
                    problem = f"there are two subtasks called {entry.key}"
                    self.source.fail("duplicate-subtask", problem, here, "Give each its own `id:`.")
                taken[entry.key] = here
                entries.append(entry)
        return entries

    def _entry(self, key: str, item: Yaml, where: Path) -> Entry:
        if not isinstance(item, dict):
            hint = "Write `agent:` and `description:` lines below its name."
            self.source.fail("wrong-type", "this is not a mapping", where, hint)
        entry = Entry(key, where, {}, [], False, [], [])
        said: dict[str, str] = {}
        before = len(self.errors)
        for word, value in item.items():
            name = name_of(word)
            here = (*where, word)
            with self._collecting:
                if name in said and name not in ("", "title", "description", "instructions", "depends_on"):
                    problem = f"{word} and {said[name]} are the same here"
                    self.source.fail("duplicate-key", problem, here, "Keep one of them.")
                said.setdefault(name, word)
                if name == "subtasks":
                    entry.children = self._entries(value, here)
                else:
                    self.values.read(entry, name, word, value, here)
        entry.broken = len(self.errors) > before
        self._name(entry, key, where)
        return entry

    def _name(self, entry: Entry, key: str, where: Path) -> None:
        """Its name: the key of the mapping, its `id`, or else its title."""
        given, titles = entry.values.get("id", ""), entry.titles
        if key:
            entry.called = given
            if not is_id(key):
                entry.called, entry.key = given or key, _named(key) if " " in key or not key.isascii() else ""
                if not entry.key:
                    self.source.fail("bad-id", f"{excerpt(key)} is not a valid name for a child", where, ID_RULE)
                entry.titles.append(key)
            return
        if given:
            entry.key = given if is_id(given) else _named(given)
            entry.called = given
        elif titles:
            plain = next((title for title in titles if is_id(title)), "")
            entry.key = plain or _named(titles[0])
        elif text := entry.values.get("description") or entry.values.get("goal"):
            entry.key = _named(str(text).partition("\n")[0])
        if not entry.key:
            self.source.fail("missing-field", "this subtask has no name", where, "Write `id:` with a short name.")
        if entry.key in titles and (len(titles) > 1 or any(entry.values.get(name) for name in _SAYS)):
            titles.remove(entry.key)

    # What it means

    def _node(self, entry: Entry, levels: list[_Level], shift: int) -> DagNode:
        state = [entry.values.get(name, "") for name in STATE]
        return DagNode(self._child(entry, levels, shift), *state)

    def _child(self, entry: Entry, levels: list[_Level], shift: int) -> PlannedChild:
        values, here = entry.values, entry.where
        inside = [*levels, _Level((one.key for one in entry.children), entry.children)] if entry.children else levels
        if entry.children:
            self._turn_round(entry.children, inside)
        children = tuple(self._child(inner, inside, shift) for inner in entry.children)
        description, texts = _described(entry)
        if not description and not entry.broken:
            hint = "Write `description:` with what is to be done."
            with self._collecting:
                self.source.fail("missing-field", f"child {entry.key} has no description", here, hint)
        with self._collecting:
            self.values.require_order(entry)
        overrides = {name: values[name] for name in OVERRIDES if values.get(name) is not None} or None
        if overrides is not None and entry.graded:
            overrides["priority"] -= shift
        if overrides is not None and "gates" in overrides:
            overrides["gates"] = frozenset(overrides["gates"])
        return PlannedChild(
            key=entry.key,
            agents=values.get("agent") or (SELF,),
            description=description,
            depends_on=self._needs(entry, levels),
            **texts,
            acceptance_criteria=values.get("acceptance_criteria", ()),
            checks=values.get("checks", ()),
            planned_actions=values.get("planned_actions", ()),
            overrides=Overrides(**overrides) if overrides else NO_OVERRIDES,
            flow=self._flow(entry, levels, inside),
            claims=values.get("claims", ()),
            children=children,
            extra=tuple(entry.extra),
        )

    def _needs(self, entry: Entry, levels: list[_Level]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for refs, where in entry.values.get("depends_on", ()):
            for said in refs:
                with self._collecting:
                    for name in self._resolved(said, levels, where, entry.key):
                        found[name] = None
        return tuple(found)

    def _turn_round(self, entries: Sequence[Entry], levels: list[_Level]) -> None:
        """Write `blocks` as what the blocked children depend on."""
        blocking = [entry for entry in entries if "blocks" in entry.values]
        by_key = {entry.key: entry for entry in entries} if blocking else {}
        for entry in blocking:
            for refs, where in entry.values["blocks"]:
                for said in refs:
                    with self._collecting:
                        for name in self._resolved(said, levels[-1:], where, entry.key, "blocks"):
                            if name not in by_key:
                                hint = "Write `depends_on:` there, or remove it."
                                self.source.fail(
                                    "unknown-dependency", f"{excerpt(said)} is not a subtask of this plan", where, hint
                                )
                            by_key[name].values.setdefault("depends_on", []).append(((entry.key,), where))

    def _resolved(
        self, said: str, levels: Sequence[_Level], where: Path, whose: str, verb: str = "depends on"
    ) -> tuple[str, ...]:
        """The children that a name or title means: a sibling first, then one of each level around, inside out.

        Several, if the text is a list with commas.
        """
        for level in reversed(levels):
            if said in level.names:
                return (said,)
        for level in reversed(levels):
            if found := level.find(said):
                return (found,)
        if "," in said:
            parts = [part.strip() for part in said.split(",")]
            return tuple(name for part in parts if part for name in self._resolved(part, levels, where, whose, verb))
        name = said.strip().strip(QUOTES)
        if self.known.subtasks is not None or verb != "depends on" or not is_id(name):
            names = [name for level in reversed(levels) for name in level.names]
            import difflib

            near = difflib.get_close_matches(said[:64], names[:200], 1)
            listed = ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")
            hint = f"Did you mean {near[0]}? " if near else ""
            hint += f"The subtasks are: {listed}. Name one, add it, or remove it."
            rule = "bad-id" if self.known.subtasks is None and not is_id(name) else "unknown-dependency"
            self.source.fail(rule, f"{whose} {verb} {excerpt(said)}, but there is no such subtask", where, hint)
        return (name,)

    def _flow(self, entry: Entry, levels: list[_Level], inside: list[_Level]) -> Flow:
        values = entry.values
        if values.keys().isdisjoint(FLOW_VALUES):
            return NO_FLOW
        when, until = values.get("when", ()), values.get("until")
        if when:
            when = tuple(self._about(one, levels) for one in when)
        if until is not None and until.of and inside is not levels:
            until = self._about(until, inside[-1:])
        return Flow(
            when=when,
            needs_any=values.get("needs_any", False),
            rounds=values.get("rounds", 0),
            until=until,
            answers=values.get("answers", ()),
        )

    def _about(self, condition: Condition, levels: Sequence[_Level]) -> Condition:
        """The condition with the name of the child that it is about."""
        if any(condition.of in level.names for level in levels):
            return condition
        found = (level.find(condition.of) for level in reversed(levels))
        return replace(condition, of=next(filter(None, found), condition.of))

    def _check_order(self, plan: Plan, where: Path) -> None:
        try:
            check_order(plan, Level(dict.fromkeys(self.known.subtasks or (), ())))
        except PlanError as error:
            with self._collecting:
                self.source.fail(error.rule, error.problem, where, error.hint)


class _Collecting:
    """Keeps an error of the block for later; after too many, gives all at once."""

    __slots__ = ("errors",)

    def __init__(self, errors: list[MessageError]) -> None:
        self.errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, MessageError):
            return False
        errors = self.errors
        errors.extend(error.all if isinstance(error, MessageErrors) else (error,))
        if len(errors) >= MAX_ERRORS:
            raise MessageErrors.of(sorted(errors[:MAX_ERRORS], key=lambda one: one.line or 0)) from None
        return True


def _top_name(word: str) -> str:
    plain = words.spelled(word.strip(QUOTES))
    return plain if plain in _TOP or plain in _TOLD else words.KEYS.get(plain, plain)


def _described(entry: Entry) -> tuple[str, dict[str, str]]:
    """What a child is about, and the other parts of its spec. A title goes before a description, which explains it."""
    texts = {name: entry.values.get(name, "") for name in TEXTS}
    description: str = entry.values.get("description", "")
    if titles := [title for title in entry.titles if title != description]:
        title, *more = titles
        longer = [text for text in (*more, description, texts["instructions"]) if text.strip()]
        return title, texts | {"instructions": "\n\n".join(longer)}
    said = texts["goal"].strip() or texts["instructions"].strip()
    return description or said.partition("\n")[0], texts


def render_dag(dag: Dag) -> str:
    """The YAML of `dag` without a fence, ending with a newline. `parse_dag(render_dag(dag)) == dag`."""
    lines = ["subtasks:" if dag.nodes else "subtasks: {}"]
    for node in dag.nodes:
        _add_child(lines, node.planned, "  ")
        lines += [f"    {name}: {scalar(value)}" for name in STATE if (value := getattr(node, name))]
    if dag.synthesis is not None:
        lines.append(f"synthesis: {dag.synthesis}")
    return "\n".join(lines) + "\n"


def _flow_keys(said: Flow) -> Iterator[tuple[str, Value]]:
    if said.when:
        yield "when", {condition.of: _answers(condition) for condition in said.when}
    if said.needs_any:
        yield "needs", "any"
    if said.rounds:
        yield "rounds", str(said.rounds)
    if said.until is not None:
        yield "until", {said.until.of: _answers(said.until)} if said.until.of else _answers(said.until)
    if said.answers:
        yield "answers", said.answers


def _answers(condition: Condition) -> Value:
    answers: Value = condition.answers[0] if len(condition.answers) == 1 else list(condition.answers)
    if condition.negated:
        return {"not": answers}
    return answers if isinstance(answers, str) else {"in": answers}


def _add_child(lines: list[str], child: PlannedChild, indent: str) -> None:
    inner = indent + "  "
    lines.append(f"{indent}{scalar(child.key)}:")
    lines.append(f"{inner}agent: {scalar(child.agents[0]) if len(child.agents) == 1 else flow(child.agents)}")
    lines.append(f"{inner}description: {block(child.description, inner + '  ')}")
    lines.append(f"{inner}depends_on: {flow(child.depends_on)}")
    lines += [f"{inner}{name}: {block(text, inner + '  ')}" for name in TEXTS if (text := getattr(child, name))]
    if child.acceptance_criteria:
        lines.append(f"{inner}acceptance_criteria:")
        lines += [f"{inner}  - {scalar(criterion)}" for criterion in child.acceptance_criteria]
    if child.checks:
        lines.append(f"{inner}checks:")
        lines += [f"{inner}  {line}" for line in render_checks(child.checks).split("\n")]
    if child.planned_actions:
        lines.append(f"{inner}planned_actions:")
        lines += [f"{inner}  {line}" for line in action_lines(child.planned_actions).split("\n")]
    if child.overrides is not NO_OVERRIDES:
        lines += [f"{inner}{name}: {value_text(value)}" for name, value in override_headers(child.overrides).items()]
    if child.flow is not NO_FLOW:
        lines += [f"{inner}{name}: {flow(value)}" for name, value in _flow_keys(child.flow)]
    if child.claims:
        lines.append(f"{inner}claims: {flow(child.claims)}")
    if child.extra:
        lines += [f"{inner}{scalar(key)}: {value}" for key, value in child.extra]
    if child.children:
        lines.append(f"{inner}subtasks:")
        for grandchild in child.children:
            _add_child(lines, grandchild, inner + "  ")
