-- The journal has the rows of `outbox` and `meta` as well, which no event rebuilds. `rev` numbers their changes, so that
-- the journal can be continued after any crash. What a daemon reports for `status` has none: the next one reports again.

ALTER TABLE outbox ADD COLUMN rev INTEGER;
UPDATE outbox SET rev = seq;
CREATE UNIQUE INDEX outbox_by_rev ON outbox (rev);

ALTER TABLE meta ADD COLUMN rev INTEGER;
CREATE UNIQUE INDEX meta_by_rev ON meta (rev);
UPDATE meta SET rev = rowid WHERE name NOT IN ('room', 'paced', 'limits', 'gone', 'away', 'gateway', 'peers');
