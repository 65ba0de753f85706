-- Root tasks by what people call them in another file: `depends_on: write-programme`.

CREATE INDEX roots_by_local_id ON tasks (local_id COLLATE NOCASE) WHERE parent IS NULL;
CREATE INDEX roots_by_title ON tasks (title COLLATE NOCASE) WHERE parent IS NULL;
