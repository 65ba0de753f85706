"""The head of a task file, in the words of people and of other tools, as headers in our own spelling.

A key that has one meaning is read in any spelling of the table (`protocol.words`). A key that restrains the work, or
may be meant as one that does, and cannot be read as such, stops it: without it the work would run freely. What
restrains nothing is kept; a doubt says so, except for the bookkeeping of other tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from mailboxd.core.sanitize import excerpt, storable_line
from mailboxd.core.vocabulary import POOL, SELF, is_agent, is_id, same_agent
from mailboxd.errors import MessageError
from mailboxd.formats.protocol import quantities
from mailboxd.formats.protocol.deadlines import AmbiguousTime, Calendar, read_beginning, read_deadline
from mailboxd.formats.protocol.headers import CONVERTERS, near_misses
from mailboxd.formats.protocol.markdown import Section, join_body
from mailboxd.formats.protocol.repeats import HINT as REPEATED_AS
from mailboxd.formats.protocol.repeats import read_repeat
from mailboxd.formats.protocol.strict_yaml import Path, Yaml
from mailboxd.formats.protocol.words import (
    BOOKKEEPING,
    CLOSED,
    KEYS,
    OPEN,
    PERSONS,
    REPEATS,
    SENDERS,
    STARTS,
    STOPPED,
    UNDER_WAY,
    foreign,
    foreign_letter,
    instead,
    meant,
    restrains,
    skeleton,
    spelled,
)

_NOTHING = frozenset({"", "-", "none", "null", "n/a", "na", "no", "false", "nobody", "unassigned", "[]", "{}"})
_NOBODY = "nobody"
_NO_NAME = _NOTHING - {_NOBODY}
"""Who writes that nobody shall do it may mean that it shall not be done."""
_LIMITS = ("timeout", "budget_usd", "budget_tokens", "max_attempts", "planned_actions")
_LINKED = re.compile(r"\[\[([^\[\]|]+)(?:\|[^\[\]]*)?\]\]|#([0-9]+)")
_FULL_TIME = re.compile(r"[0-9-]{10}[Tt ][0-9:.]{5,18}")
_MOST_NAMES = 100
_OF_A_TRACKER = re.compile(r"\A(?:task|issue|ticket|card|item)_")
"""What trackers put in front of the names of their columns."""
_ENDING = re.compile(r"(?<=.)\.(?:md|markdown|txt)$", re.IGNORECASE)
"""Of the name of a file."""
_TEXTS = {
    "goal": "Goal",
    "context": "Context",
    "instructions": "Instructions",
    "description": "Description",
    "expected_output": "Expected Output",
    "acceptance_criteria": "Acceptance Criteria",
}
"""Headers that hold a part of the text, with the sections that they become."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is read: whose mailbox it is, which agents exist, and what `today` means.

    Without `agents` they are not known; without a `calendar` only RFC 3339 times are read.
    """

    agent: str = SELF
    find_agents: Callable[[], tuple[str, ...]] = tuple
    """Looks up which agents exist: most files name none."""
    calendar: Calendar | None = None
    now: str = ""
    """The time at which the file is read; it may have been written on an earlier day."""

    @property
    def agents(self) -> tuple[str, ...]:
        return self.find_agents()

    def agent_called(self, name: str) -> str:
        """The agent that `name` means, in its own spelling and without an `@`; empty if none is known to have it."""
        bare = name.strip().removeprefix("@")
        if same_agent(bare, self.agent) or bare.casefold() == SELF:
            return self.agent
        agents = self.agents
        known = next((one for one in agents if same_agent(one, bare)), "")
        elsewhere = is_agent(bare) and (bare.startswith(POOL) or "." in bare)
        return known or (bare if elsewhere or (not agents and is_id(bare)) else "")


NOWHERE = Place()


@dataclass(slots=True)
class Head:
    """A head in our spelling.

    `header` has the values by our names; `written` the names in the file, where they differ. `text` holds the parts of
    the work that stood in the head, as sections.
    """

    header: dict[str, Yaml] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    text: str = ""


def read_head(
    header: Mapping[str, Yaml],
    known: Collection[str],
    place: Place = NOWHERE,
    *,
    by_person: bool = False,
    statuses: Collection[str] = (),
    lines: Mapping[Path, int] | None = None,
) -> Head:
    """The headers of a task. `known` are the names that its reader has itself, `statuses` the words of a state that it
    reads itself; `by_person`: times without a zone are those of the person.

    Raises MessageError with the field as it is written: `unknown-field` for what restrains and cannot be read,
    `not-open` for work that is done or put off, `unknown-agent`, `bad-time`, `past-deadline`, `wrong-type`,
    `duplicate-key`.
    """
    return _HeadReader(known, place, by_person, frozenset(statuses), lines or {}).read(header)


@dataclass(slots=True)
class _HeadReader:
    known: Collection[str]
    place: Place
    by_person: bool
    statuses: frozenset[str]
    lines: Mapping[Path, int]
    head: Head = field(default_factory=Head)
    sections: list[Section] = field(default_factory=list)
    unknown: dict[str, Yaml] = field(default_factory=dict)

    def read(self, header: Mapping[str, Yaml]) -> Head:
        for key, value in header.items():
            name = key if key in self.known else self._name(key)
            if name in header and name != key:
                self._twice(key, name)
            reader = _READERS.get(name)
            if isinstance(value, dict) and reader is None and not key.startswith("x-"):
                self._require_free(key, value)
            if reader is not None:
                reader(self, key, value)
            elif name in self.known:
                self._put(name, key, value)
            else:
                self._unknown(key, value)
        self._require_order()
        if self.unknown:
            self._doubt_unknown()
            place = {key: number for number, key in enumerate(header)}  # they stay where they were written
            self.head.header = dict(sorted(self.head.header.items(), key=lambda one: place.get(one[0], len(place))))
        if self.sections:
            self.head.text = join_body("", "", self.sections).rstrip("\n")
        return self.head

    def _require_free(self, key: str, value: Mapping[str, Yaml]) -> None:
        """Raises MessageError for what restrains below a key where nothing reads it."""
        if inner := next(filter(restrains, value), ""):
            problem = f"{excerpt(inner)} stands below {excerpt(key)}, where nothing reads it"
            self._fail("unknown-field", key, problem, f"Write `{inner[:80]}:` at the beginning of a line.")

    def _name(self, key: str) -> str:
        """Our name of a key that is none of the known ones; itself if it has none."""
        if key.startswith("x-") or key != key.strip("_"):
            return key
        name = spelled(key)
        name = KEYS.get(name) or KEYS.get(_OF_A_TRACKER.sub("", name), name)
        if name in SENDERS:
            return "from"
        if name in REPEATS:
            return "repeat"
        return name if name in self.known or name in _READERS else key

    def _twice(self, key: str, name: str) -> None:
        if name in ("title", "labels", *_TEXTS):
            return
        at = [str(line) for one in (name, key) if (line := self.lines.get((one,)))]
        where = f", in lines {' and '.join(at)}" if len(at) > 1 else ""
        problem = f"{excerpt(key)} and {name} say the same thing{where}"
        raise MessageError("duplicate-key", problem, "Keep one of them.", field=key)

    def _put(self, name: str, key: str, value: Yaml) -> None:
        if name in self.head.header:
            if name in ("title", "labels"):
                self.unknown[key] = value
                return
            self._twice(key, self.head.written.get(name, name))
        self.head.header[name] = value
        if name != key:
            self.head.written[name] = key

    def _fail(self, rule: str, key: str, problem: str, hint: str) -> NoReturn:
        raise MessageError(rule, problem, hint, field=key)

    # One reader per header that means more than its value

    def _status(self, key: str, value: Yaml) -> None:
        word = spelled(value) if isinstance(value, str) else ""
        if not isinstance(value, str):
            self.unknown[key] = value
            return
        if not self.statuses:
            self.head.header[key] = value
        if value in self.statuses:
            self._put("status", key, value)
        elif word in CLOSED:
            self._not_open(key, value)
        elif word in STOPPED:
            self._not_yet(key, value, "open")
        elif word in UNDER_WAY:
            self.head.doubts.append(f"{key}: {value[:80]}: somebody may be working on it; it was taken as new work")
        elif word not in OPEN and word not in _NOTHING:
            self.head.doubts.append(f"{key}: {excerpt(value)} is no state that is known here; it was taken as new work")

    def _done(self, key: str, value: Yaml) -> None:
        if isinstance(value, str) and value.casefold() not in _NOTHING:
            self._not_open(key, value)

    def _held(self, key: str, value: Yaml) -> None:
        if isinstance(value, str) and value.casefold() not in _NOTHING:
            self._not_yet(key, value, "false")

    def _ready(self, key: str, value: Yaml) -> None:
        if isinstance(value, str) and value.casefold() in ("false", "no", "not yet"):
            self._not_yet(key, value, "true")

    def _not_yet(self, key: str, value: str, instead: str) -> NoReturn:
        hint = f"If it may begin, write `{key}: {instead}`, or remove the line."
        self._fail("not-open", key, f"it is not to begin yet: {key}: {value[:80]}", hint)

    def _not_open(self, key: str, value: str) -> NoReturn:
        hint = f"If it is to be done all the same, write `{key}: open`, or remove the line, and send it again."
        self._fail("not-open", key, f"by its own words this is not to be done any more: {key}: {value[:80]}", hint)

    def _priority(self, key: str, value: Yaml) -> None:
        said = spelled(value) if isinstance(value, str) else ""
        number = quantities.priority(value) if isinstance(value, str) else None
        if number is not None:
            self._put("priority", key, str(number))
        elif said not in _NOTHING:
            self._put("priority", key, value)
            if self.by_person and said in ("0", "1"):
                self.head.doubts.append(f"{key}: {said}: here 0 is normal and a higher number is more urgent")

    def _deadline(self, key: str, value: Yaml) -> None:
        at = self._moment("deadline", key, value, read_deadline)
        now = self._now
        if at and self.by_person and at <= now:
            problem = f"its deadline was {self._told(at)}, and it is {self._told(now)} now"
            hint = f"If it is to be done all the same, write a later `{key}:`, or remove the line, and send it again."
            self._fail("past-deadline", key, problem, hint)

    def _not_before(self, key: str, value: Yaml) -> None:
        self._moment("not_before", key, value, read_beginning)

    def _moment(self, name: str, key: str, value: Yaml, read: Callable[[str, Calendar], str]) -> str:
        """Put a time, as it was read; returns it, or nothing if it is not for us to read here."""
        calendar = self.place.calendar
        if not isinstance(value, str) or calendar is None:
            self._put(name, key, value)
            return ""
        if spelled(value) in _NOTHING:
            return ""
        if not self.by_person and _FULL_TIME.fullmatch(value):
            self._put(name, key, value)  # another agent's time without a zone is UTC, as the protocol has it
            return ""
        try:
            at = CONVERTERS[name](value, _strict)
        except (MessageError, _InPart):
            try:
                at = read(value, calendar)
            except MessageError as error:
                error.field = key
                raise
        self._put(name, key, at)
        return str(at)

    @property
    def _now(self) -> str:
        return self.place.now or (self.place.calendar.now if self.place.calendar else "")

    def _told(self, at: str) -> str:
        return self.place.calendar.told(at) if self.place.calendar else at

    def _agent(self, key: str, value: Yaml) -> None:
        names = self._listed(key, value, _NO_NAME)
        nobody = len(names) == 1 and names[0].casefold() == _NOBODY
        if nobody and not any(same_agent(names[0], one) for one in (self.place.agent, *self.place.agents)):
            self.head.doubts.append(f"{key}: {_NOBODY} is no agent; {self.place.agent} does the work")
            return
        found = [self.place.agent_called(name) for name in names]
        if all(found):
            if len(set(found)) > 1:
                problem = f"{key} names several agents: {', '.join(found)}"
                hint = "Write a plan that says who does what (a section `## DAG`), or name one."
                self._fail("unknown-field", key, problem, hint)
            if found:
                self._put("agent", key, found[0])
            return
        stranger = names[found.index("")]
        if spelled(key) in PERSONS and not self._near(stranger):
            self.head.doubts.append(f"{key}: {excerpt(stranger)} is no agent; {self.place.agent} does the work")
            return
        self._no_agent(key, stranger, f"then {self.place.agent} does it.")

    def _reviewers(self, key: str, value: Yaml) -> None:
        names = self._listed(key, value) if self.place.agents else ()
        found = [self.place.agent_called(name) for name in names]
        if not all(found):
            stranger = names[found.index("")]
            if self.by_person:
                self._no_agent(key, stranger, "what a person is to approve goes under `## Planned Actions`.")
            self.head.doubts.append(f"{key}: {excerpt(stranger)} is no agent here; the task waits for its review")
        self._limit(key, [*found] if names and all(found) else value)

    def _near(self, stranger: str) -> str:
        """The agent whose name is nearly that of a stranger; empty for none."""
        return meant(stranger.removeprefix("@"), self.place.agents)

    def _no_agent(self, key: str, stranger: str, without: str) -> NoReturn:
        """Refuse the name of a stranger; `without` says what follows if the line is removed."""
        near, known = self._near(stranger), ", ".join(sorted({*self.place.agents, self.place.agent}))
        hint = f"{f'Did you mean {near}? ' if near else ''}Write one of {known}, or remove the line: {without}"
        self._fail("unknown-agent", key, f"{key} names {excerpt(stranger)}, which is no agent here", hint)

    def _depends_on(self, key: str, value: Yaml) -> None:
        if key == "needs" and not isinstance(value, list):
            self._unknown(key, value)
            return
        names = self._listed(key, value)
        if names:
            self._put("depends_on", key, [_ENDING.sub("", name) for name in names])

    def _labels(self, key: str, value: Yaml) -> None:
        names = [name.lstrip("#") for name in self._listed(key, value)]
        if names:
            self._put("labels", key, [*names])

    def _from(self, key: str, value: Yaml) -> None:
        name = value
        if isinstance(name, str) and name and not is_id(name.removeprefix("@")):
            problem = f"it is from {excerpt(name)}, who can give no orders here"
            hint = "Only agents and the operator do. Write what is to be done in your own words, with this text below."
            self._fail("bad-id", key, problem, hint)
        self._put("from", key, name.removeprefix("@") if isinstance(name, str) else name)

    def _author(self, key: str, value: Yaml) -> None:
        """Who wrote a file in another tool: its sender, if that is another agent."""
        name = self.place.agent_called(value) if isinstance(value, str) and self.place.agents else ""
        if name and name != self.place.agent and "from" not in self.head.header:
            self._put("from", key, name)

    def _to(self, key: str, value: Yaml) -> None:
        names = self._listed(key, value, _NO_NAME)
        own = next((name for name in names if same_agent(name, self.place.agent)), None)
        if names:
            self._put("to", key, own or names[0])
        others = [name for name in names if name != (own or names[0])]
        if others:
            self.head.doubts.append(f"{key}: {', '.join(others)} did not get it; it was taken for {own or names[0]}")

    def _id(self, key: str, value: Yaml) -> None:
        if "id" in self.known:
            self._put("id", key, value)
        elif isinstance(value, str) and "task_id" in self.known and is_id(value):
            self.head.header.setdefault("id", value)

    def _text(self, key: str, value: Yaml) -> None:
        name = spelled(key)
        heading = _TEXTS[KEYS.get(name, name)]
        items = value if isinstance(value, list) else [value]
        texts = [item for item in items if isinstance(item, str) and item.strip()]
        if len(texts) < len(items) and value not in ("", []):
            self._unknown(key, value)
        elif texts:
            text = "\n".join(f"- {item}" for item in texts) if isinstance(value, list) else texts[0]
            self.sections.append(Section(heading, text))

    def _limit(self, key: str, value: Yaml) -> None:
        if value in ("", []):
            return
        name = spelled(key)
        name = KEYS.get(name, name)
        if isinstance(value, str) and (read := quantities.LIMITS.get(name)):
            value = read(value)
        self._put(name, key, value)

    def _budget(self, key: str, value: Yaml) -> None:
        """A budget of what its value says: dollars or tokens."""
        if value in ("", []):
            return
        try:
            name, amount = quantities.budget(str(value))
        except MessageError as error:
            self._fail("unknown-field", key, error.problem, f"{error.hint} Nothing has started.")
        self._put(name, key, amount)

    # What is in no table

    def _unknown(self, key: str, value: Yaml) -> None:
        if key.startswith("x-"):
            self.head.header[key] = value
            return
        odd = foreign_letter(key)
        if spelled(key) in STARTS and "not_before" in self.known and self._begins(key, value):
            return
        said = value.casefold() if isinstance(value, str) else str(value)
        if restrains(key) and (said not in _NOTHING or odd):
            self._stop(key, value, odd)
        self.unknown[key] = value

    def _repeat(self, key: str, value: Yaml) -> None:
        """How it is repeated; a `schedule` may also be the day of its beginning."""
        word, said = spelled(key), value.casefold().strip() if isinstance(value, str) else ""
        if isinstance(value, str) and (said in _NOTHING or said in ("never", "once")):
            return
        if not isinstance(value, str):
            self._fail("bad-repeat", key, "this does not say how it is repeated", REPEATED_AS)
        if word == "schedule" and self._is_a_day(value):
            try:
                read_repeat(value)
            except MessageError:
                self._moment("not_before", key, value, read_beginning)
                return
            problem = f"{excerpt(value)} may be one day, or each such day"
            self._fail("bad-repeat", key, problem, "Write it as `not_before:`, or as `repeat:`.")
        text = f"every {value}" if word in ("every", "interval") and not said.startswith("every") else value
        try:
            read_repeat(text)
        except MessageError as error:
            error.field = key
            raise
        if "repeat" not in self.known:
            hint = "Drop it into mailbox/inbox/: a task.md is one task."
            self._fail("bad-repeat", key, "a task.md is not repeated", hint)
        self._put("repeat", key, " ".join(text.split()))

    def _is_a_day(self, value: str) -> bool:
        try:
            return self.place.calendar is not None and bool(read_beginning(value, self.place.calendar))
        except MessageError:
            return False

    def _begins(self, key: str, value: Yaml) -> bool:
        """Whether a word of another tool is the day on which the work may begin; one that is over is kept as it is."""
        calendar = self.place.calendar
        if not isinstance(value, str) or calendar is None:
            return False
        try:
            at = read_beginning(value, calendar)
        except AmbiguousTime as error:
            error.field = key
            raise
        except MessageError:
            return False
        if at > self._now:
            self._put("not_before", key, at)
        else:
            self.head.header[key] = value
        return True

    def _require_order(self) -> None:
        """Raises MessageError for work that is to begin after its deadline."""
        begins, deadline = self.head.header.get("not_before"), self.head.header.get("deadline")
        if "repeat" not in self.head.header and (own := [n for n in ("missed", "overlap") if n in self.head.header]):
            self._fail("bad-repeat", own[0], "it says nothing without `repeat`", REPEATED_AS)
        if deadline is not None and "repeat" in self.head.header:
            key = self.head.written.get("deadline", "deadline")
            hint = "Remove the line; `timeout` limits each turn."
            self._fail("bad-repeat", key, "every run would have this one deadline", hint)
        if isinstance(begins, str) and isinstance(deadline, str) and begins >= deadline and self.place.calendar:
            key = self.head.written.get("not_before", "not_before")
            problem = f"it is to begin at {self._told(begins)}, and its deadline is {self._told(deadline)}"
            self._fail("past-deadline", key, problem, "Write a later deadline, or an earlier beginning.")

    def _stop(self, key: str, value: Yaml, odd: tuple[int, str] | None) -> NoReturn:
        plain = spelled(skeleton(key))
        near = KEYS.get(plain, plain) if odd and plain in {*KEYS, *self.known} else ""
        near = near or meant(key, {*self.known, *_READERS}) or meant(key, KEYS)
        problem = f"{excerpt(key)} may be meant as a limit, an order or an approval, and is none that is known here"
        if foreign(key) == "repeat":
            problem = f"{excerpt(key)} says that it is repeated, in a word that is not read here"
        if odd:
            at, letter = odd
            problem = f"letter {at} of the key {excerpt(key)} is {letter.title()}, which only looks like another"
        hint = f"Did you mean `{near}`?" if near and not foreign(key) else instead(key, value)
        hint = f"{hint} Correct or remove the line and send it again; nothing has started.".lstrip()
        self._fail("unknown-field", key, problem, hint)

    def _doubt_unknown(self) -> None:
        free = [name for name in self.known if name not in self.head.header]
        near = near_misses((key for key in self.unknown if spelled(key) not in BOOKKEEPING), free)
        for key, value in self.unknown.items():
            self.head.header[key] = value
            if key in near:
                self.head.doubts.append(f"unknown header {excerpt(key)}; did you mean {near[key]}?")
            elif self.by_person and spelled(key) not in BOOKKEEPING and value not in ("", [], {}):
                self.head.doubts.append(f"unknown header {excerpt(key)} is kept and has no effect")

    def _listed(self, key: str, value: Yaml, nothing: frozenset[str] = _NOTHING) -> tuple[str, ...]:
        """The names in a list, or on one line with commas; `#12` and `[[note]]` without their marks. Words of `nothing`
        are no names."""
        items = value if isinstance(value, list) else value.split(",") if isinstance(value, str) else None
        if items is None or not all(isinstance(item, str) for item in items) or len(items) > _MOST_NAMES:
            self._fail("wrong-type", key, "this is not a list of names", f"Write `{key}: [one, two]`.")
        names = (storable_line(str(item)).strip() for item in items)
        bare = (_LINKED.sub(lambda link: link[1] or link[2], name).removeprefix("@").strip() for name in names)
        return tuple(dict.fromkeys(name for name in bare if name.casefold() not in nothing))


class _InPart(Exception):
    """A time is read by the protocol's rules with a doubt: the calendar knows better."""


