-- Bytes are kept by message: ids grow with time, so what is added lies at the end, where a hash lies anywhere, and after
-- 100,000 messages nearly every new one wrote a page of the index of hashes alone.

ALTER TABLE bodies RENAME TO bodies_by_hash;
CREATE TABLE bodies (
    message TEXT PRIMARY KEY,
    raw BLOB NOT NULL
) STRICT;
INSERT INTO bodies SELECT m.id, b.raw FROM messages m JOIN bodies_by_hash b ON b.sha256 = m.sha256 ORDER BY m.id;
DROP TABLE bodies_by_hash;
