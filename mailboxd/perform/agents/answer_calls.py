"""Which call of an answer tool counts: what the plugin has kept on disk, compared with the run's own record. Pure.

The plugin's file alone proves nothing: an agent with a shell can write the file of another's review. What it cannot
write is a tool call in the session of that review. So a call counts if the transcript, since the turn's prompt, holds
one of the same tool with the same arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mailboxd.core.vocabulary import ANSWER_TOOLS
from mailboxd.perform.agents.json_output import at, count, parse_text, text, text_at

_PROMPT = "[mailboxd] "
"""In the beginning of every prompt of ours; OpenClaw may put a time before it."""
_BEGINNING = 200
MAX_REFUSALS = 5
"""Refused calls in one turn after which its attempt fails: OpenClaw has no bound."""
_MOST_PROBLEMS = 20
_DEEPEST = 100
"""Levels of a call's arguments; the plugin refuses deeper ones, and comparing them would end in a RecursionError."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of one of the tools."""

    tool: str
    arguments: Mapping[str, Any]

    @property
    def key(self) -> object:
        """Equal for calls that say the same: OpenClaw may have turned a number into a text or the other way round."""
        return self.tool, _plain(self.arguments)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the plugin says that it has taken, the first call first; or how often it has refused, and why."""

    calls: tuple[ToolCall, ...] = ()
    refusals: int = 0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Submitted:
    """The answer that counts. `beside`: what the agent said in words; `other`: a second call of the same reply."""

    call: ToolCall
    beside: str = ""
    other: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class RefusedTooOften:
    """The plugin has refused too many calls of this turn."""

    problems: tuple[str, ...]


def parse_claim(raw: bytes, token: str) -> Claim | None:
    """The plugin's file about the turn with this token; None if it is about another, or no such file."""
    value = parse_text(raw)
    if text_at(value, "token") != token:
        return None
    said, problems = at(value, "calls"), at(value, "problems")
    calls = tuple(filter(None, map(_call, said))) if isinstance(said, list) else ()
    why = tuple(map(text, problems))[:_MOST_PROBLEMS] if isinstance(problems, list) else ()
    claim = Claim(calls, count(at(value, "refusals")) or 0, why)
    return claim if claim.calls or claim.refusals else None


def prove(claim: Claim, messages: Sequence[object]) -> Submitted | RefusedTooOften | None:
    """What of a claim the transcript proves; None: nothing."""
    rows = list(_since_prompt(messages))
    made = [[call for part in _parts(row, "toolCall") if (call := _call(part)) is not None] for row in rows]
    for said in claim.calls:
        for reply in made:
            found = next((call for call in reply if call.key == said.key), None)
            if found is None:
                continue
            taken = {one.key for one in claim.calls}
            other = next((call for call in reply if call.key in taken and call.key != found.key), None)
            beside = "\n\n".join(text_at(part, "text").strip() for row in rows for part in _parts(row, "text"))
            return Submitted(found, beside.strip(), other)
    if claim.refusals >= MAX_REFUSALS and not claim.calls and sum(map(len, made)) >= MAX_REFUSALS:
        return RefusedTooOften(claim.problems)
    return None


def _since_prompt(messages: Sequence[object]) -> Iterator[object]:
    """The agent's own messages since the latest prompt of ours."""
    start = 0
    for number, message in enumerate(messages):
        if at(message, "role") == "user" and _PROMPT in _text_of(message)[:_BEGINNING]:
            start = number
    return (one for one in messages[start:] if at(one, "role") == "assistant")


def _text_of(message: object) -> str:
    content = at(message, "content")
    return text(content) if isinstance(content, str) else "".join(text_at(part, "text") for part in _parts(message))


def _parts(message: object, kind: str = "") -> list[object]:
    content = at(message, "content")
    parts = content if isinstance(content, list) else []
    return [part for part in parts if not kind or at(part, "type") == kind]


def _call(value: object) -> ToolCall | None:
    name, arguments = text_at(value, "name"), at(value, "arguments")
    if name not in ANSWER_TOOLS or not isinstance(arguments, dict) or _is_too_deep(arguments):
        return None
    return ToolCall(name, arguments)


def _is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            item
            for one in level
            if isinstance(one, dict | list)
            for item in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _plain(value: object) -> object:
    """A value as nested tuples of text."""
    if isinstance(value, dict):
        return tuple(sorted((str(key), _plain(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("list", *map(_plain, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
