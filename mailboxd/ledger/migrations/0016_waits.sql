-- What the sender of a task was last told that its work waits for, and what a peer says that work given to it waits for.

CREATE TABLE waits_told (
    task TEXT PRIMARY KEY,
    waits_for TEXT NOT NULL,     -- person | reviewer | budget ...
    why TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE waits_at_peers (
    attempt TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    at TEXT NOT NULL,
    waits_for TEXT NOT NULL,
    why TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX waits_at_peers_by_task ON waits_at_peers (task);
