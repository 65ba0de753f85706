"""What events record of a configuration: every key with its value, but of what may hold a secret nothing of it.

A list of what is allowed, not of what is forbidden: a key whose type does not say how it is shown cannot be recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from mailboxd.core.policy import HIDDEN
from mailboxd.formats.config.model import Section, Shown


@dataclass(frozen=True, slots=True)
class Recorded:
    """A key by its dotted path, as it is shown. `secret` is the text of one that is hidden; None: nothing is hidden."""

    path: str
    shown: Any
    secret: str | None = None


def shown_of(field: FieldInfo) -> Shown:
    """How a key is recorded. Raises TypeError if its type does not say so."""
    told = [one for one in field.metadata if isinstance(one, Shown)]
    if told:
        return told[-1]
    kind = field.annotation
    inner = get_args(kind)[0] if get_origin(kind) is tuple else kind
    if inner in (bool, int, float) or get_origin(inner) is Literal:
        return Shown.VALUE
    raise TypeError(f"{field.description!r} does not say how it is recorded: add one of {', '.join(Shown)} to its type")


def recorded(section: Section, below: str = "") -> Iterator[Recorded]:
    """All keys of a section and of those in it, each below the path. Raises TypeError as `shown_of`."""
    for name, field in type(section).model_fields.items():
        value, path = getattr(section, name), f"{below}.{name}".lstrip(".")
        if isinstance(value, Section):
            yield from recorded(value, path)
        elif isinstance(value, dict):
            for key, entry in value.items():
                yield from recorded(entry, f"{path}.{key}")
        else:
            yield _recorded(path, json.loads(json.dumps(value)), shown_of(field))


def _recorded(path: str, value: Any, shown: Shown) -> Recorded:
    if shown is Shown.VALUE:
        return Recorded(path, value)
    secret = json.dumps(value)
    if not value:
        return Recorded(path, value, secret)
    if shown is Shown.HIDDEN:
        return Recorded(path, HIDDEN, secret)
    return Recorded(path, [_program(one) for one in value] if isinstance(value[0], list) else _program(value), secret)


def _program(words: list[str]) -> str:
    """The program of a command, as far as it looks like one, and how many arguments it has."""
    name, more = words[0], len(words) - 1
    shown = HIDDEN if "=" in name or len(name.split()) != 1 else name
    return shown + (f" (+{more})" if more else "")
