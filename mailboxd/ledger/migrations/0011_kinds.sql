-- What works on an attempt: an agent, a harness that only reads, or one that changes files (`core.vocabulary`).

ALTER TABLE attempts ADD COLUMN executor_kind TEXT NOT NULL DEFAULT 'builder';
