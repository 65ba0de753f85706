-- A turn is marked in the transaction that lets it begin: one commit for all calls of a round.

ALTER TABLE outbox ADD COLUMN begun TEXT;  -- the boot of the machine in which its call may have been made; null = not yet
