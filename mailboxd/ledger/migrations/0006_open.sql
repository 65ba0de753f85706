-- A list of more than two words after IN is a table of its own to SQLite 3.40, made anew for each row whose place in a
-- partial index depends on it: each task that came into being made two of them, each change of its phase four.

DROP INDEX tasks_deadline;
CREATE INDEX tasks_deadline ON tasks (deadline)
    WHERE deadline IS NOT NULL AND phase <> 'completed' AND phase <> 'failed' AND phase <> 'cancelled';
DROP INDEX tasks_heartbeat;
CREATE INDEX tasks_heartbeat ON tasks (heartbeat)
    WHERE heartbeat IS NOT NULL AND phase <> 'completed' AND phase <> 'failed' AND phase <> 'cancelled';
DROP INDEX tasks_open;
CREATE INDEX tasks_open ON tasks (seq) WHERE phase <> 'completed' AND phase <> 'failed' AND phase <> 'cancelled';
DROP INDEX tasks_open_by_sender;
CREATE INDEX tasks_open_by_sender ON tasks (sender COLLATE NOCASE)
    WHERE parent IS NULL AND phase <> 'completed' AND phase <> 'failed' AND phase <> 'cancelled';
