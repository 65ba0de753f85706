-- When the next pause of a task ends is asked in each round: by the few that pause, not by all that could start.

CREATE INDEX tasks_pausing ON tasks (not_before) WHERE not_before IS NOT NULL AND phase = 'execution_ready';
