"""Templates: everything that is put into one is foreign, made visible and escaped. Only drawings are markup."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mailboxd.core.text import escaped, money
from mailboxd.core.times import to_epoch
from mailboxd.drawing.gantt import duration
from mailboxd.drawing.looks import ATTEMPTS, LOOKS, Look, look_of
from mailboxd.drawing.marks import STYLE

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_DONE = {
    "approved": "Approved, and recorded in your name. The daemon carries it out.",
    "rejected": "Rejected, and recorded in your name.",
    "request_changes": "Changes are requested, in your name. The agent is told your note.",
    "retry": "It runs again as soon as there is room.",
    "cancel": "Cancelled, with everything below it.",
    "answer": "Answered. The agent goes on.",
    "unblock-retry": "Unblocked: it is tried again.",
    "unblock-accept": "The last good result counts: it is completed.",
    "unblock-fail": "Given up: it has failed.",
}
"""What is said after a form: a word in the address chooses one of these, and can say nothing else."""


class Views:
    """The templates of this package."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("mailboxd.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True, finalize=visible,
        )  # fmt: skip
        self._environment.filters |= {
            "drawn": Markup,
            "json": partial(json.dumps, ensure_ascii=False),
            "money": money,
            "moment": moment,
            "attempt": attempt_look,
        }
        self._environment.globals |= {"look_of": look_of, "LOOKS": LOOKS, "DONE": _DONE, "duration": duration}

    def render(self, name: str, values: Mapping[str, Any]) -> str:
        return self._environment.get_template(name).render(values)


def visible(value: object) -> object:
    """Foreign text with every character that cannot be seen, or that turns the direction of writing, as an escape."""
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return escaped(value, keep="\n\t")


def moment(at: str | None, now: str) -> str:
    """How long ago, or in how long: `3 min ago`, `in 2 h`."""
    if not at:
        return ""
    try:
        seconds = to_epoch(now) - to_epoch(at)
    except ValueError:
        return at
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if abs(seconds) >= size:
            count = f"{int(abs(seconds) // size)} {word}"
            return f"{count} ago" if seconds > 0 else f"in {count}"
    return "just now" if seconds >= 0 else "in a moment"


def attempt_look(status: str) -> Look:
    return ATTEMPTS.get(status) or look_of(status)


def static() -> dict[str, tuple[bytes, str]]:
    """The files below /static, by name: these and no others. A name is looked up here and never becomes a path."""
    found = {"drawing.css": (STYLE.encode(), _TYPES[".css"])}
    for entry in (files("mailboxd.web") / "static").iterdir():
        kind = _TYPES.get("." + entry.name.rpartition(".")[2])
        if kind is not None:
            found[entry.name] = (entry.read_bytes(), kind)
    return found
