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

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from anyascii import anyascii

from mailboxd.core.checks import path_problem
from mailboxd.core.model import NO_FLOW, Condition, Flow, Overrides, Plan, PlannedChild
from mailboxd.core.plans import check_order
from mailboxd.core.sanitize import excerpt, storable_line
from mailboxd.core.specs import criteria
from mailboxd.core.task_view import Level
from mailboxd.core.vocabulary import SELF, is_agent, is_id
from mailboxd.errors import MessageError, MessageErrors, PlanError
from mailboxd.protocol import quantities, strict_yaml, words
from mailboxd.protocol.deadlines import HINT as DEADLINES
from mailboxd.protocol.deadlines import Calendar, read_deadline
from mailboxd.protocol.headers import (
    ID_RULE,
    NO_OVERRIDES,
    OVERRIDES,
    Source,
    integer,
    override_headers,
)
from mailboxd.protocol.markdown import block_end, fenced
from mailboxd.protocol.spec import action_lines, actions_of, checks_of, render_checks
from mailboxd.protocol.strict_yaml import Path, Value, Yaml, block, flow, scalar, value_text

MAX_BYTES = 4 * 1024 * 1024
MAX_EVENTS = 600_000
"""Twice what 10,000 children with eight fields and five dependencies each need."""
MAX_DEPTH = 64
"""YAML levels; a nested plan takes two."""
MAX_ERRORS = 20
"""Errors that are given at once."""

STATE = ("status", "dispatched_at", "completed_at", "result_summary")
_TEXTS = ("instructions", "expected_output", "goal", "context", "scope_in", "scope_out", "inputs", "outputs", "risks")
_SAYS = ("description", "goal", "instructions")
"""What says what a child is to do, in place of its title."""
_FLOW = ("when", "needs", "rounds", "until", "answers")
_FLOW_VALUES = ("when", "needs_any", "rounds", "until", "answers")
_OWN = (
    *("agent", "description", "depends_on", *_FLOW, "claims", *_TEXTS),
    *("acceptance_criteria", "checks", "planned_actions", "subtasks"),
)
_NAMES = frozenset({*_OWN, *STATE, *OVERRIDES, "id", "title", "blocks", "budget"})
"""The names of the keys that a child may have."""
MAX_ROUNDS = 100
_OPERATORS = {"in", "not"}
_ANSWERS = "Write the answer, `{in: [...]}` or `{not: ...}`."
_TOP = ("subtasks", "synthesis")
_AROUND = ("plan", "dag")
_TOLD = frozenset({"goal", "title", "type", "task_id", "from"})
"""Keys beside the subtasks that say nothing new: of the task whose plan it is, and of the form."""
_START = re.compile(r"[\"']?(?:sub_?-?tasks|tasks|synthesis|plan|dag|type|goal|title)[\"']? *:|\{|\[|- ", re.IGNORECASE)
_NOTHING = frozenset({"", "none", "null", "~", "-", "n/a", "nothing"})
_FULL_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-].*)?")
_QUOTES = "\"'“”„‟‘’‚‛«»"
_GAPS = re.compile(r"[^\w]+|_+")
_NOT_IN_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 48
_SHOWN = 10


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


def parse_dag(yaml_text: str, *, path: str, first_line: int = 1, is_file: bool = False) -> Dag:
    """Like `parse_plan`, with the state of the children."""
    return _parse(yaml_text, path, first_line, NOTHING_KNOWN, is_file=is_file, has_state=True)


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


@lru_cache(maxsize=4096)
def _name_of(word: str) -> str:
    """Our name of a key, in whatever spelling; empty if it is none of a child's."""
    if word in _NAMES:
        return word
    plain = words.spelled(word.strip(_QUOTES))
    if plain in _NAMES:
        return plain
    name = words.KEYS.get(plain, "")
    return name if name in _NAMES else ""


@dataclass(slots=True)
class _Entry:
    """A child as it is written, before the names in it are resolved."""

    key: str
    where: Path
    values: dict[str, Any]
    titles: list[str]
    graded: bool
    """Its priority is a word."""
    extra: list[tuple[str, str]]
    children: list[_Entry]
    called: str = ""
    """Another name of it."""
    broken: bool = False
    """Something in it could not be read."""


