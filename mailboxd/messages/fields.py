"""Values inside a YAML structure of texts, read one by one; every refusal names its line and field.

What a header may be stands in `headers.CONVERTERS`; here are the headers that a child of a plan, or a task.md, may
carry to override its policy (protocol sections 2 and 3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, NoReturn

from mailboxd.core.terms import is_id
from mailboxd.core.types import Overrides
from mailboxd.errors import MessageError
from mailboxd.messages.headers import CONVERTERS, Convert
from mailboxd.messages.quoting import excerpt
from mailboxd.messages.text import one_line
from mailboxd.messages.yaml_events import Path, Yaml
from mailboxd.messages.yaml_text import flow

OVERRIDES = tuple(field.name for field in fields(Overrides))
"""The headers of `core.types.Overrides`; each is named as its field."""
NOTHING_SAID = Overrides()
MOST_WORDS = 64
"""Of a command."""
ID_RULE = "1 to 128 characters of A-Z a-z 0-9 . _ -, not starting with . or -, without `..`."


class Source:
    """Where the values come from: a file, the line its YAML begins in, and the line of each value by its path."""

    def __init__(
        self, path: str, first_line: int, lines: Mapping[Path, int], plain: frozenset[Path] = frozenset()
    ) -> None:
        self._path, self._first_line, self._lines = path, first_line, lines
        self.plain = plain
        """The places of scalars without quotes."""

    def fail(self, rule: str, problem: str, where: Path, hint: str = "") -> NoReturn:
        """Raise MessageError for the value at `where`, or for what stands closest around it."""
        line = next((self._lines[where[:n]] for n in range(len(where), -1, -1) if where[:n] in self._lines), None)
        field = ".".join(one_line(str(part)[:140]) for part in where)[:400] or None
        raise MessageError(rule, problem, hint, self._path, self._first_line if line is None else line, field)

    def mapping(self, value: Yaml, where: Path) -> dict[str, Yaml]:
        if value == "":
            return {}
        if not isinstance(value, dict):
            self.fail("wrong-type", "this is not a mapping", where, "Write `name: value` lines.")
        return value

    def text(self, value: Yaml, where: Path) -> str:
        if not isinstance(value, str):
            self.fail("wrong-type", "this is not a text", where, "Put it into quotes or a `|` block.")
        return value

    def names(self, value: Yaml, where: Path) -> tuple[str, ...]:
        """A list of ids, or ids in one text between commas."""
        items = value if isinstance(value, list) else [part.strip() for part in self.text(value, where).split(",")]
        names = tuple(self.text(item, where) for item in items if item != "")
        for name in names:
            if not is_id(name):
                self.fail("bad-id", f"{excerpt(name)} is not an id", where, ID_RULE)
        return names

    def command(self, value: Yaml, where: Path, rule: str, what: str, example: str) -> tuple[str, ...]:
        """A command as its words; what is none is refused by `rule`."""
        if not isinstance(value, list) or not 1 <= len(value) <= MOST_WORDS:
            hint = f"Write 1 to {MOST_WORDS} words, like {example}; there is no shell."
            self.fail(rule, f"{what} is not a list of words", where, hint)
        words = tuple(self.text(word, (*where, number)) for number, word in enumerate(value))
        if not words[0] or any("\0" in word for word in words):
            self.fail(rule, f"{what} names no program", where)
        return words

    def header(self, name: str, value: Yaml, where: Path) -> Any:
        """The value of the header `name` of protocol section 2."""
        return self.convert(CONVERTERS[name], value, where)

    def convert(self, converter: Convert, value: Yaml, where: Path) -> Any:
        """The value that `converter` makes of a text; what it refuses is refused with its place."""
        try:
            return converter(value, _no_warning)
        except MessageError as error:
            self.fail(error.rule, error.problem, where, error.hint)

    def overrides(self, values: Mapping[str, Yaml], where: Path) -> Overrides:
        """What `values` say of the policy. Other keys are not looked at; an empty value says nothing."""
        said = {name: values[name] for name in OVERRIDES if values.get(name, "") != ""}
        if not said:
            return NOTHING_SAID
        typed = {name: self.header(name, value, (*where, name)) for name, value in said.items()}
        if "gates" in typed:
            typed["gates"] = frozenset(typed["gates"])
        return Overrides(**typed)


def _no_warning(_: str) -> None:
    """A time without an offset is taken as UTC here, as in a message; a plan has no place to say so."""


def override_items(overrides: Overrides) -> Iterator[tuple[str, str]]:
    """`overrides` as names and YAML text; `Source.overrides` reads them back."""
    if overrides == NOTHING_SAID:
        return
    for name in OVERRIDES:
        said = getattr(overrides, name)
        if isinstance(said, frozenset | tuple):
            yield name, flow(sorted(said) if isinstance(said, frozenset) else said)
        elif isinstance(said, bool):
            yield name, "true" if said else "false"
        elif isinstance(said, float):
            yield name, f"{said:.6f}".rstrip("0").rstrip(".")
        elif said is not None:
            yield name, flow(said) if isinstance(said, str) else str(said)
