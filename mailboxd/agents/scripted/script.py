"""The script: which agents there are and what each of them does. Format: docs/scripted-agent.md."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from mailboxd.agents.scripted.ledger import Entry
from mailboxd.agents.scripted.message import Message

_TOP_KEYS = frozenset({"agents", "ledger", "gateway"})
_AGENT_KEYS = frozenset({"workspace", "mailbox", "allow", "name", "default", "rules"})
_RULE_KEYS = frozenset({"match", "delay", "hang", "times", "writes", "lose_reply", "reply", "reply_file", "plan"}) | {
    "question",
    "fail",
    "garbage",
    "late_reply",
    "cost",
}
_MATCH_KEYS = frozenset({"kind", "task", "subtask", "attempt", "from", "text"})
_DEFAULT = {"reply": "[scripted] {title}: done."}


class ScriptError(Exception):
    """The script cannot be used; the text says where and why."""


class Agent:
    """One agent of the script."""

    def __init__(self, id_: str, settings: dict[str, Any], base: Path, *, first: bool) -> None:
        _known(settings, _AGENT_KEYS, f"agents.{id_}")
        self.id = id_
        self.name = str(settings.get("name", ""))
        self.is_default = first
        self.workspace = base / str(settings["workspace"]) if "workspace" in settings else None
        self.has_mailbox = settings.get("mailbox") == "true"
        self.allow = settings.get("allow")
        self.rules = [_rule(rule, f"agents.{id_}.rules[{n}]") for n, rule in enumerate(settings.get("rules") or [])]
        self.default = _rule(settings.get("default", _DEFAULT), f"agents.{id_}.default")

    @property
    def inbox(self) -> Path:
        """Where its mail goes. Raises ScriptError if it has no workspace."""
        if self.workspace is None:
            raise ScriptError(f"agents.{self.id}: a mailbox needs a `workspace`")
        return self.workspace / "mailbox" / "inbox"

    @property
    def counts(self) -> bool:
        """Whether a choice depends on how often a rule was used before."""
        return any("times" in rule for rule in self.rules)

    def choose(self, message: Message, earlier: list[Entry]) -> tuple[int, dict[str, Any]]:
        """The first rule that matches and is not used up, with its number; the default rule is -1."""
        used = [entry.get("rule") for entry in earlier if entry["event"] == "begin" and entry.get("agent") == self.id]
        for number, rule in enumerate(self.rules):
            if used.count(number) < float(rule.get("times", len(used) + 1)) and _matches(rule.get("match"), message):
                return number, rule
        return -1, self.default


class Script:
    """The file at `path`, read. Raises ScriptError."""

    def __init__(self, path: Path, environ: Mapping[str, str] = os.environ) -> None:
        # Every scalar stays the text that stands there: `no`, `007` and `1e3` may be ids here too.
        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        try:
            content = yaml.load(path.read_bytes(), loader)  # noqa: S506 - a base loader makes nothing but text
        except (OSError, yaml.YAMLError) as problem:
            raise ScriptError(f"{path}: {problem}") from problem
        if not isinstance(content, dict) or not isinstance(content.get("agents"), dict):
            raise ScriptError(f"{path}: must be a mapping with `agents:`")
        _known(content, _TOP_KEYS, str(path))
        self.path = path.resolve()
        self.base = self.path.parent
        self.agents = [
            Agent(str(id_), settings or {}, self.base, first=n == 0)
            for n, (id_, settings) in enumerate(content["agents"].items())
        ]
        self.gateway = content.get("gateway")
        ledger = environ.get("MAILBOXD_SCRIPT_LEDGER") or content.get("ledger") or f"{path.name}.ledger.jsonl"
        self.ledger = self.base / str(ledger)

    def agent(self, id_: str) -> Agent | None:
        """The agent of that id, case-insensitively as in OpenClaw."""
        return next((agent for agent in self.agents if agent.id.lower() == id_.lower()), None)


def number(settings: dict[str, Any], name: str, where: str) -> float:
    """The number `settings` gives under `name`, 0 if none. Raises ScriptError."""
    try:
        return float(settings.get(name, 0))
    except (TypeError, ValueError):
        raise ScriptError(f"{where}.{name}: must be a number") from None


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
