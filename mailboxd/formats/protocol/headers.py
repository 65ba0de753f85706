"""The values of headers: one converter per header from YAML text to a typed value.

A converter raises MessageError with rule, problem and hint (`bad-id`, `bad-time`, `wrong-type` with the expected
spelling, `field-range`); its caller adds file, line and field. It calls `warn` for small mistakes that it accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, NoReturn

from mailboxd.core.model import NO_OVERRIDES, Finding, GivenVerdict, Overrides
from mailboxd.core.repetition import Missed
from mailboxd.core.sanitize import excerpt, storable_line, storable_text
from mailboxd.core.times import to_text
from mailboxd.core.vocabulary import ADDRESS, MODEL, Gate, Join, Runtime, Verdict, is_agent, is_id
from mailboxd.errors import MessageError
from mailboxd.formats.protocol.findings import in_header
from mailboxd.formats.protocol.repeats import read_repeat
from mailboxd.formats.protocol.strict_yaml import Path, Yaml
from mailboxd.formats.protocol.words import STATUS, VERDICTS, spelled

Warn = Callable[[str], None]
Convert = Callable[[Yaml, Warn], Any]

RANGES = {
    "attempt": (1, 10_000),
    "depth": (0, 1_000),
    "priority": (-100, 100),
    "max_attempts": (1, 100),
    "timeout": (1, 604_800),
    "budget_tokens": (0, 1_000_000_000),
    "usage_tokens": (0, 1_000_000_000),
}
"""Lowest and highest value of each whole number; `timeout` is in seconds."""
MAX_BUDGET = 1_000_000_000.0
MAX_NAMES = 100
MAX_ANSWER = 4096
MAX_ANSWERS = 20
MAX_ALLOWED = 100
"""Characters of an answer that is allowed."""
TOKEN = re.compile(r"[\x21-\x7e]{1,256}")
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
PROTOCOL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
LABEL = re.compile(r"[^\W_](?:[\w.:/+-]|[ &](?=\S)){0,63}")
REFERENCE = re.compile(r"\S(?:.{0,198}\S)?")
"""The id or title of a task, or the name of the file that brought it."""
STEP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}:[0-9a-f]{16}")
"""An ancestor's agent and a digest of its goal: `core.plans.step`."""
ADDRESS_OF_WORK = re.compile(r"[!-~]{1,220}")
"""The id of a task, or of a run."""
ENDING = re.compile(r"\.[a-z0-9]{1,8}")
ATTACHMENT = re.compile(rf"[0-9a-f]{{64}}(?:{ENDING.pattern})?")
SIGNATURE = re.compile(r"ed25519:[0-9a-f]{32}:[A-Za-z0-9_-]{86}")
"""The key's fingerprint, and the signature in base64url without padding."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MONEY = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|z|[+-][0-9]{2}:[0-9]{2})?)?"
)


def text_of(value: Yaml, expected: str) -> str:
    """`value` if it is text. Raises MessageError(`wrong-type`) that names what is `expected`."""
    if isinstance(value, str):
        return value
    found = "a list" if isinstance(value, list) else "a mapping"
    raise MessageError("wrong-type", f"this is {found}", f"Expected: {expected}.")


def identifier(value: Yaml, _: Warn) -> str:
    """An id, byte for byte (protocol section 2, "Ids")."""
    text = text_of(value, "an id")
    if not is_id(text):
        hint = "1 to 128 characters of A-Z a-z 0-9 . _ -, not starting with . or -, without `..`."
        raise MessageError("bad-id", f"{excerpt(text)} is not an id", hint)
    return text


def agent(value: Yaml, warn: Warn) -> str:
    """An agent's id, or a pool."""
    text = text_of(value, "an id")
    return text if is_agent(text) else identifier(text, warn)


def time(value: Yaml, warn: Warn) -> str:
    """An RFC 3339 time as UTC with milliseconds. A time without an offset is UTC, with a warning."""
    text = text_of(value, "a time")
    match = _TIME.fullmatch(text)
    hint = "Expected: RFC 3339, like 2026-11-21T02:07:53Z."
    if match is None:
        raise MessageError("bad-time", f"{excerpt(text)} is not a time", hint)
    day, clock, fraction, zone = match.groups()
    if zone is None:
        warn(f"{excerpt(text)} has no offset; UTC is assumed")
    try:
        time_text = f"{day}T{clock or '00:00:00'}.{(fraction or '')[:6]:0<6}{(zone or 'Z').upper()}"
        return to_text(datetime.fromisoformat(time_text).timestamp())
    except ValueError:
        raise MessageError("bad-time", f"{excerpt(text)} is not a valid time", hint) from None


