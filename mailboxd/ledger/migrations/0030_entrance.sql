-- Who owned a file that came, and how it came (core.entrance). NULL: not known, as of all that came before this version.

ALTER TABLE messages ADD COLUMN owner_uid INTEGER;   -- of the file that was read
ALTER TABLE messages ADD COLUMN owner TEXT;          -- the name of that user then; empty = without one
ALTER TABLE messages ADD COLUMN came TEXT;           -- renamed in_place at_start unseen: what the daemon saw
ALTER TABLE messages ADD COLUMN claimed TEXT;        -- command page chat plugin hub: what the file's name claimed

DROP VIEW v_messages;
CREATE VIEW v_messages AS SELECT
    id, direction, message_id, type, sender, receiver, task_id, subtask_id, task, verdict, name, path, sha256, size, reason,
    notice, dismissed, verified, signer, at, owner_uid, owner, came, claimed
FROM messages;
