-- Finished work that is no part of other work, by its end: what has come out since a person looked.

CREATE INDEX tasks_finished ON tasks (completed_at, id)
    WHERE phase = 'completed' AND parent IS NULL AND subtask_id IS NULL;