def repeat(value: Yaml, _: Warn) -> str:
    """How work is repeated, as it is written: see `protocol.repeats`."""
    text = " ".join(storable_line(text_of(value, "how it is repeated")).split())
    read_repeat(text)
    return text


def integer(low: int, high: int) -> Convert:
    """A whole number from `low` to `high`, in decimal digits."""

    def convert(value: Yaml, _: Warn) -> int:
        expected = f"a whole number from {low} to {high}"
        text = text_of(value, expected)
        if not _INTEGER.fullmatch(text):
            raise MessageError("wrong-type", f"{excerpt(text)} is not a number", f"Expected: {expected}.")
        # Shortened first: int() of thousands of digits is quadratic and raises ValueError.
        digits = text.lstrip("+-").lstrip("0")[:10] or "0"
        number = -int(digits) if text[0] == "-" else int(digits)
        if not low <= number <= high:
            raise MessageError("field-range", f"{excerpt(text)} is out of range", f"Expected: {expected}.")
        return number

    return convert


def boolean(value: Yaml, _: Warn) -> bool:
    """Exactly `true` or `false`."""
    text = text_of(value, "true or false")
    if text not in ("true", "false"):
        raise MessageError("wrong-type", f"{excerpt(text)} is neither true nor false", "Expected: true or false.")
    return text == "true"


def money(value: Yaml, _: Warn) -> float:
    """US dollars from 0 to 1,000,000,000, rounded to six places."""
    text = text_of(value, "an amount like 2.50")
    if not _MONEY.fullmatch(text):
        raise MessageError("wrong-type", f"{excerpt(text)} is not an amount", "Expected: US dollars, like 2.50.")
    amount = round(float(text[:400]), 6)
    if amount > MAX_BUDGET:
        raise MessageError("field-range", f"{excerpt(text)} is out of range", f"Expected: 0 to {MAX_BUDGET:.0f}.")
    return amount


def pattern(compiled: re.Pattern[str], expected: str) -> Convert:
    """Text that `compiled` matches completely."""

    def convert(value: Yaml, _: Warn) -> str:
        text = text_of(value, expected)
        if not compiled.fullmatch(text):
            raise MessageError("wrong-type", f"{excerpt(text)} has the wrong form", f"Expected: {expected}.")
        return text

    return convert


def choice(kind: Callable[[str], Any], choices: Iterable[str]) -> Convert:
    """One of the words `choices`, converted by `kind`."""
    words = tuple(choices)

    def convert(value: Yaml, _: Warn) -> Any:
        expected = " or ".join(words)
        text = text_of(value, expected)
        if text not in words:
            raise MessageError("wrong-type", f"{excerpt(text)} is not a valid value", f"Expected: {expected}.")
        return kind(text)

    return convert


def word(kind: Callable[[str], Any], choices: Iterable[str], meanings: Mapping[str, str]) -> Convert:
    """One of the words `choices`, or of those that mean one in answers too: `status: success`, `verdict: LGTM`."""
    strict = choice(kind, choices)

    def convert(value: Yaml, warn: Warn) -> Any:
        return strict(meanings.get(spelled(value), value) if isinstance(value, str) else value, warn)

    return convert


def names(item: Convert) -> Convert:
    """A list of at most 100 items, or one line separated by commas. `none` is the empty list."""

    def convert(value: Yaml, warn: Warn) -> tuple[Any, ...]:
        if isinstance(value, str):
            value = [] if value.strip() == "none" else [part.strip() for part in value.split(",", MAX_NAMES)]
        if isinstance(value, dict):
            raise MessageError("wrong-type", "this is a mapping", "Expected: a list, or names separated by commas.")
        if len(value) > MAX_NAMES:
            raise MessageError("field-range", f"there are more than {MAX_NAMES} entries", "Shorten the list.")
        return tuple(dict.fromkeys(item(part, warn) for part in value))

    return convert


def answer(value: Yaml, _: Warn) -> str:
    """The declared answer, at most 4096 characters."""
    text = storable_text(text_of(value, "one text"))
    if len(text) > MAX_ANSWER:
        raise MessageError("field-range", f"the answer is longer than {MAX_ANSWER} characters", "Shorten it.")
    return text


