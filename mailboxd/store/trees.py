"""Pieces of SQL that several queries share: walks of a tree of tasks, and what may run."""

from __future__ import annotations

ABOVE = (
    "WITH RECURSIVE above (id, parent) AS (SELECT id, parent FROM tasks WHERE id = ?"
    " UNION ALL SELECT t.id, t.parent FROM above a JOIN tasks t ON t.id = a.parent)"
)
"""The task and all that it is below; its parameter is the task's id."""
_HELD = (
    "(WITH RECURSIVE below (id) AS (SELECT id FROM tasks WHERE held <> '' UNION ALL"
    " SELECT t.id FROM below b JOIN tasks t ON t.parent = b.id) SELECT id FROM below)"
)
"""The tasks that the operator has to let go on, with all below them."""
RUNNABLE = "phase = 'execution_ready' AND unmet = 0 AND parent_live = 1"
"""Tasks that wait for nobody else: as the partial indexes of such tasks say it, or SQLite does not use them."""
OPEN = "phase <> 'completed' AND phase <> 'failed' AND phase <> 'cancelled'"
"""Tasks that have not ended, as their partial indexes say it: without a list, of which SQLite would make a table."""
GONE = "json_each((SELECT value FROM meta WHERE name = 'gone'))"
"""The agents that work waits for although there is none of that name, by `key`, and why, by `value`."""
STUCK = (
    "FROM tasks t LEFT JOIN attempts a ON a.task = t.id AND a.ordinal = t.attempt"
    f" WHERE {OPEN}"
    " AND (t.phase IN ('awaiting_approval', 'circuit_open') OR t.held <> ''"
    "  OR (a.status = 'running' AND a.waiting_for = 'answer')"
    "  OR (t.phase IN ('spec_draft', 'spec_review', 'spec_gate', 'quality_gate') AND NOT EXISTS"
    "      (SELECT 1 FROM outbox o WHERE o.task = t.id AND o.state = 'pending'))"
    "  OR (t.phase = 'execution_ready' AND t.unmet = 0 AND t.parent_live = 1 AND t.kids = 0"
    f"      AND t.executor IN (SELECT key FROM {GONE})))"
)
"""Tasks (`t`) that go on only when somebody does something. It costs O(open tasks)."""


def is_free(task: str) -> str:
    """Whether the task of that column need not be let go on by the operator. Costs nothing while none is held."""
    return f"(NOT EXISTS (SELECT 1 FROM tasks WHERE held <> '') OR {task} NOT IN {_HELD})"
