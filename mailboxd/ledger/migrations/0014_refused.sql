-- Texts of task.md that were refused. Each stays until a better one is taken, the file is removed, or a person dismisses it.

CREATE TABLE refused_files (
    local_id TEXT PRIMARY KEY,   -- of tasks/<local_id>/task.md
    task TEXT,                   -- ours; NULL: the file would have started one
    at TEXT NOT NULL,
    why TEXT NOT NULL,
    line INTEGER,                -- of the file, if it is known
    sha256 TEXT,                 -- of the text; NULL: it could not be read
    kept_as TEXT NOT NULL,       -- relative to the workspace; empty: it could not be kept
    dismissed TEXT               -- when nobody had to look at it any more
) STRICT;

-- Failed tasks that are no part of another one: a person has to see each once.
CREATE INDEX tasks_failed ON tasks (completed_at) WHERE phase = 'failed' AND parent IS NULL AND subtask_id IS NULL;
