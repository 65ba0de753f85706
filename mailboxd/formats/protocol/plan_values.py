"""The values in a plan: what one key of a child means, whatever its spelling.

A key is taken in our words (`protocol.words`), a value with its unit or in the words of other tools. Names of other
children stay as they are written: `protocol.plan` knows what they can mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mailboxd.core.checks import path_problem
from mailboxd.core.model import Condition
from mailboxd.core.sanitize import excerpt, storable_line
from mailboxd.core.specs import criteria
from mailboxd.core.vocabulary import OPERATORS, SELF, is_agent
from mailboxd.errors import MessageError
from mailboxd.formats.protocol import quantities, words
from mailboxd.formats.protocol.deadlines import HINT as DEADLINES
from mailboxd.formats.protocol.deadlines import Calendar, read_beginning, read_deadline
from mailboxd.formats.protocol.headers import ID_RULE, OVERRIDES, Source, integer
from mailboxd.formats.protocol.spec import actions_of, checks_of
from mailboxd.formats.protocol.strict_yaml import Path, Yaml, flow

STATE = ("status", "dispatched_at", "completed_at", "result_summary")
TEXTS = ("instructions", "expected_output", "goal", "context", "scope_in", "scope_out", "inputs", "outputs", "risks")
_FLOW = ("when", "needs", "rounds", "until", "answers")
FLOW_VALUES = ("when", "needs_any", "rounds", "until", "answers")
OWN = (
    *("agent", "description", "depends_on", *_FLOW, "claims", *TEXTS),
    *("acceptance_criteria", "checks", "planned_actions", "subtasks"),
)
_NAMES = frozenset({*OWN, *STATE, *OVERRIDES, "id", "title", "blocks", "budget"})
"""The names of the keys that a child may have."""
MAX_ROUNDS = 100
_OPERATORS = {"in", "not"}
_ANSWERS = "Write the answer, `{in: [...]}` or `{not: ...}`."
_NOTHING = frozenset({"", "none", "null", "~", "-", "n/a", "nothing"})
_FULL_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?P<zone>[Zz]|[+-].*)?"
)
QUOTES = "\"'“”„‟‘’‚‛«»"


@lru_cache(maxsize=4096)
def name_of(word: str) -> str:
    """Our name of a key, in whatever spelling; empty if it is none of a child's."""
    if word in _NAMES:
        return word
    plain = words.spelled(word.strip(QUOTES))
    if plain in _NAMES:
        return plain
    name = words.KEYS.get(plain, "")
    return name if name in _NAMES else ""


@dataclass(slots=True)
class Entry:
    """A child as it is written, before the names in it are resolved."""

    key: str
    where: Path
    values: dict[str, Any]
    titles: list[str]
    graded: bool
    """Its priority is a word."""
    extra: list[tuple[str, str]]
    children: list[Entry]
    called: str = ""
    """Another name of it."""
    broken: bool = False
    """Something in it could not be read."""


