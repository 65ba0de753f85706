"""A crowd of tasks made out of one, for what has to stay bounded: 20,000 by way of the engine take a minute."""

from __future__ import annotations

import sqlite3


def multiply(db: sqlite3.Connection, child: str, count: int, phases: dict[str, int] | None = None) -> None:
    """Add `count` siblings that are like the task with this local id, the first ones in these phases.

    Only the tables are filled: no event says where they come from.
    """
    columns = [row[1] for row in db.execute("PRAGMA table_info(tasks)")]
    own = {"id": "t.id || '_' || n", "local_id": "t.local_id || '-' || n", "key": "t.key || '-' || n", "phase": "?"}
    own["seq"] = "t.seq + n"
    values = ", ".join(own.get(name, f"t.{name}") for name in columns)
    first = 1
    for phase, some in {**(phases or {}), "completed": count - sum((phases or {}).values())}.items():
        if not some:
            continue
        db.execute(
            f"WITH RECURSIVE s (n) AS (SELECT ? UNION ALL SELECT n + 1 FROM s WHERE n < ?)"
            f" INSERT INTO tasks ({', '.join(columns)}) SELECT {values} FROM s, tasks t WHERE t.local_id = ?",
            (first, first + some - 1, phase, child),
        )
        first += some
    db.execute(
        "UPDATE tasks SET kids = kids + ?, kids_completed = kids_completed + ? WHERE id ="
        " (SELECT parent FROM tasks WHERE local_id = ?)",
        (count, count, child),
    )
