-- When a child of a plan runs, and how often: conditions over the answers of its dependencies, and rounds.

ALTER TABLE tasks ADD COLUMN flow TEXT NOT NULL DEFAULT '{}';      -- JSON
ALTER TABLE tasks ADD COLUMN body TEXT;                           -- JSON: what each of its rounds repeats
ALTER TABLE tasks ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0;   -- cancelled because its condition does not hold
