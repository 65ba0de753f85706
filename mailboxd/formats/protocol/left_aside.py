"""What the name and the first lines of a file in an inbox say: a backup or a copy, a message, a task.md, a description.

Every command asks this of the names that it finds, so it needs nothing of what reads their texts (`no_task`).
"""

from __future__ import annotations

import re

_HEAD = 4096
"""Bytes in which the headers of a message are looked for."""

# By its name: left where it is

_COPY_OF_CONFLICT = re.compile(
    r"[._-](?:sync-)?conflict-\d|\.conflict\.|[(\[][^()\[\]]{0,80}(?:\bconflict(?:ed)?\b|in konflikt|konfliktkopie"
    r"|en conflit|en conflicto|冲突)[^()\[\]]{0,80}[)\]]",
    re.IGNORECASE,
)
"""Syncthing, Dropbox, Nextcloud, Google Drive, Obsidian."""
_ENDINGS_OF_BACKUPS = (".bak", ".backup", ".orig", ".old", ".save", ".rej")
_NUMBERED = re.compile(r"\.(?:bak|backup|orig|old)\.?\d*(?:\.(?:md|markdown|txt))?$|\.~\d+~$", re.IGNORECASE)
_BACKUP_OF = re.compile(r"(?:backup|sicherungskopie|copia de seguridad) (?:of|von|de) ", re.IGNORECASE)
_SHORTCUTS = (".lnk", ".url", ".webloc", ".desktop")
_ENDINGS_OF_TEMPLATES = (".j2", ".jinja", ".jinja2", ".tmpl", ".tpl", ".hbs", ".mustache", ".ejs", ".liquid", ".erb")
_TEMPLATE_OF_REQUESTS = re.compile(
    r"(?:(?:pull|merge)[ _-]?request|issue)[ _-]?template(?:\.(?:md|markdown|txt))?",
    re.IGNORECASE,
)
"""GitHub, GitLab, Gitea."""


def left_aside(name: str) -> str:
    """What a file is by its name, if that says that it is no task: "a backup of notes.md"; else empty."""
    lower = name.lower()
    if _COPY_OF_CONFLICT.search(name):
        return "a copy that a program for synchronizing made because of a conflict"
    if lower.endswith(_ENDINGS_OF_BACKUPS) or _NUMBERED.search(name) or _BACKUP_OF.match(name):
        original = _BACKUP_OF.sub("", _NUMBERED.sub("", name))
        for ending in _ENDINGS_OF_BACKUPS:
            original = original.removesuffix(ending)
        return f"a backup of {original}" if original and original != name else "a backup"
    if lower.endswith(_ENDINGS_OF_TEMPLATES) or _TEMPLATE_OF_REQUESTS.fullmatch(name):
        return "a template"
    return "a shortcut to something else" if lower.endswith(_SHORTCUTS) else ""


def declares_sender(raw: bytes) -> bool:
    """Whether the file begins with the headers of a message of the protocol: its type and its sender."""
    return _declares(raw, b"type", b"from")


def declares_task(raw: bytes) -> bool:
    """Whether the file begins with the headers of a task.md that a program wrote."""
    return _declares(raw, b"task_id")


def _declares(raw: bytes, *names: bytes) -> bool:
    head = raw[:_HEAD].replace(b"\r\n", b"\n").removeprefix(b"\xef\xbb\xbf")
    return head.startswith(b"---\n") and all(b"\n%s:" % name in head for name in names)


# By its name: taken, with a doubt

_ABOUT = re.compile(
    r"(?:readme|license|licence|copying|changelog|changes|contributing|code_of_conduct|agents|claude|gemini|skill|soul"
    r"|heartbeat|memory|index|about)(?:[._-][a-z]{2,3})?(?:\.(?:md|markdown|txt|rst))?",
    re.IGNORECASE,
)


def doubt(name: str) -> str:
    """Why the task in a file of this name may be none; empty if nothing says so."""
    if name.lower().endswith(".org"):
        return "states, days and properties of Org mode are text here; the file was taken as one task"
    if _ABOUT.fullmatch(name):
        return f"a file called {name} mostly describes something; it was taken as one task"
    return ""
