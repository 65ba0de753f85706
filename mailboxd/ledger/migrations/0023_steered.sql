-- Attempts whose agent has not read the latest instructions: looked for after each event, and hardly ever there.

CREATE INDEX attempts_steered ON attempts (session_key) WHERE steered <> '' AND status = 'running';
