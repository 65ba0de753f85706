"""The script of the agents (docs/scripted-agent.md), the messages that it matches, and the ledger of calls."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mailboxd.errors import MessageError
from mailboxd.formats.protocol.strict_yaml import load
from mailboxd.host.clock import SystemClock
from mailboxd.host.system import system

# Messages, parsed leniently

_HEADER_LINE = re.compile(r"\[mailboxd\] (\S[^·\n]*?) turn · task (\S+) · attempt (\d+)")
_FRONT_MATTER = re.compile(r"---\r?\n(.*?\r?\n)---[ \t]*\r?(?:\n|\Z)", re.DOTALL)
_KEY = re.compile(r"([A-Za-z_]\w*):[ \t]*(.*)")
_TASK = re.compile(r"^# Task: *(.+)$", re.MULTILINE)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_SECTION = re.compile(r"^## +(.+?) *\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_DECIDES = re.compile(
    r"^\*\*Result\.\*\* Declare your answer: what follows depends on whether it is (.+)\.$", re.MULTILINE
)
_ASKED_AGAIN = re.compile(r"^Your last answer was not taken", re.MULTILINE)


class Message:
    """A message as an agent receives it: mailboxd's first line, the front matter of a protocol message, or both."""

    def __init__(self, text: str) -> None:
        self.text = text
        first = _HEADER_LINE.match(text)
        rest = text[first.end() :].lstrip() if first else text
        front = _FRONT_MATTER.match(rest)
        self.headers = dict(_headers(front[1])) if front else {}
        self.envelope = rest if self.headers.get("type") else ""
        """The protocol message in it, from the front matter on; empty if there is none."""
        task, subtask = self.headers.get("task_id", ""), self.headers.get("subtask_id", "")
        self.local_id = first[2] if first else f"{task}.{subtask}" if subtask else task
        self.kind = first[1] if first else self.headers.get("type", "")
        self.attempt = first[3] if first else self.headers.get("attempt", "")
        self.task_id = task or self.local_id
        self.subtask_id = subtask

    def values(self) -> dict[str, str]:
        """The values for `{name}` in a reply: headers, sections (`{expected_output}`) and a few more."""
        sections = {_slug(found[1]): found[2].strip() for found in _SECTION.finditer(self.text)}
        title = _TASK.search(self.text) or _TITLE.search(self.text)
        known = {"task_id": self.task_id, "subtask_id": self.subtask_id, "local_id": self.local_id}
        known |= {"kind": self.kind, "attempt": self.attempt, "title": title[1].strip() if title else ""}
        return {**sections, **self.headers, **known}

    @property
    def answers(self) -> tuple[str, ...]:
        """The answers of which one has to be declared."""
        if asked := _DECIDES.search(self.text):
            return tuple(asked[1].split(" or "))
        return tuple(filter(None, re.split(r"[\[\], ]+", self.headers.get("answers", ""))))

    @property
    def asks_again(self) -> bool:
        """Whether the last answer in the session was not taken."""
        return _ASKED_AGAIN.search(self.text) is not None

    def fill(self, text: str) -> str:
        """`text` with known `{names}` replaced, each once; other braces are kept."""
        values = self.values()
        return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def _headers(block: str) -> list[tuple[str, str]]:
    found = [_KEY.match(line) for line in block.splitlines()]
    return [(key[1], key[2].strip().strip("'\"")) for key in found if key]


def _slug(heading: str) -> str:
    return re.sub(r"\W+", "_", heading.strip().lower())


# The ledger: independent evidence of what was executed, one JSON line per call begun or ended. Lines
# are appended under a lock and survive a kill of any process, but not a power failure.

Entry = dict[str, Any]


class Ledger:
    """The ledger at `path`, empty if the file is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Entry]:
        """All entries in order, without lines that a kill truncated."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return []
        return [entry for line in raw.splitlines() if (entry := _entry(line)) is not None]

    def begin(self, entry: Callable[[], Entry]) -> Entry:
        """Append what `entry` returns, under the lock, so that it may count earlier entries."""
        with self._locked() as descriptor:
            line = {"event": "begin", "at": SystemClock().now(), "pid": os.getpid(), **_started(os.getpid()), **entry()}
            _append(descriptor, line)
        return line

    def append(self, event: str, **fields: object) -> None:
        """Append one line."""
        with self._locked() as descriptor:
            _append(descriptor, {"event": event, "at": SystemClock().now(), **fields})

    @contextmanager
    def _locked(self) -> Iterator[int]:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


