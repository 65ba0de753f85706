-- Work of people comes before that of agents at equal priority, with all that it is split into.

ALTER TABLE tasks ADD COLUMN by_person INTEGER NOT NULL DEFAULT 0;
UPDATE tasks SET by_person = 1
    WHERE root IN (SELECT id FROM tasks WHERE parent IS NULL AND sender IN ('operator', 'human'));
DROP INDEX tasks_runnable;
CREATE INDEX tasks_runnable ON tasks (executor, attempt > 0, priority DESC, by_person DESC, seq)
    WHERE phase = 'execution_ready' AND unmet = 0 AND parent_live = 1 AND kids = 0;
