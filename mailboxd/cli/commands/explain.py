"""What the runbook says of an alarm, an error or an exit code, for `mailboxd doctor NAME` and `mailboxd why NAME`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from mailboxd.cli.session import Session
from mailboxd.cli.text import columns
from mailboxd.errors import UnavailableError
from mailboxd.host.package_data import package_data

_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_RULE = re.compile(r"^- `([a-z0-9-]+)`: (.+)$", re.MULTILINE)
_TABLE = re.compile(r"(?:^\|.+\|\n)+", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")
_NAME = re.compile(r"`([A-Za-z][A-Za-z-]*)`|^([0-9]+)$")


def names(session: Session) -> None:
    """List everything that `show` explains."""
    known = sorted(entries(runbook()))
    session.show(known, [_filled(", ".join(known))])


def show(session: Session, name: str) -> None:
    """Say what NAME means and what to do. Raises UnavailableError."""
    if not showed(session, name):
        from difflib import get_close_matches

        near = get_close_matches(name, entries(runbook()), 1)
        raise UnavailableError(
            f"nothing is called {name}; "
            + (f"did you mean {near[0]}?" if near else "`mailboxd doctor --names` lists all")
        )


def showed(session: Session, name: str) -> bool:
    """Say what NAME means and what to do, if the runbook knows it."""
    if (found := entries(runbook()).get(name.strip("()[]"))) is None:
        return False
    session.show({"name": name, "texts": found}, ["\n\n".join(map(_filled, found))])
    return True


def runbook() -> str:
    """The text of docs/runbook.md."""
    return package_data("runbook.md", "docs", "runbook.md").read_text(encoding="utf-8")


def entries(text: str) -> dict[str, list[str]]:
    """Everything that the runbook explains, by name: sections, rules, and rows of tables that begin with names."""
    found: dict[str, list[str]] = {}
    headings = list(_HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    for heading, end in zip(headings, ends, strict=True):
        body = text[heading.end() : end]
        if heading[1] == "####":
            for name in (heading[2], *_ANCHOR.findall(body)):
                found.setdefault(name, []).append(_plain(_ANCHOR.sub("", body)))
        for rule, says in _RULE.findall(body):
            found.setdefault(rule, []).append(_plain(says))
        for table in _TABLE.findall(body):
            for name, says in _rows(table):
                found.setdefault(name, []).append(says)
    return found


def _rows(table: str) -> Iterator[tuple[str, str]]:
    """The text of each row, under each name in its first cell; of exit codes also under the kinds in the last one."""
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    for cells in rows:
        told = "\n\n".join(f"{label}: {_plain(cell)}" for label, cell in zip(head, cells, strict=False) if cell)
        for cell in (cells[0], cells[-1]) if head[0] == "code" else cells[:1]:
            yield from ((found[1] or found[2], told) for found in _NAME.finditer(cell))


def _plain(text: str) -> str:
    """Markdown as plain text: a link to another section becomes the command that shows it."""

    def link(found: re.Match[str]) -> str:
        label, target = found[1], found[2]
        return f"{label} (`mailboxd doctor {target[1:]}`)" if target.startswith("#") else label

    return _LINK.sub(link, text).replace("**", "").strip()


def _filled(text: str) -> str:
    """Paragraphs, filled to the width of the screen."""
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(
        textwrap.fill(" ".join(one.split()), columns(), break_on_hyphens=False, break_long_words=False)
        for one in paragraphs
    )