class _Level:
    """The names that a dependency can mean at one level of a plan."""

    def __init__(self, names: Iterable[str], entries: Sequence[_Entry] = ()) -> None:
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
    return _GAPS.sub(" ", name.strip(_QUOTES).casefold()).strip()


def _named(title: str) -> str:
    """A title as the name of a child; empty if there is nothing in it."""
    return _NOT_IN_NAME.sub("-", anyascii(title[:200]).lower())[:_LONGEST_NAME].strip("-")


class _Reader:
    """Reads one plan, collecting its errors and doubts."""

    def __init__(self, known: Known, *, is_file: bool, has_state: bool) -> None:
        self.known, self.is_file, self.has_state = known, is_file, has_state
        self.agents = None if known.agents is None else {one.casefold(): one for one in (*known.agents, SELF)}
        self.errors: list[MessageError] = []
        self.graded: dict[str, int] = {}
        self.kept: dict[str, None] = {}
        self.source: Source

    def read(self, text: str, path: str, first_line: int) -> Dag:
        loaded = strict_yaml.load(text, path=path, first_line=first_line, max_events=MAX_EVENTS, max_depth=MAX_DEPTH)
        source = self.source = Source(path, first_line, loaded.lines, loaded.plain)
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
                with self._collecting():
                    self._unknown(word, value, (*where, word), "a plan", _TOP)
        if said[0] == "":
            source.fail("missing-field", "the plan has no subtasks", (), "Write `subtasks:` with one entry per child.")
        entries = self._entries(*said)
        levels = [_Level(self.known.subtasks or ()), _Level((one.key for one in entries), entries)]
        shift = max([0, *self.graded.values()])
        self._turn_round(entries, levels)
        nodes = [self._node(entry, levels, shift) for entry in entries]
        if synthesis:
            with self._collecting():
                key = synthesis if synthesis in levels[-1].names else levels[-1].find(synthesis) or synthesis
                synthesis = source.header("synthesis", key, (*where, "synthesis"))
        plan = Plan(tuple(node.planned for node in nodes), synthesis or None)
        if self.known.subtasks is not None:
            self._check_order(plan, said[1])
        if self.errors:
            raise MessageErrors.of(sorted(self.errors, key=lambda one: one.line or 0))
        return Dag(tuple(nodes), synthesis or None, self._doubts(shift))

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

    def _collecting(self) -> _Collecting:
        return _Collecting(self)

    def _doubts(self, shift: int) -> tuple[str, ...]:
        doubts = []
        if self.graded:
            put = ", ".join(f"{word} as {value - shift}" for word, value in self.graded.items())
            doubts.append(f"only the order of the priorities was kept: {put}")
        if self.kept:
            doubts.append(f"{', '.join(self.kept)} {'has' if len(self.kept) == 1 else 'have'} no effect here")
        return tuple(doubts)

    # What is written

    def _entries(self, value: Yaml, where: Path) -> list[_Entry]:
        """The children in a mapping or a list, each with a name of its own."""
        if value in ("", []):
            return []
        items: Iterable[tuple[str, Yaml, Path]]
        if isinstance(value, list):
            items = (("", item, (*where, number)) for number, item in enumerate(value))
        else:
            items = ((key, item, (*where, key)) for key, item in self.source.mapping(value, where).items())
        entries: list[_Entry] = []
        taken: dict[str, Path] = {}
        for key, item, here in items:
            with self._collecting():
                entry = self._entry(key, item, here)
                if entry.key in taken:
                    problem = f"there are two subtasks called {entry.key}"
                    self.source.fail("duplicate-subtask", problem, here, "Give each its own `id:`.")
                taken[entry.key] = here
                entries.append(entry)
        return entries

    def _entry(self, key: str, item: Yaml, where: Path) -> _Entry:
        if not isinstance(item, dict):
            hint = "Write `agent:` and `description:` lines below its name."
            self.source.fail("wrong-type", "this is not a mapping", where, hint)
        entry = _Entry(key, where, {}, [], False, [], [])
        said: dict[str, str] = {}
        before = len(self.errors)
        for word, value in item.items():
            name = word if word in _NAMES else _name_of(word)
            here = (*where, word)
            with self._collecting():
                if name in said and name not in ("", "title", "description", "instructions", "depends_on"):
                    problem = f"{word} and {said[name]} are the same here"
                    self.source.fail("duplicate-key", problem, here, "Keep one of them.")
                said.setdefault(name, word)
                self._value(entry, name, word, value, here)
        entry.broken = len(self.errors) > before
        self._name(entry, key, where)
        return entry

    def _name(self, entry: _Entry, key: str, where: Path) -> None:
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

    def _value(self, entry: _Entry, name: str, word: str, value: Yaml, where: Path) -> None:
        """Read the value of one key of a child."""
        source, values = self.source, entry.values
        if name == "title":
            entry.titles += [text for text in [self._sentences(source.text(value, where), where)] if text.strip()]
        elif name in ("description", *_TEXTS):
            text = self._sentences(value, where)
            values[name] = f"{values[name]}\n\n{text}" if values.get(name) and text else text or values.get(name, "")
        elif name == "id":
            values[name] = source.text(value, where).strip(_QUOTES)
        elif name == "subtasks":
            entry.children = self._entries(value, where)
        elif name in STATE:
            values[name] = self._state(name, source.text(value, where), where)
        elif name == "":
            self._unknown(word, value, where, "a child", (*_OWN, *OVERRIDES), entry)
        elif name == "labels":
            if labels := self._labels(value, where):
                values[name] = labels
            elif value not in ("", []):
                self._keep(word, value, entry)
        elif name in OVERRIDES or name == "budget":
            if value != "":
                self._override(entry, name, value, where)
        elif name == "needs" and value in ("any", "all"):
            values["needs_any"] = value == "any"
        elif name in ("depends_on", "needs", "blocks"):
            values.setdefault("blocks" if name == "blocks" else "depends_on", []).append(
                (self._refs(value, where), where)
            )
        elif read := _READ.get(name):
            values[name] = read(self, value, where)

    def _refs(self, value: Yaml, where: Path) -> tuple[str, ...]:
        """The names or titles of subtasks; `none` and the like are no name, unless a subtask is called so."""
        if isinstance(value, str):
            value = [] if value.strip().casefold() in _NOTHING else [value]
        elif not isinstance(value, list):
            self.source.fail("wrong-type", "this is not a list of names", where, "Write them as `[name, name]`.")
        return tuple(self.source.text(one, where) for one in value if one != "")

    def _agents(self, value: Yaml, where: Path) -> tuple[str, ...]:
        """Agents as they are called; one of those that exist in any case of letters, and with `@`."""
        items = value if isinstance(value, list) else self.source.text(value, where).split(",")
        found = []
        for item in items:
            said = self.source.text(item, where).strip().strip(_QUOTES)
            if not said:
                continue
            name = said.removeprefix("@")
            own = name if self.agents is None else self.agents.get(name.casefold())
            if own is None and self.agents is not None:
                near = difflib.get_close_matches(name[:64].casefold(), self.agents, 1)
                meant = f"Did you mean {self.agents[near[0]]}? " if near else ""
                hint = f"{meant}There are {', '.join(self.agents.values())}. Write one of them."
                self.source.fail(
                    "unknown-agent", f"there is no agent {excerpt(name)} to whom you may give work", where, hint
                )
            if not is_agent(name):
                self.source.fail("bad-id", f"{excerpt(name)} is not an id", where, ID_RULE)
            found.append(own or name)
        return tuple(found)

    def _sentences(self, value: Yaml, where: Path) -> str:
        """A text, or a list of sentences as one. A sentence with a colon in it is one too."""
        if isinstance(value, str):
            quoted = value[:1] in "“„" and value[-1:] in "”“" and len(value) > 2 and where in self.source.plain
            return value[1:-1] if quoted else value
        if isinstance(value, dict):
            return self.source.text(value, where)
        return "\n".join(f"- {self._sentence(item, (*where, number))}" for number, item in enumerate(value))

    def _sentence(self, item: Yaml, where: Path) -> str:
        if isinstance(item, dict) and len(item) == 1:
            ((key, text),) = item.items()
            if isinstance(text, str) and not words.restrains(key) and (*where, key) in self.source.plain:
                return f"{key}: {text}"
        if isinstance(item, dict):
            self.source.fail(
                "wrong-type", "this is not a sentence", where, "Write it as text, or as a child in `subtasks:`."
            )
        return self.source.text(item, where)

    def _state(self, name: str, text: str, where: Path) -> str:
        if self.has_state or name != "status":
            return "pending" if name == "status" and words.spelled(text) in words.OPEN and text else text
        word = words.spelled(text)
        if word in words.CLOSED:
            hint = "Leave the subtask out; others may still depend on it if the task has it already."
            self.source.fail(
                "wrong-type", f"the subtask is {text}, but a plan contains only what is left to do", where, hint
            )
        if word not in words.OPEN:
            problem = f"{excerpt(text)} is not the status of work that nobody has begun"
            self.source.fail("wrong-type", problem, where, "Remove the line, or leave the subtask out.")
        if word not in ("", "pending"):
            self.kept.setdefault("status")
        return ""

    def _labels(self, value: Yaml, where: Path) -> tuple[str, ...]:
        """The labels; empty if there are none, or if they are not in our form."""
        try:
            return tuple(self.source.header("labels", value, where)) if value != "" else ()
        except MessageError:
            return ()

    def _override(self, entry: _Entry, name: str, value: Yaml, where: Path) -> None:
        text = value if isinstance(value, str) else ""
        if name == "budget":
            name, value = self.source.convert(lambda one, _: quantities.budget(str(one)), value, where)
        elif name == "priority" and text and (number := quantities.priority(text)) is not None:
            self.graded[text] = number
            entry.values[name], entry.graded = number, True
            return
        elif name == "deadline" and text and not _FULL_TIME.fullmatch(text):
            entry.values[name] = self.source.convert(lambda one, _: self._deadline(str(one)), value, where)
            return
        elif text and (convert := _IN_WORDS.get(name)):
            value = convert(text)
        entry.values[name] = self.source.header(name, value, where)

    def _deadline(self, text: str) -> str:
        if self.known.calendar is not None:
            return read_deadline(text, self.known.calendar)
        if not any(letter.isdigit() for letter in text[:4]):
            raise MessageError("bad-time", f"{excerpt(text)} is not a definite time", DEADLINES)
        return read_deadline(text, _ANY_DAY)

    def _unknown(
        self, word: str, value: Yaml, where: Path, whose: str, own: tuple[str, ...], entry: _Entry | None = None
    ) -> None:
        """Refuse, or keep, a key that is not known."""
        if words.spelled(word) == "approved":
            hint = "Only a person approves, with `mailboxd approve`."
            self.source.fail("unknown-field", "a plan cannot approve anything", where, hint)
        idle = words.KEYS.get(words.spelled(word), words.spelled(word)) in words.IDLE
        if word.startswith("x-") and entry is not None:
            entry.extra.append((word, flow(value)))
        elif entry is not None and (idle or (self.is_file and not words.restrains(word))):
            self._keep(word, value, entry)
        elif self.is_file and not words.restrains(word):
            self.kept.setdefault(storable_line(word[:64]))
        else:
            self.source.fail("unknown-field", f"{whose} has no key {excerpt(word)}", where, _meant(word, own))

    def _keep(self, word: str, value: Yaml, entry: _Entry) -> None:
        self.kept.setdefault(storable_line(word[:64]))
        entry.extra.append((f"x-{words.spelled(word)}", flow(value)))

    # What it means

    def _node(self, entry: _Entry, levels: list[_Level], shift: int) -> DagNode:
        return DagNode(self._child(entry, levels, shift), *(entry.values.get(name, "") for name in STATE))

    def _child(self, entry: _Entry, levels: list[_Level], shift: int) -> PlannedChild:
        values, here = entry.values, entry.where
        inside = [*levels, _Level((one.key for one in entry.children), entry.children)] if entry.children else levels
        if entry.children:
            self._turn_round(entry.children, inside)
        children = tuple(self._child(inner, inside, shift) for inner in entry.children)
        description, texts = _described(entry)
        if not description and not entry.broken:
            hint = "Write `description:` with what is to be done."
            with self._collecting():
                self.source.fail("missing-field", f"child {entry.key} has no description", here, hint)
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

    def _needs(self, entry: _Entry, levels: list[_Level]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for refs, where in entry.values.get("depends_on", ()):
            for said in refs:
                with self._collecting():
                    for name in self._resolved(said, levels, where, entry.key):
                        found[name] = None
        return tuple(found)

    def _turn_round(self, entries: Sequence[_Entry], levels: list[_Level]) -> None:
        """Write `blocks` as what the blocked children depend on."""
        blocking = [entry for entry in entries if "blocks" in entry.values]
        by_key = {entry.key: entry for entry in entries} if blocking else {}
        for entry in blocking:
            for refs, where in entry.values["blocks"]:
                for said in refs:
                    with self._collecting():
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
        name = said.strip().strip(_QUOTES)
        if self.known.subtasks is not None or verb != "depends on" or not is_id(name):
            names = [name for level in reversed(levels) for name in level.names]
            near = difflib.get_close_matches(said[:64], names[:200], 1)
            listed = ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")
            hint = f"Did you mean {near[0]}? " if near else ""
            hint += f"The subtasks are: {listed}. Name one, add it, or remove it."
            rule = "bad-id" if self.known.subtasks is None and not is_id(name) else "unknown-dependency"
            self.source.fail(rule, f"{whose} {verb} {excerpt(said)}, but there is no such subtask", where, hint)
        return (name,)

    def _flow(self, entry: _Entry, levels: list[_Level], inside: list[_Level]) -> Flow:
        values = entry.values
        if not any(name in values for name in _FLOW_VALUES):
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
            with self._collecting():
                self.source.fail(error.rule, error.problem, where, error.hint)


class _Collecting:
    """Keeps an error of the block for later; after too many, gives all at once."""

    __slots__ = ("reader",)

    def __init__(self, reader: _Reader) -> None:
        self.reader = reader

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, MessageError):
            return False
        errors = self.reader.errors
        errors.extend(error.all if isinstance(error, MessageErrors) else (error,))
        if len(errors) >= MAX_ERRORS:
            raise MessageErrors.of(sorted(errors[:MAX_ERRORS], key=lambda one: one.line or 0)) from None
        return True


