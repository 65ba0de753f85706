"""Conditions about tasks, as SQL: which are open, runnable, held, below another one, waiting for a person.

Apart from the types of the core, which `mailboxd status` does not load.
"""

from __future__ import annotations

from mailboxd.core.budget import PAUSED
from mailboxd.core.vocabulary import NOT_KNOWN_YET, Phase, State, state_of, state_words

SPENT = (
    "SELECT coalesce(sum(usd), 0), coalesce(sum(tokens), 0), coalesce(sum(turns), 0) FROM spending"
    " WHERE at >= ? AND at < ?"
)
"""What turns have cost that ended from one quarter of an hour to before another."""
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
SOME_HELD = "SELECT id FROM tasks WHERE held <> '' UNION ALL SELECT task FROM held_orders"
"""Tasks that are held, or that an order is about to end."""
BY_PERSON = f"held GLOB '{PAUSED}*'"
"""Held because a person has paused it."""


def _with_below(tasks: str) -> str:
    """These tasks and their descendants."""
    below = "SELECT t.id FROM below b JOIN tasks t ON t.parent = b.id"
    return f"(WITH RECURSIVE below (id) AS ({tasks} UNION ALL {below}) SELECT id FROM below)"


RUNNABLE = "phase = 'execution_ready' AND unmet = 0 AND parent_live = 1"
"""Tasks that wait for nothing else. Must match the partial indexes literally, or SQLite does not use them."""
OPEN = "phase <> 'completed' AND phase <> 'failed' AND phase <> 'cancelled'"
"""Tasks that have not ended. Literally as in the partial indexes: SQLite would create a table for an IN list."""
LIVE = "ended = '' AND paused = ''"
"""Repetitions that have runs. Literally as in the partial index."""
MISSING_AGENTS = (
    "(SELECT key, value FROM json_each((SELECT value FROM meta WHERE name = 'gone'))"
    f" WHERE value NOT LIKE '{NOT_KNOWN_YET}%')"
)
"""Agents that do not exist though tasks wait for them (`key`), and how that is known (`value`). Not those of hosts that
were never heard from."""


def _is_open(task: str) -> str:
    return OPEN.replace("phase", f"{task}.phase")


def _needs_turn(t: str) -> str:
    """Whether the ready task of this alias needs nothing but a turn of its executor."""
    return f"{t}.unmet = 0 AND {t}.parent_live = 1 AND {t}.kids = 0"


def _own_need(t: str) -> str:
    """Why the task of this alias itself waits for a person; NULL if it does not."""
    pending = (
        f"SELECT 1 FROM outbox o WHERE o.task = {t}.id AND o.kind IN ('run_turn', 'look_up', 'run_check')"
        " AND o.state = 'pending'"
    )
    return (
        f"CASE WHEN {t}.phase IN {ENDED} THEN NULL"
        f" WHEN {t}.held <> '' THEN 'hold'"
        f" WHEN {t}.phase = 'execution_ready' THEN CASE WHEN {_needs_turn(t)}"
        f"  AND {t}.executor IN (SELECT key FROM {MISSING_AGENTS}) THEN 'agent' END"
        f" WHEN {t}.phase = 'circuit_open' THEN 'circuit'"
        f" WHEN {t}.phase IN ('executing', 'awaiting_approval')"
        f"  AND EXISTS (SELECT 1 FROM approvals p WHERE p.task = {t}.id AND p.status = 'pending') THEN 'approval'"
        f" WHEN {t}.phase = 'executing' THEN CASE WHEN {t}.due IS NULL AND {_waits_for(t, 'answer')}"
        f"  AND NOT EXISTS ({pending}) THEN 'question' END"
        f" WHEN {t}.phase IN ('spec_review', 'spec_gate', 'quality_gate') AND EXISTS ({pending})"
        f"  AND NOT EXISTS ({pending} AND NOT (o.kind = 'run_turn' AND o.agent IN (SELECT key FROM {MISSING_AGENTS})))"
        "  THEN 'review'"
        f" WHEN {t}.phase IN ('spec_draft', 'spec_review', 'spec_gate', 'quality_gate')"
        f"  AND NOT EXISTS ({pending}) THEN CASE {t}.phase WHEN 'spec_draft' THEN 'spec' ELSE 'review' END"
        " END"
    )


def _waits_for(t: str, what: str) -> str:
    return (
        f"EXISTS (SELECT 1 FROM attempts a WHERE a.task = {t}.id AND a.ordinal = {t}.attempt"
        f" AND a.status = 'running' AND a.waiting_for = '{what}')"
    )


