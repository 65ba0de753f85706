-- Fewer pages for each child of a plan: an index has no rows that no query looks for, and none of a column that changes
-- while the rows that it finds are few. What was sent is found by its id, which is its message id, and never by the work
-- that it is about. Artifacts lie beside those of their task.

DROP INDEX messages_by_message_id;
CREATE INDEX messages_by_message_id ON messages (message_id) WHERE direction = 'in' AND message_id IS NOT NULL;
DROP INDEX messages_by_work;
CREATE INDEX messages_by_work ON messages (task_id, subtask_id) WHERE direction = 'in';

DROP INDEX outbox_by_task;
CREATE INDEX outbox_by_task ON outbox (task, kind);

DROP VIEW v_artifacts;
CREATE TABLE artifacts_of_tasks (
    id TEXT NOT NULL,
    task TEXT NOT NULL,
    attempt TEXT,
    kind TEXT NOT NULL,
    uri TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    summary TEXT NOT NULL,
    produced_by TEXT NOT NULL,
    body TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (task, id)
) STRICT, WITHOUT ROWID;
INSERT INTO artifacts_of_tasks SELECT id, task, attempt, kind, uri, sha256, summary, produced_by, body, at FROM artifacts;
DROP TABLE artifacts;
ALTER TABLE artifacts_of_tasks RENAME TO artifacts;
CREATE VIEW v_artifacts AS SELECT id, task, attempt, kind, uri, sha256, summary, produced_by, body, at FROM artifacts;