def _top_name(word: str) -> str:
    plain = words.spelled(word.strip(_QUOTES))
    return plain if plain in _TOP or plain in _TOLD else words.KEYS.get(plain, plain)


def _described(entry: _Entry) -> tuple[str, dict[str, str]]:
    """What a child is about, and the other parts of its spec. A title goes before a description, which explains it."""
    texts = {name: entry.values.get(name, "") for name in _TEXTS}
    description: str = entry.values.get("description", "")
    if titles := [title for title in entry.titles if title != description]:
        title, *more = titles
        longer = [text for text in (*more, description, texts["instructions"]) if text.strip()]
        return title, texts | {"instructions": "\n\n".join(longer)}
    said = texts["goal"].strip() or texts["instructions"].strip()
    return description or said.partition("\n")[0], texts


def _read_criteria(reader: _Reader, value: Yaml, where: Path) -> tuple[str, ...]:
    """A list of criteria, or a text with a list in it."""
    if isinstance(value, str):
        return criteria(value)
    if not isinstance(value, list):
        reader.source.fail("wrong-type", "the acceptance criteria are not a list", where, "Write `- ...` for each.")
    return tuple(
        text for number, item in enumerate(value) if (text := reader._sentence(item, (*where, number))).strip()
    )


def _read_claims(reader: _Reader, value: Yaml, where: Path) -> tuple[str, ...]:
    """Patterns of paths below the workspace."""
    source = reader.source
    items = value if isinstance(value, list) else [part.strip() for part in source.text(value, where).split(",")]
    claims = tuple(dict.fromkeys(source.text(item, where) for item in items if item != ""))
    for claim in claims:
        if problem := path_problem(claim):
            source.fail("wrong-type", f"{excerpt(claim)}: {problem}", where, "Expected: patterns like `src/**`.")
    return claims


