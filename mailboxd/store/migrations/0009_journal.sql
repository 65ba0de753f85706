-- The journal has the rows of `outbox` and `meta` as well, which no event rebuilds. `rev` numbers their changes, so that
-- the journal can be continued after any crash. What a daemon reports for `status` is reported again by the next one.

ALTER TABLE outbox ADD COLUMN rev INTEGER;
UPDATE outbox SET rev = seq;
CREATE UNIQUE INDEX outbox_by_rev ON outbox (rev);
CREATE TRIGGER outbox_added AFTER INSERT ON outbox WHEN NEW.rev IS NULL
BEGIN UPDATE outbox SET rev = (SELECT coalesce(max(rev), 0) + 1 FROM outbox) WHERE seq = NEW.seq; END;
CREATE TRIGGER outbox_changed AFTER UPDATE OF state, tries, not_before, begun ON outbox
BEGIN UPDATE outbox SET rev = (SELECT max(rev) + 1 FROM outbox) WHERE seq = NEW.seq; END;

ALTER TABLE meta ADD COLUMN rev INTEGER;
CREATE UNIQUE INDEX meta_by_rev ON meta (rev);
CREATE TRIGGER meta_added AFTER INSERT ON meta
    WHEN NEW.rev IS NULL AND NEW.name NOT IN ('room', 'paced', 'limits', 'gone', 'away', 'gateway', 'peers')
BEGIN UPDATE meta SET rev = (SELECT coalesce(max(rev), 0) + 1 FROM meta) WHERE name = NEW.name; END;
CREATE TRIGGER meta_changed AFTER UPDATE OF value ON meta
    WHEN NEW.value <> OLD.value AND NEW.name NOT IN ('room', 'paced', 'limits', 'gone', 'away', 'gateway', 'peers')
BEGIN UPDATE meta SET rev = (SELECT coalesce(max(rev), 0) + 1 FROM meta) WHERE name = NEW.name; END;
UPDATE meta SET rev = rowid WHERE name NOT IN ('room', 'paced', 'limits', 'gone', 'away', 'gateway', 'peers');