class Values:
    """Reads the values of one plan, and keeps what is doubtful in them.

    `agents`: those that it may name, None: not known here. `calendar`: when it was written; without it, `tomorrow` is
    not read. `by_person`: a time without a zone is one of that calendar, and not UTC. `is_file`: unknown keys that
    restrain nothing are kept. `has_state`: the plan is that of a task.md.
    """

    def __init__(
        self,
        source: Source,
        agents: Collection[str] | None,
        calendar: Calendar | None,
        *,
        by_person: bool,
        is_file: bool,
        has_state: bool,
    ) -> None:
        self.source, self._calendar, self._by_person = source, calendar, by_person
        self._is_file, self._has_state = is_file, has_state
        self._agent_names = None if agents is None else {one.casefold(): one for one in (*agents, SELF)}
        self._graded: dict[str, int] = {}
        self._kept: dict[str, None] = {}

    @property
    def shift(self) -> int:
        """What is taken off the priorities that are words, so that none of them is above 0."""
        return max([0, *self._graded.values()])

    def doubts(self) -> tuple[str, ...]:
        """What is doubtful in the values that were read."""
        doubts, shift = [], self.shift
        if self._graded:
            put = ", ".join(f"{word} as {value - shift}" for word, value in self._graded.items())
            doubts.append(f"only the order of the priorities was kept: {put}")
        if self._kept:
            doubts.append(f"{', '.join(self._kept)} {'has' if len(self._kept) == 1 else 'have'} no effect here")
        return tuple(doubts)

    def read(self, entry: Entry, name: str, word: str, value: Yaml, where: Path) -> None:
        """Read the value of one key of a child."""
        source, values = self.source, entry.values
        if name == "title":
            entry.titles += [text for text in [self._sentences(source.text(value, where), where)] if text.strip()]
        elif name in ("description", *TEXTS):
            text = self._sentences(value, where)
            if words.spelled(word) in ("step", "steps") and text.strip().isdigit():
                hint = "Write `depends_on: [name]` in those that have to wait for others, and remove the line."
                self.source.fail("unknown-field", f"{word} is a number, and numbers give no order here", where, hint)
            values[name] = f"{values[name]}\n\n{text}" if values.get(name) and text else text or values.get(name, "")
        elif name == "id":
            values[name] = source.text(value, where).strip(QUOTES)
        elif name in STATE:
            values[name] = self._state(name, source.text(value, where), where)
        elif name == "":
            self.unknown(word, value, where, "a child", (*OWN, *OVERRIDES), entry)
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
            said = self.source.text(item, where).strip().strip(QUOTES)
            if not said:
                continue
            name = said.removeprefix("@")
            own = self._called(name, where, "to whom you may give work")
            if not is_agent(name):
                self.source.fail("bad-id", f"{excerpt(name)} is not an id", where, ID_RULE)
            found.append(own)
        return tuple(found)

    def _called(self, name: str, where: Path, what_for: str) -> str:
        """The agent of that name as it is called, in any case of letters."""
        own = name if self._agent_names is None else self._agent_names.get(name.casefold())
        if own is None and self._agent_names is not None:
            import difflib

            near = difflib.get_close_matches(name[:64].casefold(), self._agent_names, 1)
            meant = f"Did you mean {self._agent_names[near[0]]}? " if near else ""
            hint = f"{meant}There are {', '.join(self._agent_names.values())}. Write one of them."
            self.source.fail("unknown-agent", f"there is no agent {excerpt(name)} {what_for}", where, hint)
        return own or name

    def _reviewers(self, value: Yaml, where: Path) -> tuple[str, ...]:
        """Agents as they are called, and persons."""
        items = value if isinstance(value, list) else value.split(",") if isinstance(value, str) else None
        if items is not None:
            value = [one.strip().removeprefix("@") if isinstance(one, str) else one for one in items]
        names: tuple[str, ...] = tuple(self.source.header("reviewers", value, where))
        return tuple(name if name.lower() in OPERATORS else self._called(name, where, "to review it") for name in names)

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
        if self._has_state or name != "status":
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
            self._kept.setdefault("status")
        return ""

    def _labels(self, value: Yaml, where: Path) -> tuple[str, ...]:
        """The labels; empty if there are none, or if they are not in our form."""
        try:
            return tuple(self.source.header("labels", value, where)) if value != "" else ()
        except MessageError:
            return ()

    def _override(self, entry: Entry, name: str, value: Yaml, where: Path) -> None:
        text = value if isinstance(value, str) else ""
        if name == "reviewers":
            entry.values[name] = self._reviewers(value, where)
            return
        if name == "budget":
            name, value = self.source.convert(lambda one, _: quantities.budget(str(one)), value, where)
        elif name == "priority" and text and (number := quantities.priority(text)) is not None:
            self._graded[text] = number
            entry.values[name], entry.graded = number, True
            return
        elif name in ("deadline", "not_before") and text and not self._is_full(text):
            read = read_beginning if name == "not_before" else read_deadline
            entry.values[name] = self.source.convert(lambda one, _: self._moment(str(one), read), value, where)
            return
        elif text and (convert := quantities.LIMITS.get(name)):
            value = convert(text)
        entry.values[name] = self.source.header(name, value, where)

    def require_order(self, entry: Entry) -> None:
        """Raises MessageError for a child that is to begin after its deadline."""
        begins, deadline = entry.values.get("not_before"), entry.values.get("deadline")
        if self._calendar is None or not begins or not deadline or begins < deadline:
            return
        told = self._calendar.told
        problem = f"it is to begin at {told(begins)}, and its deadline is {told(deadline)}"
        where = (*entry.where, "not_before")
        self.source.fail("past-deadline", problem, where, "Write a later deadline, or an earlier beginning.")

    def _is_full(self, text: str) -> bool:
        """Whether a time needs no place; an agent's time without a zone is UTC, as the protocol has it."""
        found = _FULL_TIME.fullmatch(text)
        return found is not None and (bool(found["zone"]) or not self._by_person or self._calendar is None)

    def _moment(self, text: str, read: Callable[[str, Calendar], str]) -> str:
        if self._calendar is not None:
            return read(text, self._calendar)
        if not any(letter.isdigit() for letter in text[:4]):
            raise MessageError("bad-time", f"{excerpt(text)} is not a definite time", DEADLINES)
        return read(text, _ANY_DAY)

    def unknown(
        self, word: str, value: Yaml, where: Path, whose: str, own: tuple[str, ...], entry: Entry | None = None
    ) -> None:
        """Refuse, or keep, a key that is not known."""
        if words.spelled(word) == "approved":
            hint = "Only a person approves, with `mailboxd approve`."
            self.source.fail("unknown-field", "a plan cannot approve anything", where, hint)
        idle = words.KEYS.get(words.spelled(word), words.spelled(word)) in words.IDLE
        if word.startswith("x-") and entry is not None:
            entry.extra.append((word, flow(value)))
        elif entry is not None and (idle or (self._is_file and not words.restrains(word))):
            self._keep(word, value, entry)
        elif self._is_file and not words.restrains(word):
            self._kept.setdefault(storable_line(word[:64]))
        else:
            self.source.fail("unknown-field", f"{whose} has no key {excerpt(word)}", where, _meant(word, value, own))

    def _keep(self, word: str, value: Yaml, entry: Entry) -> None:
        self._kept.setdefault(storable_line(word[:64]))
        entry.extra.append((f"x-{words.spelled(word)}", flow(value)))


