-- Work that is done again and again: one row each, and one for each of its runs, which are ordinary tasks.

CREATE TABLE repetitions (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    sender TEXT NOT NULL,
    title TEXT NOT NULL,
    said TEXT NOT NULL,          -- how it is repeated, as it was written
    rule TEXT NOT NULL,          -- the same: a cron line, or an interval
    zone TEXT NOT NULL,          -- of its times; '': the machine's
    anchor TEXT NOT NULL,        -- from when intervals count
    text TEXT NOT NULL,          -- the message of each run
    digest TEXT NOT NULL,
    created_at TEXT NOT NULL,
    next_at TEXT NOT NULL,
    missed TEXT NOT NULL,        -- once | all | skip
    overlap INTEGER NOT NULL,
    runs INTEGER NOT NULL,
    missed_runs INTEGER NOT NULL,
    paused TEXT NOT NULL,        -- why; '': it is not
    ended TEXT NOT NULL,         -- why; '': it goes on
    problem TEXT NOT NULL,       -- why the latest run could not be made
    last_at TEXT
) STRICT;
CREATE INDEX repetitions_due ON repetitions (next_at) WHERE ended = '' AND paused = '';
CREATE INDEX repetitions_by_name ON repetitions (name);

CREATE TABLE repetition_runs (
    repetition TEXT NOT NULL,
    number INTEGER NOT NULL,
    at TEXT NOT NULL,            -- the time that it is for
    task TEXT NOT NULL,
    made_at TEXT NOT NULL,
    PRIMARY KEY (repetition, number)
) STRICT, WITHOUT ROWID;

CREATE VIEW v_repetitions AS SELECT id, name, sender, title, said, rule, zone, anchor, created_at, next_at, missed,
    overlap, runs, missed_runs, paused, ended, problem, last_at FROM repetitions;
CREATE VIEW v_repetition_runs AS SELECT repetition, number, at, task, made_at FROM repetition_runs;