class Run:
    """The lines of one accepted call."""

    def __init__(self, begin: Entry, end: Entry | None) -> None:
        self.begin = begin
        self.end = end

    @property
    def id(self) -> str:
        return str(self.begin["run_id"])

    @property
    def status(self) -> str:
        """`running` while its process lives, `lost` if it died without recording its end, else the recorded status."""
        if self.end is not None:
            return str(self.end["status"])
        pid = self.begin["pid"]
        return "running" if _started(pid) == {"pid_start": self.begin.get("pid_start")} else "lost"

    @property
    def reply(self) -> str | None:
        return self._said("reply")

    @property
    def meant(self) -> str | None:
        """The reply in the form as asked, if it was evaded."""
        return self._said("meant")

    def _said(self, name: str) -> str | None:
        text = None if self.end is None else self.end.get(name)
        return text if isinstance(text, str) else None


def runs(entries: list[Entry]) -> list[Run]:
    """The accepted calls, in the order in which they began."""
    ends = {entry.get("run_id"): entry for entry in entries if entry["event"] == "end"}
    begun = [entry for entry in entries if entry["event"] == "begin" and entry["accepted"]]
    return [Run(entry, ends.get(entry["run_id"])) for entry in begun]


def _append(descriptor: int, entry: Entry) -> None:
    line = json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    size = os.fstat(descriptor).st_size
    # start a new line after one that a kill truncated
    torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    os.write(descriptor, b"\n" + line if torn else line)


def _entry(line: bytes) -> Entry | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "event" in entry else None


def _started(pid: int) -> Entry:
    started = system.start_time(pid)
    return {} if started is None else {"pid_start": started}


# The script

_MOST_EVENTS = 1_000_000
"""Enough for a plan of 10,000 children."""
_TOP_KEYS = frozenset({"agents", "ledger", "gateway", "dialect", "seed"})
_AGENT_KEYS = frozenset({"workspace", "mailbox", "allow", "name", "default", "rules", "dialect"})
_RULE_KEYS = frozenset({"match", "delay", "hang", "times", "writes", "lose_reply", "reply", "plan"}) | {
    "question",
    "fail",
    "garbage",
    "late_reply",
    "cost",
}
_MATCH_KEYS = frozenset({"kind", "task", "subtask", "attempt", "from", "text"})
_DEFAULT = {"reply": "[scripted] {title}: done."}


class ScriptError(Exception):
    """The script is invalid; the text says where and why."""


class Agent:
    """One agent of the script."""

    def __init__(self, id_: str, settings: dict[str, Any], base: Path, *, first: bool) -> None:
        _known(settings, _AGENT_KEYS, f"agents.{id_}")
        self.id = id_
        self.name = str(settings.get("name", ""))
        self.is_default = first
        self.workspace = base / str(settings["workspace"]) if "workspace" in settings else None
        self._mailbox = settings.get("mailbox")
        self.allow = settings.get("allow")
        self.dialect = _dialect(settings, f"agents.{id_}")
        self.rules = [_rule(rule, f"agents.{id_}.rules[{n}]") for n, rule in enumerate(settings.get("rules") or [])]
        self.default = _rule(settings.get("default", _DEFAULT), f"agents.{id_}.default")

    @property
    def has_mailbox(self) -> bool:
        """Whether its mailbox takes messages. Unless the script says so: whether mailboxd has set one up, since the
        plugin of a gateway serves all of these.
        """
        if self._mailbox is not None:
            return bool(self._mailbox == "true")
        return self.workspace is not None and (self.workspace / ".mailboxd").is_dir()

    @property
    def inbox(self) -> Path:
        """Its mailbox. Raises ScriptError if it has no workspace."""
        if self.workspace is None:
            raise ScriptError(f"agents.{self.id}: a mailbox needs a `workspace`")
        return self.workspace / "mailbox" / "inbox"

    @property
    def counts(self) -> bool:
        """Whether a rule's use is limited (`times`)."""
        return any("times" in rule for rule in self.rules)

    def choose(self, message: Message, earlier: list[Entry]) -> tuple[int, dict[str, Any]]:
        """The first matching rule that is not used up, with its number; -1 for the default rule."""
        used = [entry.get("rule") for entry in earlier if entry["event"] == "begin" and entry.get("agent") == self.id]
        for number, rule in enumerate(self.rules):
            if used.count(number) < float(rule.get("times", len(used) + 1)) and _matches(rule.get("match"), message):
                return number, rule
        return -1, self.default