def answers(value: Yaml, _: Warn) -> tuple[str, ...]:
    """The answers that are allowed: 2 to 20, on one line each, in a list or separated by commas."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    found = [text_of(one, "answers like [yes, no]").strip() for one in value] if isinstance(value, list) else []
    if len({one.casefold() for one in found}) != len(found) or not 2 <= len(found) <= MAX_ANSWERS:
        problem = f"these are not 2 to {MAX_ANSWERS} different answers"
        raise MessageError("wrong-type", problem, "Write them like `answers: [yes, no]`.")
    for one in found:
        if not one or len(one) > MAX_ALLOWED or storable_line(one) != one:
            raise MessageError("wrong-type", f"{excerpt(one)} cannot be an answer", "Write a word, on one line.")
    return tuple(found)


def findings(value: Yaml, _: Warn) -> tuple[Finding, ...]:
    """Findings as in the answer of a review turn (`protocol.findings`)."""
    problems: list[str] = []
    found = in_header(value, problems)
    if problems:
        raise MessageError("wrong-type", problems[0], " ".join(problems[1:]))
    return found


def given_verdicts(value: Yaml, given_at: str) -> tuple[GivenVerdict, ...]:
    """The verdicts that a result was given at the gates of `given_at`: a list of mappings. Raises MessageError."""
    if not isinstance(value, list) or len(value) > MAX_NAMES:
        raise MessageError("wrong-type", f"this is no list of at most {MAX_NAMES} verdicts", "Leave it to mailboxd.")
    return tuple(_given_verdict(item, given_at) for item in value)


def handed_on(value: Yaml) -> tuple[str, ...]:
    """What a chain of hand-overs began with, and its steps, as `core.handovers.handed_on` has them. Raises
    MessageError.
    """
    if not isinstance(value, list) or len(value) > MAX_NAMES:
        raise MessageError("wrong-type", f"this is no list of at most {MAX_NAMES} steps", "Leave it to mailboxd.")
    kinds = (pattern(ADDRESS_OF_WORK, "the id of a task"), pattern(STEP, "steps like `agent:0123456789abcdef`"))
    return tuple(kinds[number > 0](one, _no_warning) for number, one in enumerate(value))


def _given_verdict(item: Yaml, given_at: str) -> GivenVerdict:
    if not isinstance(item, dict):
        raise MessageError("wrong-type", "a verdict is no mapping", "Leave it to mailboxd.")
    return GivenVerdict(
        choice(Gate, Gate)(item.get("gate", ""), _no_warning),
        identifier(item.get("reviewer", ""), _no_warning),
        choice(Verdict, Verdict)(item.get("verdict", ""), _no_warning),
        pattern(_SHA256, "the SHA-256 of the result")(item.get("sha256", ""), _no_warning),
        given_at,
        storable_text(text_of(item.get("summary", ""), "a summary")),
        findings(item.get("findings", []), _no_warning),
    )


CONVERTERS: dict[str, Convert] = {
    **dict.fromkeys(("task_id", "subtask_id", "from", "message_id", "in_reply_to", "attempt_id"), identifier),
    **dict.fromkeys(("root_task_id", "approval_id"), identifier),
    "to": agent,
    **dict.fromkeys(("deadline", "not_before", "sent_at", "completed_at"), time),
    "repeat": repeat,
    "missed": choice(Missed, Missed),
    "overlap": boolean,
    **{name: integer(low, high) for name, (low, high) in RANGES.items()},
    "protocol": pattern(PROTOCOL, "a version like 2"),
    "reply_token": pattern(TOKEN, "1 to 256 printable ASCII characters without spaces"),
    "traceparent": pattern(TRACEPARENT, "a W3C traceparent, 00-<32 hex>-<16 hex>-<2 hex>"),
    "delegation_path": names(pattern(STEP, "steps like `agent:0123456789abcdef`")),
    "gates": names(choice(Gate, Gate)),
    "reviewers": names(identifier),
    "attachments": names(pattern(ATTACHMENT, "SHA-256 digests, each with the ending of a file's name")),
    "labels": names(pattern(LABEL, "labels of 1 to 64 letters, digits, spaces and . _ : / + & -")),
    "agent": agent,
    "depends_on": names(pattern(REFERENCE, "ids or titles of tasks")),
    **dict.fromkeys(("idempotent", "background"), boolean),
    **dict.fromkeys(("budget_usd", "cost_usd"), money),
    "synthesis": identifier,
    "join": choice(Join, Join),
    "runtime": choice(Runtime, Runtime),
    "harness": identifier,
    "model": pattern(MODEL, "a model as in OpenClaw, like openai/gpt-5"),
    "reply_to": pattern(ADDRESS, "CHANNEL:TARGET or session:KEY, like telegram:@ann"),
    "status": word(str, ("done", "failed"), STATUS),
    "failure": choice(str, ("permanent", "transient")),
    "answer": answer,
    "answers": answers,
    "verdict": word(Verdict, Verdict, VERDICTS),
    "decision": choice(str, ("approved", "rejected", "request_changes")),
    "findings": findings,
    "signature": pattern(SIGNATURE, "ed25519:<fingerprint>:<signature>, as `mailboxd connect keys sign` writes it"),
}
"""The converter of each header, by its name in the file."""


# Values inside a YAML document, with errors that name their line and field.

OVERRIDES = tuple(field.name for field in fields(Overrides))
"""The headers that override the policy, named like the fields of `core.model.Overrides`."""
MAX_WORDS = 64
"""Words of a command."""
ID_RULE = "1 to 128 characters of A-Z a-z 0-9 . _ -, not starting with . or -, without `..`."


class Source:
    """Reads values of a YAML document; errors name the file, and the line by the path of the value."""

    def __init__(
        self, path: str, first_line: int, lines: Mapping[Path, int], plain: frozenset[Path] = frozenset()
    ) -> None:
        self._path, self._first_line, self._lines = path, first_line, lines
        self.plain = plain
        """The paths of unquoted scalars."""

    def fail(self, rule: str, problem: str, where: Path, hint: str = "") -> NoReturn:
        """Raise MessageError with the line of the value at `where`, or of the closest collection around it."""
        line = next((self._lines[where[:n]] for n in range(len(where), -1, -1) if where[:n] in self._lines), None)
        field = ".".join(storable_line(str(part)[:140]) for part in where)[:400] or None
        raise MessageError(rule, problem, hint, self._path, self._first_line if line is None else line, field)

    def mapping(self, value: Yaml, where: Path) -> dict[str, Yaml]:
        if value == "":
            return {}
        if not isinstance(value, dict):
            self.fail("wrong-type", "this is not a mapping", where, "Write `name: value` lines.")
        return value

    def text(self, value: Yaml, where: Path) -> str:
        if not isinstance(value, str):
            self.fail("wrong-type", "this is not text", where, "Put it into quotes or a `|` block.")
        return value

    def names(self, value: Yaml, where: Path, fits: Callable[[str], bool] = is_id) -> tuple[str, ...]:
        """A list of ids, or ids separated by commas."""
        items = value if isinstance(value, list) else [part.strip() for part in self.text(value, where).split(",")]
        names = tuple(self.text(item, where) for item in items if item != "")
        for name in names:
            if not fits(name):
                self.fail("bad-id", f"{excerpt(name)} is not an id", where, ID_RULE)
        return names

    def command(self, value: Yaml, where: Path, rule: str, what: str, example: str) -> tuple[str, ...]:
        """The words of a command. Anything else is refused by `rule`."""
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_WORDS:
            hint = f"Write 1 to {MAX_WORDS} words, like {example}; no shell is used."
            self.fail(rule, f"{what} is not a list of words", where, hint)
        words = tuple(self.text(word, (*where, number)) for number, word in enumerate(value))
        if not words[0] or any("\0" in word for word in words):
            self.fail(rule, f"{what} does not name a program", where)
        return words

    def header(self, name: str, value: Yaml, where: Path) -> Any:
        """The value of the header `name` of protocol section 2."""
        return self.convert(CONVERTERS[name], value, where)

    def convert(self, converter: Convert, value: Yaml, where: Path) -> Any:
        """`converter` applied to the value; its errors get line and field."""
        try:
            return converter(value, _no_warning)
        except MessageError as error:
            self.fail(error.rule, error.problem, where, error.hint)

    def overrides(self, values: Mapping[str, Yaml], where: Path) -> Overrides:
        """The overrides among `values`. Other keys and empty values are ignored."""
        given = {name: values[name] for name in OVERRIDES if values.get(name, "") != ""}
        if not given:
            return NO_OVERRIDES
        typed = {name: self.header(name, value, (*where, name)) for name, value in given.items()}
        if "gates" in typed:
            typed["gates"] = frozenset(typed["gates"])
        return Overrides(**typed)


_MAX_NEAR = 20
_MAX_NEAR_LENGTH = 40


def near_misses(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Those of the unknown `names` that are probably a misspelling of one of `known`, each with that one."""
    from difflib import get_close_matches

    # Limited, because difflib takes about 50 us per pair of words and there may be a thousand keys.
    some = [name for name in names if len(name) <= _MAX_NEAR_LENGTH][:_MAX_NEAR]
    words = list(known) if some else []
    found = {name: get_close_matches(name.casefold(), words, n=1, cutoff=0.75) for name in some}
    return {name: match[0] for name, match in found.items() if match}


def _no_warning(_: str) -> None:
    """For values that have no place for warnings, such as a time without an offset in a plan."""


def override_headers(overrides: Overrides) -> dict[str, object]:
    """`overrides` as headers, in the types of `strict_yaml.value_text`; `Source.overrides` reads them back."""
    if overrides is NO_OVERRIDES or overrides == NO_OVERRIDES:
        return {}
    headers = {name: value for name in OVERRIDES if (value := getattr(overrides, name)) is not None}
    if "gates" in headers:
        headers["gates"] = sorted(headers["gates"])
    return headers
