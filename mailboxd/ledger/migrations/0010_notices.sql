-- What a person has to look at: rejected files, and accepted messages that may mean something else than they say. Each
-- stays until it is dismissed, or until its sender's next version of it is accepted.

ALTER TABLE messages ADD COLUMN notice TEXT;    -- what is doubtful about an accepted message
ALTER TABLE messages ADD COLUMN dismissed TEXT; -- when nobody had to look at it any more
CREATE INDEX messages_noticed ON messages (id) WHERE notice IS NOT NULL AND dismissed IS NULL;
CREATE INDEX messages_rejected ON messages (name) WHERE verdict = 'rejected' AND dismissed IS NULL;
CREATE INDEX messages_rejected_by_work ON messages (task_id, sender)
    WHERE verdict = 'rejected' AND dismissed IS NULL AND task_id IS NOT NULL;
