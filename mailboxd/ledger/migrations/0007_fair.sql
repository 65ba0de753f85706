-- New work and work that had an attempt before are each found in their own order: a thousand retries are not gone
-- through to find what waits for its first turn.

DROP INDEX tasks_runnable;
CREATE INDEX tasks_runnable ON tasks (executor, attempt > 0, priority DESC, seq)
    WHERE phase = 'execution_ready' AND unmet = 0 AND parent_live = 1 AND kids = 0;
