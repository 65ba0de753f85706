"""What a check has to say."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; works as it is."""
    WARNING = "warning"
    """Works, but worse than it could, or not always."""
    ERROR = "error"
    """Work cannot be done until it is mended."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found. `id` is a stable slug.

    `mends` are commands that mend it, one way each, ready to be pasted; a word in capitals is to be replaced.
    """

    id: str
    level: Level
    text: str
    mends: tuple[str, ...] = ()


def edit(path: str, line: str) -> str:
    """The mend that is a line of the configuration at `path`."""
    return f"${{EDITOR:-vi}} {shlex.quote(path or 'CONFIG.YAML')}  # {line}"


def ok(slug: str, text: str) -> Finding:
    return Finding(slug, Level.OK, text)


def note(slug: str, text: str, *mends: str) -> Finding:
    return Finding(slug, Level.NOTE, text, mends)


def warning(slug: str, text: str, *mends: str) -> Finding:
    return Finding(slug, Level.WARNING, text, mends)


def error(slug: str, text: str, *mends: str) -> Finding:
    return Finding(slug, Level.ERROR, text, mends)
