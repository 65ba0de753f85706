-- What others may read: one view per table. Their names and columns are promised (docs/database.md); the tables below them
-- are not.

CREATE VIEW v_tasks AS SELECT
    seq, id, local_id, task_id, subtask_id, sender, parent, root, key, depth, title, mode, executor, phase, held, reason,
    error, skipped, cancelled_with_parent, broadcast, attempt, failures, stalls, rework, priority, deadline, not_before, due, heartbeat,
    created_at, updated_at, dispatched_at, completed_at, spec, policy, origin, flow, claims, findings, notes, result,
    result_summary, answer, mending, spent_tokens, spent_usd, turns, tree_turns, tree_tasks
FROM tasks;

CREATE VIEW v_dependencies AS SELECT task, needs FROM dependencies;

CREATE VIEW v_attempts AS SELECT
    id, task, ordinal, executor, executor_kind, worker_ref, runtime, status, waiting_for, acknowledged, silent, question_turns,
    model, escalated, session_key, session_ref, reply_token, run_id, started_at, finished_at, error_summary, usage
FROM attempts;

CREATE VIEW v_events AS SELECT seq, at, kind, task, role, actor, data, hash FROM events;

CREATE VIEW v_messages AS SELECT
    id, direction, message_id, type, sender, receiver, task_id, subtask_id, task, verdict, name, path, sha256, size, reason,
    notice, dismissed, verified, signer, at
FROM messages;

CREATE VIEW v_bodies AS SELECT message, raw FROM bodies;

CREATE VIEW v_approvals AS SELECT
    id, task, attempt, purpose, action, requested_action, side_effect_kind, risk, preview, digest, idempotency_key,
    requested_by, gate, at, expires_at, status, resolved_by, resolved_at, note, void, state, tries, started_at, finished_at, summary,
    artifact
FROM approvals;

CREATE VIEW v_reviews AS SELECT id, task, attempt, gate, round, reviewer, verdict, summary, findings, given_at, at FROM reviews;

CREATE VIEW v_artifacts AS SELECT id, task, attempt, kind, uri, sha256, summary, produced_by, body, at FROM artifacts;

CREATE VIEW v_breakers AS SELECT agent, state, failures, times, until, reason FROM breakers;

CREATE VIEW v_held_orders AS SELECT id, task, name, said, approval, by, at, due FROM held_orders;

CREATE VIEW v_outbox AS SELECT seq, id, kind, task, agent, data, state, tries, not_before, begun, at FROM outbox;

CREATE VIEW v_meta AS SELECT name, value FROM meta;

-- What the daemon has still to do: effects of the outbox, files that were judged and not moved yet, texts of task.md.
CREATE VIEW v_unfinished AS
    SELECT kind, task, id FROM outbox WHERE state = 'pending'
    UNION ALL SELECT 'move', coalesce(task, ''), id FROM messages WHERE path IS NULL
    UNION ALL SELECT 'task.md', task, task FROM stale_files;