_STANDS_STILL = (
    f"(d.phase = 'execution_ready' AND (d.unmet > 0 OR d.parent_live = 0)"
    f" OR d.phase = 'executing' AND {_waits_for('d', 'children')})"
)
_SUBTASKS_WAIT = (
    f"(WITH RECURSIVE below (id) AS (SELECT c.id FROM tasks c WHERE c.parent = t.id AND {_is_open('c')}"
    " UNION ALL SELECT c.id FROM below b JOIN tasks p ON p.id = b.id AND p.held = ''"
    f" JOIN tasks c ON c.parent = p.id AND {_is_open('c')})"
    f" SELECT sum(need IS NOT NULL) > 0 AND sum(need IS NULL AND NOT still) = 0 FROM (SELECT {_own_need('d')} AS need,"
    f" {_STANDS_STILL} AS still FROM below JOIN tasks d ON d.id = below.id))"
)
"""Whether of the task's (`t`) open descendants some wait for a person, and the others for them."""
_OWN_NEED = _own_need("t")
NEED = (
    f"coalesce({_OWN_NEED}, CASE WHEN t.kids > 0 AND t.phase = 'executing' AND {_waits_for('t', 'children')}"
    f" AND {_SUBTASKS_WAIT} THEN 'subtasks' END)"
)
"""Why the task (`t`) waits for a person, as an `attention.Need`; NULL if it does not."""


def _line(text: str) -> str:
    """The first line of this text."""
    return f"substr({text}, 1, instr({text} || char(10), char(10)) - 1)"


def _missing(agents: str) -> str:
    return f"(SELECT 'waits for an agent: ' || {_line('value')} FROM {MISSING_AGENTS} WHERE key IN ({agents}))"


_ASKED = (
    f"(SELECT 'waits for approval ' || lower(substr(p.id, -6)) || ': ' || {_line('p.requested_action')}"
    " FROM approvals p WHERE p.task = t.id AND p.status = 'pending' ORDER BY p.rowid LIMIT 1)"
)
_REVIEWERS = "SELECT o.agent FROM outbox o WHERE o.task = t.id AND o.kind = 'run_turn' AND o.state = 'pending'"
REASON = (
    f"CASE WHEN t.phase IN {ENDED} THEN t.reason WHEN t.held <> '' THEN t.held ELSE coalesce(CASE"
    f" WHEN t.phase IN ('executing', 'awaiting_approval') THEN {_ASKED}"
    f" WHEN t.phase = 'execution_ready' AND {_needs_turn('t')} THEN {_missing('t.executor')}"
    f" WHEN t.phase IN ('spec_review', 'spec_gate', 'quality_gate') THEN {_missing(_REVIEWERS)} END, t.reason) END"
)
"""Why the task (`t`) is where it is: why it is held, the approval or the missing agent that it waits for, or else the
reason of its latest change of phase."""
WAITING_FOR_PERSON = f"(SELECT t.id, t.phase, t.updated_at, t.seq, {_OWN_NEED} AS need FROM tasks t WHERE {OPEN})"
"""Open tasks with what they themselves need a person for, if anything. Costs O(open tasks)."""


_WORDS = " ".join(f"WHEN '{phase}' THEN '{state_words(phase)}'" for phase in Phase)
STATE = f"CASE WHEN {NEED} IS NOT NULL THEN '{State.NEEDS_YOU}' ELSE CASE t.phase {_WORDS} END END"
"""The state of the task (`t`), as `state_words` says it."""


def in_state(state: str) -> str:
    """The condition that the task (`t`) is in this state: one of the four words, or of the kinds of done."""
    phases = ", ".join(f"'{phase}'" for phase in Phase if state in (state_of(phase), state_words(phase)))
    if state == State.NEEDS_YOU:
        return f"(t.phase IN ({phases}) OR {NEED} IS NOT NULL)"
    return f"(t.phase IN ({phases}) AND {NEED} IS NULL)"


SUITS = {
    "retry": f"(t.phase IN ('failed', 'circuit_open') OR t.held <> '' AND t.held NOT LIKE 'paused%' AND t.{OPEN})",
    "dismiss": "t.phase = 'failed' AND t.parent IS NULL AND t.subtask_id IS NULL",
    "cancel": f"t.{OPEN}",
}
"""The tasks (`t`) for which an order makes sense that is given for many."""


def is_not_held(task: str) -> str:
    """Whether a turn of the task in this column may begin: it is not held, and nothing is about to end it or a task
    above it. Costs nothing while no task is held."""
    return f"(NOT EXISTS ({SOME_HELD}) OR {task} NOT IN {_with_below(SOME_HELD)})"


def may_act(task: str) -> str:
    """Whether an approved action of the task in this column may begin: nobody has paused it or a task above it, and
    nothing is about to end one of them. Costs nothing while no task is held."""
    stopped = f"SELECT id FROM tasks WHERE held <> '' AND {BY_PERSON} UNION ALL SELECT task FROM held_orders"
    return f"(NOT EXISTS ({SOME_HELD}) OR {task} NOT IN {_with_below(stopped)})"
