-- What may have been meant otherwise in a plan or a task.md. Each doubt stays until a person dismisses it. Those about
-- messages are in their rows (`messages.notice`).

CREATE TABLE doubts (
    id TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    at TEXT NOT NULL,
    about TEXT NOT NULL,         -- the plan | task.md
    text TEXT NOT NULL,
    dismissed TEXT               -- when nobody had to look at it any more
) STRICT;
CREATE INDEX doubts_by_task ON doubts (task);
CREATE INDEX doubts_open ON doubts (at) WHERE dismissed IS NULL;