class Script:
    """The script at `path`. Raises ScriptError."""

    def __init__(self, path: Path) -> None:
        # scalars stay text: `no`, `007` and `1e3` may be ids
        try:
            content: Any = load(
                path.read_text("utf-8-sig"), path=str(path), max_events=_MOST_EVENTS, max_depth=64
            ).value
        except MessageError as problem:
            raise ScriptError(str(problem)) from problem
        except (OSError, UnicodeDecodeError) as problem:
            raise ScriptError(f"{path}: {problem}") from problem
        if not isinstance(content, dict) or not isinstance(content.get("agents"), dict):
            raise ScriptError(f"{path}: must be a mapping with `agents:`")
        _known(content, _TOP_KEYS, str(path))
        self.path = path.resolve()
        self.agents = [
            Agent(str(id_), settings or {}, self.path.parent, first=n == 0)
            for n, (id_, settings) in enumerate(content["agents"].items())
        ]
        self.gateway = content.get("gateway")
        self.dialect = _dialect(content, str(path))
        self.seed = str(content.get("seed", ""))
        self.ledger = path.parent / str(content.get("ledger") or f"{path.name}.ledger.jsonl")

    def agent(self, id_: str) -> Agent | None:
        """The agent of that id, case-insensitively as in OpenClaw."""
        return next((agent for agent in self.agents if agent.id.lower() == id_.lower()), None)


def number(settings: dict[str, Any], name: str, where: str) -> float:
    """The number under `name` in `settings`, by default 0. Raises ScriptError."""
    try:
        return float(settings.get(name, 0))
    except (TypeError, ValueError):
        raise ScriptError(f"{where}.{name}: must be a number") from None


def _dialect(settings: dict[str, Any], where: str) -> str:
    name = str(settings.get("dialect", ""))
    if not name:
        return ""
    from mailboxd.perform.agents.scripted.dialects import names  # takes longer than the rest of a call

    if name not in (known := names()):
        raise ScriptError(f"{where}.dialect: {name} is unknown; known are {', '.join(known)}")
    return name


def _rule(rule: object, where: str) -> dict[str, Any]:
    if not isinstance(rule, dict):
        raise ScriptError(f"{where}: must be a mapping")
    _known(rule, _RULE_KEYS, where)
    for name in ("delay", "hang", "times", "cost"):
        number(rule, name, where)
    for name in ("plan", "writes", "late_reply"):
        if not isinstance(rule.get(name, {}), dict):
            raise ScriptError(f"{where}.{name}: must be a mapping")
    match = rule.get("match")
    for pattern in match.values() if isinstance(match, dict) else [match or ""]:
        try:
            re.compile(str(pattern))
        except re.error as problem:
            raise ScriptError(f"{where}.match: {problem}") from problem
    if isinstance(match, dict):
        _known(match, _MATCH_KEYS, f"{where}.match")
    return rule


def _known(settings: object, keys: frozenset[str], where: str) -> None:
    unknown = (
        sorted(str(key) for key in settings if key not in keys) if isinstance(settings, dict) else ["(no mapping)"]
    )
    if unknown:
        raise ScriptError(f"{where}: unknown {', '.join(unknown)}; known are {', '.join(sorted(keys))}")


def _matches(match: object, message: Message) -> bool:
    if match is None:
        return True
    if not isinstance(match, dict):
        return re.search(str(match), message.text) is not None
    return all(_matches_part(name, str(pattern), message) for name, pattern in match.items())


def _matches_part(name: str, pattern: str, message: Message) -> bool:
    if name == "text":
        return re.search(pattern, message.text) is not None
    values = {"kind": message.kind, "subtask": message.subtask_id, "attempt": message.attempt}
    values["from"] = message.headers.get("from", "")
    whole = (message.local_id, message.task_id) if name == "task" else (values[name],)
    return any(re.fullmatch(pattern, value) is not None for value in whole)
