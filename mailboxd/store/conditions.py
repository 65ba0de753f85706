"""Conditions about tasks, as SQL: which are open, runnable, held, below another one, waiting for a person.

Apart from the types of the core, which `mailboxd status` does not load.
"""

from __future__ import annotations

from mailboxd.core.vocabulary import WAITING_FOR_YOU

ABOVE = (
    "WITH RECURSIVE above (id, parent) AS (SELECT id, parent FROM tasks WHERE id = ?"
    " UNION ALL SELECT t.id, t.parent FROM above a JOIN tasks t ON t.id = a.parent)"
)
"""The task and its ancestors; the parameter is the task's id."""
BELOW = "WITH RECURSIVE below (id) AS (SELECT ?1 UNION ALL SELECT t.id FROM tasks t JOIN below b ON t.parent = b.id)"
"""The task and its descendants; ?1 is the task's id."""
LABELLED = "EXISTS (SELECT 1 FROM json_each(t.policy, '$.labels') WHERE value = ?)"
"""A task with this label."""
ENDED = "('completed', 'failed', 'cancelled')"
"""The phases of tasks that have ended."""
_HELD = (
    "(WITH RECURSIVE below (id) AS (SELECT id FROM tasks WHERE held <> '' UNION ALL"
    " SELECT t.id FROM below b JOIN tasks t ON t.parent = b.id) SELECT id FROM below)"
)
"""Held tasks and their descendants."""
RUNNABLE = "phase = 'execution_ready' AND unmet = 0 AND parent_live = 1"
"""Tasks that wait for nothing else. Must match the partial indexes literally, or SQLite does not use them."""
OPEN = "phase <> 'completed' AND phase <> 'failed' AND phase <> 'cancelled'"
"""Tasks that have not ended. Literally as in the partial indexes: SQLite would create a table for an IN list."""
MISSING_AGENTS = "json_each((SELECT value FROM meta WHERE name = 'gone'))"
"""Agents that do not exist though tasks wait for them (`key`), and how that is known (`value`)."""
_PENDING = (
    "SELECT 1 FROM outbox o WHERE o.task = t.id AND o.kind IN ('run_turn', 'look_up', 'run_check')"
    " AND o.state = 'pending'"
)
NEED = (
    f"CASE WHEN t.phase IN {ENDED} THEN NULL"
    " WHEN t.held <> '' THEN 'hold'"
    " WHEN t.phase = 'execution_ready' THEN CASE WHEN t.unmet = 0 AND t.parent_live = 1 AND t.kids = 0"
    f"  AND t.executor IN (SELECT key FROM {MISSING_AGENTS}) THEN 'agent' END"
    " WHEN t.phase = 'circuit_open' THEN 'circuit'"
    " WHEN t.phase IN ('executing', 'awaiting_approval')"
    "  AND EXISTS (SELECT 1 FROM approvals p WHERE p.task = t.id AND p.status = 'pending') THEN 'approval'"
    " WHEN t.phase = 'executing' THEN CASE WHEN t.due IS NULL AND EXISTS (SELECT 1 FROM attempts a"
    "  WHERE a.task = t.id AND a.ordinal = t.attempt AND a.status = 'running' AND a.waiting_for = 'answer')"
    f"  AND NOT EXISTS ({_PENDING}) THEN 'question' END"
    " WHEN t.phase IN ('spec_draft', 'spec_review', 'spec_gate', 'quality_gate')"
    f"  AND NOT EXISTS ({_PENDING}) THEN CASE t.phase WHEN 'spec_draft' THEN 'spec' ELSE 'review' END"
    " END"
)
"""Why the task (`t`) waits for a person, as an `attention.Need`; NULL if it does not."""
WAITING_FOR_PERSON = f"(SELECT t.id, t.phase, t.updated_at, t.seq, {NEED} AS need FROM tasks t WHERE {OPEN})"
"""Open tasks with their `need`, if any. Costs O(open tasks)."""


STATE = f"coalesce(CASE WHEN {NEED} IS NULL THEN NULL ELSE '{WAITING_FOR_YOU}' END, t.phase)"
"""What is displayed of the task (`t`): that it waits for a person, or its phase."""


def is_not_held(task: str) -> str:
    """Whether the task in this column is not held. Costs nothing while no task is."""
    return f"(NOT EXISTS (SELECT 1 FROM tasks WHERE held <> '') OR {task} NOT IN {_HELD})"
