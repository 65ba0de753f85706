-- Root tasks that agents, or whoever says to be one, wrote into the inbox: what came before from the same source, and in
-- the same chain. A projection of the tasks' origins (`core.handovers`).

CREATE TABLE handovers (
    task TEXT PRIMARY KEY,
    at TEXT NOT NULL,
    source TEXT NOT NULL,        -- whose limits it counts towards
    began TEXT NOT NULL,         -- what its chain began with; empty = unknown
    text TEXT NOT NULL,          -- a digest of what it is
    counts INTEGER NOT NULL,     -- whether it counts towards the limits of an hour
    let_go TEXT                  -- when a person let it go on
) STRICT, WITHOUT ROWID;
CREATE INDEX handovers_by_source ON handovers (source, at);
CREATE INDEX handovers_by_text ON handovers (source, text, at);
CREATE INDEX handovers_let_go ON handovers (source, let_go) WHERE let_go IS NOT NULL;
