-- The paths that a task writes: two with overlapping claims in one workspace never run at the same time.

ALTER TABLE tasks ADD COLUMN claims TEXT NOT NULL DEFAULT '[]';    -- JSON
CREATE INDEX tasks_claiming ON tasks (phase) WHERE claims <> '[]';