def _read_criteria(values: Values, value: Yaml, where: Path) -> tuple[str, ...]:
    """A list of criteria, or a text with a list in it."""
    if isinstance(value, str):
        return criteria(value)
    if not isinstance(value, list):
        values.source.fail("wrong-type", "the acceptance criteria are not a list", where, "Write `- ...` for each.")
    return tuple(
        text for number, item in enumerate(value) if (text := values._sentence(item, (*where, number))).strip()
    )


def _read_claims(values: Values, value: Yaml, where: Path) -> tuple[str, ...]:
    """Patterns of paths below the workspace."""
    source = values.source
    items = value if isinstance(value, list) else [part.strip() for part in source.text(value, where).split(",")]
    claims = tuple(dict.fromkeys(source.text(item, where) for item in items if item != ""))
    for claim in claims:
        if problem := path_problem(claim):
            source.fail("wrong-type", f"{excerpt(claim)}: {problem}", where, "Expected: patterns like `src/**`.")
    return claims


def _read_when(values: Values, value: Yaml, where: Path) -> tuple[Condition, ...]:
    said = values.source.mapping(value, where)
    return tuple(_condition(values.source, answer, (*where, key), key) for key, answer in said.items())


def _read_rounds(values: Values, value: Yaml, where: Path) -> int:
    return int(values.source.convert(integer(1, MAX_ROUNDS), value, where)) if value != "" else 0


def _read_until(values: Values, value: Yaml, where: Path) -> Condition | None:
    of = ""
    if isinstance(value, dict) and len(value) == 1 and not {*value} <= _OPERATORS:
        ((of, value),) = value.items()
    return _condition(values.source, value, where, of) if value != "" else None


def _read_answers(values: Values, value: Yaml, where: Path) -> tuple[str, ...]:
    return () if value == "" else tuple(values.source.header("answers", value, where))


_READ: dict[str, Callable[[Values, Yaml, Path], Any]] = {
    "agent": Values._agents,
    "acceptance_criteria": _read_criteria,
    "checks": lambda values, value, where: checks_of(values.source, value, where),
    "planned_actions": lambda values, value, where: actions_of(values.source, value, where),
    "claims": _read_claims,
    "when": _read_when,
    "rounds": _read_rounds,
    "until": _read_until,
    "answers": _read_answers,
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


def _meant(key: str, value: Yaml, known: tuple[str, ...]) -> str:
    import difflib

    near = words.meant(key, known) or words.KEYS.get(words.meant(key, words.KEYS), "")
    close = [near] if near in known else difflib.get_close_matches(words.spelled(key)[:64], known, 1, cutoff=0.55)
    if words.restrains(key) and (near not in known or words.foreign(key)) and (hint := words.instead(key, value)):
        return f"{hint} Write it so, or remove the key."
    return f"Did you mean {close[0]}?" if close else f"Known keys: {', '.join(known)}. Your own begin with x-."
