"""Reads the issues of a beads database (https://github.com/steveyegge/beads): its SQLite file, or its JSON lines.

Nothing is written. Both give the same rows: the columns of an issue, and its `dependencies` and `labels`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from mailboxd.errors import UnavailableError

_LONGEST_LINE = 16 << 20

Row = Mapping[str, Any]


def read(path: Path) -> list[Row]:
    """The issues in a directory `.beads`, a database or a file of JSON lines, by id. Raises UnavailableError."""
    file = _file_of(path)
    try:
        rows = _of_lines(file) if file.suffix == ".jsonl" else _of_database(file)
        return sorted((row for row in rows if isinstance(row.get("id"), str)), key=lambda row: str(row["id"]))
    except (OSError, sqlite3.Error, ValueError) as error:
        raise UnavailableError(f"{file}: these are no issues of beads: {error}") from error


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    for pattern in ("beads.db", "*.db", "issues.jsonl", "beads.jsonl"):
        if found := sorted(path.glob(pattern)):
            return found[0]
    raise UnavailableError(f"{path}: there is neither a database nor issues.jsonl; `bd export` writes one")


def _of_lines(file: Path) -> Iterator[Row]:
    with file.open("rb") as lines:
        while line := lines.readline(_LONGEST_LINE):
            row = json.loads(line) if line.strip() else None
            if isinstance(row, dict):
                yield row


def _of_database(file: Path) -> Iterator[Row]:
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        edges: dict[str, list[Row]] = {}
        for row in db.execute("SELECT issue_id, depends_on_id, type FROM dependencies ORDER BY 1, 2"):
            edges.setdefault(row["issue_id"], []).append(dict(row))
        labels: dict[str, list[str]] = {}
        for issue, label in db.execute("SELECT issue_id, label FROM labels ORDER BY 1, 2"):
            labels.setdefault(issue, []).append(label)
        for row in db.execute("SELECT * FROM issues"):
            yield dict(row) | {"dependencies": edges.get(row["id"], []), "labels": labels.get(row["id"], [])}
