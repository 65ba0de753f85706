"""Limits and priorities in the words of people: `30 min`, `$5`, `20k tokens`, `high`.

What has no unit, or another one than is meant here, is refused and never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from mailboxd.core.sanitize import excerpt
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.words import PRIORITIES, spelled

_SECONDS = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600}
_SECONDS |= {"d": 86_400, "day": 86_400}
_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([a-z]{1,7}?)s?(?:,? (?:and )?|(?=[0-9])|$)")
_DOLLARS = re.compile(r"(?:usd ?|us\$ ?|\$ ?)?([0-9]{1,12}(?:\.[0-9]{1,9})?) ?(?:\$|usd|us dollars?|dollars?)?")
_IN_DOLLARS = re.compile(r"\$|usd|dollar")
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")
_TOKENS = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)( ?[km])? ?(tokens?)?")
_TIMES = re.compile(r"([0-9]{1,9}) ?(?:x|times|attempts?|tries)")
_SIGNS = {"🔺": "highest", "⏫": "high", "🔼": "medium", "🔽": "low", "⏬": "lowest"}
"""Of Obsidian's tasks."""
_GRADES = {"p0": "urgent", "p1": "high", "p2": "normal", "p3": "low", "p4": "lowest"}


def _said(text: str) -> str:
    return " ".join(text.split()).casefold()


def seconds(text: str) -> str:
    """A duration as a number of seconds: `90s`, `30 min`, `1h 30m`, `2 hours`. Other text is returned as it is."""
    said, total, at = _said(text), 0.0, 0
    while at < len(said):
        part = _TIME.match(said, at)
        if part is None or part[2] not in _SECONDS:
            return text
        total, at = total + float(part[1]) * _SECONDS[part[2]], part.end()
    return str(int(total)) if total and total == int(total) else text


def dollars(text: str) -> str:
    """An amount in dollars without its unit: `$5`, `5 USD`, `5 dollars`. Other text is returned as it is."""
    amount = _DOLLARS.fullmatch(_said(text))
    return amount[1] if amount else text


def tokens(text: str) -> str:
    """A number of tokens: `20000 tokens`, `20k`. Other text is returned as it is."""
    found = _TOKENS.fullmatch(_said(text))
    if found is None:
        return text
    number = float(found[1]) * {"": 1, "k": 1000, "m": 1_000_000}[(found[2] or "").strip()]
    return str(int(number)) if number == int(number) else text


def times(text: str) -> str:
    """A number of attempts: `3 attempts`, `3x`. Other text is returned as it is."""
    found = _TIMES.fullmatch(_said(text))
    return found[1] if found else text


LIMITS: Mapping[str, Callable[[str], str]] = {
    "timeout": seconds,
    "budget_usd": dollars,
    "budget_tokens": tokens,
    "max_attempts": times,
}
"""How each limit is read; what is none of its words stays as it is, for the strict reader to refuse."""


def number_in(header: str, text: str) -> str:
    """The value of `header` as a number, if `text` is one in words or with a unit; else `text`."""
    if header == "priority":
        number = priority(text)
        return text if number is None else str(number)
    return LIMITS.get(header, str)(text)


def budget(text: str) -> tuple[str, str]:
    """What a budget limits, `budget_usd` or `budget_tokens`, and how much. Raises MessageError(`wrong-type`)."""
    said = _said(text)
    if _IN_DOLLARS.search(said) and _DOLLARS.fullmatch(said):
        return "budget_usd", dollars(text)
    if "token" in said and _TOKENS.fullmatch(said):
        return "budget_tokens", tokens(text)
    bare = _NUMBER.match(said)
    problem = f"{excerpt(text)} could be dollars or tokens"
    if bare is None or bare.end() < len(said):
        problem = f"{excerpt(text)} is neither an amount in US dollars nor a number of tokens"
    hint = f"Write `budget_usd: {bare[0] if bare else 5}`, in US dollars, or `budget_tokens: 50000`."
    raise MessageError("wrong-type", problem, hint)


def priority(text: str) -> int | None:
    """The number that stands for a word like `high` or `P1`; None if it is none of them."""
    words = "".join(one if one.isalnum() or one in " _-" else " " for one in text)
    word = _SIGNS.get(text.strip()) or spelled(words)
    return PRIORITIES.get(_GRADES.get(word, word))
