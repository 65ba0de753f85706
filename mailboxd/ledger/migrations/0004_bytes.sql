-- Bytes are looked up for messages that have no id of their own, and for those that were rejected: where hashes lie is
-- chance, so after 100,000 messages nearly every new one writes a page of this index alone. What is not filed yet is
-- found by its name; these are few, and put in order when they are asked for.

DROP INDEX messages_by_hash;
CREATE INDEX messages_by_hash ON messages (sha256)
    WHERE direction = 'in' AND (message_id IS NULL OR verdict = 'rejected');
DROP INDEX messages_unfiled;