def _read_when(reader: _Reader, value: Yaml, where: Path) -> tuple[Condition, ...]:
    said = reader.source.mapping(value, where)
    return tuple(_condition(reader.source, answer, (*where, key), key) for key, answer in said.items())


def _read_rounds(reader: _Reader, value: Yaml, where: Path) -> int:
    return int(reader.source.convert(integer(1, MAX_ROUNDS), value, where)) if value != "" else 0


def _read_until(reader: _Reader, value: Yaml, where: Path) -> Condition | None:
    of = ""
    if isinstance(value, dict) and len(value) == 1 and not {*value} <= _OPERATORS:
        ((of, value),) = value.items()
    return _condition(reader.source, value, where, of) if value != "" else None


def _read_answers(reader: _Reader, value: Yaml, where: Path) -> tuple[str, ...]:
    return () if value == "" else tuple(reader.source.header("answers", value, where))


_READ: dict[str, Callable[[_Reader, Yaml, Path], Any]] = {
    "agent": _Reader._agents,
    "acceptance_criteria": _read_criteria,
    "checks": lambda reader, value, where: checks_of(reader.source, value, where),
    "planned_actions": lambda reader, value, where: actions_of(reader.source, value, where),
    "claims": _read_claims,
    "when": _read_when,
    "rounds": _read_rounds,
    "until": _read_until,
    "answers": _read_answers,
}
_IN_WORDS: dict[str, Callable[[str], str]] = {
    "timeout": quantities.seconds,
    "budget_usd": quantities.dollars,
    "budget_tokens": quantities.tokens,
    "max_attempts": quantities.times,
}
_ANY_DAY = Calendar("1970-01-01T00:00:00.000Z")
"""For days with their date, which mean the same whenever they are written."""


