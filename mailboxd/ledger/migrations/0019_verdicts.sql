-- Verdicts that came with a peer's result, and the peer at whose gate a verdict was given (null: here).

ALTER TABLE attempts ADD COLUMN verdicts TEXT NOT NULL DEFAULT '[]';
ALTER TABLE reviews ADD COLUMN given_at TEXT;
