-- Notices and replies that have not reached people. Each stays until it does, applies no longer, or is dismissed.

CREATE TABLE untold_notices (
    id TEXT NOT NULL,            -- of its order
    addressee TEXT NOT NULL,     -- notify.command, or CHANNEL:TARGET, or session:KEY
    task TEXT,
    kind TEXT NOT NULL,          -- question | approval | completed ...
    at TEXT NOT NULL,            -- of the latest try
    why TEXT NOT NULL,
    again TEXT,                  -- when it is tried again; NULL: it was given up
    dismissed TEXT,
    PRIMARY KEY (id, addressee)
) STRICT, WITHOUT ROWID;