def _condition(source: Source, value: Yaml, where: Path, of: str = "") -> Condition:
    """An answer, `{in: [several]}` or `{not: one or several}`."""
    negated = False
    if isinstance(value, dict):
        if len(value) != 1 or not {*value} <= _OPERATORS:
            source.fail("wrong-type", "this is not a condition", where, _ANSWERS)
        ((operator, value),) = value.items()
        negated = operator == "not"
    answers = tuple(source.text(one, where) for one in (value if isinstance(value, list) else [value]))
    if not answers or not all(one.strip() for one in answers):
        source.fail("wrong-type", "the condition names no answer", where, _ANSWERS)
    return Condition(answers, of, negated)


def _meant(key: str, known: tuple[str, ...]) -> str:
    near = words.meant(key, known) or words.KEYS.get(words.meant(key, words.KEYS), "")
    close = [near] if near in known else difflib.get_close_matches(words.spelled(key)[:64], known, 1, cutoff=0.55)
    if "appro" in words.spelled(key):
        return "A side effect goes under `planned_actions`, which a person approves. Write it so, or remove the key."
    return f"Did you mean {close[0]}?" if close else f"Known keys: {', '.join(known)}. Your own begin with x-."


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
    lines.append(f"{inner}agent: {flow(child.agents[0] if len(child.agents) == 1 else child.agents)}")
    lines.append(f"{inner}description: {block(child.description, inner + '  ')}")
    lines.append(f"{inner}depends_on: {flow(child.depends_on)}")
    lines += [f"{inner}{name}: {block(text, inner + '  ')}" for name in _TEXTS if (text := getattr(child, name))]
    if child.acceptance_criteria:
        lines.append(f"{inner}acceptance_criteria:")
        lines += [f"{inner}  - {scalar(criterion)}" for criterion in child.acceptance_criteria]
    if child.checks:
        lines.append(f"{inner}checks:")
        lines += [f"{inner}  {line}" for line in render_checks(child.checks).split("\n")]
    if child.planned_actions:
        lines.append(f"{inner}planned_actions:")
        lines += [f"{inner}  {line}" for line in action_lines(child.planned_actions).split("\n")]
    lines += [f"{inner}{name}: {value_text(value)}" for name, value in override_headers(child.overrides).items()]
    lines += [f"{inner}{name}: {flow(value)}" for name, value in _flow_keys(child.flow)]
    if child.claims:
        lines.append(f"{inner}claims: {flow(child.claims)}")
    lines += [f"{inner}{scalar(key)}: {value}" for key, value in child.extra]
    if child.children:
        lines.append(f"{inner}subtasks:")
        for grandchild in child.children:
            _add_child(lines, grandchild, inner + "  ")
