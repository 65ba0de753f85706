-- What a call gave to its agent: digest, size, and whether the text is kept, as JSON. It is written with `begun`.
ALTER TABLE outbox ADD COLUMN prompt TEXT;

-- The texts that are kept (`archive.prompts: text`), each once. A message that gives work to a peer is in `bodies`. `rev` is
-- that of the change of `outbox` which first names it: the journal finds it by that.
CREATE TABLE prompts (
    sha256 TEXT PRIMARY KEY,
    text BLOB NOT NULL,
    rev INTEGER NOT NULL
);
CREATE INDEX prompts_by_rev ON prompts (rev);

DROP VIEW v_outbox;
CREATE VIEW v_outbox AS SELECT seq, id, kind, task, agent, data, state, tries, not_before, begun, at, prompt FROM outbox;

CREATE VIEW v_prompts AS SELECT sha256, text FROM prompts;