def _strict(_: str) -> None:
    raise _InPart


_READERS: dict[str, Callable[[_HeadReader, str, Yaml], None]] = {
    "status": _HeadReader._status,
    **dict.fromkeys(("done", "completed", "closed", "finished", "archived"), _HeadReader._done),
    **dict.fromkeys(("cancelled", "canceled", "wontfix"), _HeadReader._done),
    **dict.fromkeys(("draft", "on_hold", "paused", "deferred", "postponed", "disabled"), _HeadReader._held),
    **dict.fromkeys(("ready", "active", "enabled"), _HeadReader._ready),
    "priority": _HeadReader._priority,
    "deadline": _HeadReader._deadline,
    "not_before": _HeadReader._not_before,
    "repeat": _HeadReader._repeat,
    "agent": _HeadReader._agent,
    "reviewers": _HeadReader._reviewers,
    "depends_on": _HeadReader._depends_on,
    "needs": _HeadReader._depends_on,
    "labels": _HeadReader._labels,
    "from": _HeadReader._from,
    **dict.fromkeys(("author", "created_by", "reporter", "reported_by", "requested_by"), _HeadReader._author),
    "to": _HeadReader._to,
    "id": _HeadReader._id,
    **dict.fromkeys(_TEXTS, _HeadReader._text),
    **dict.fromkeys(_LIMITS, _HeadReader._limit),
    "budget": _HeadReader._budget,
}
