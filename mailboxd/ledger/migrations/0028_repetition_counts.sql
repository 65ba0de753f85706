-- A repetition whose file only says that a person wrote it: its runs count towards the limit of an hour. Those that were
-- recorded before do not.

ALTER TABLE repetitions ADD COLUMN counts INTEGER NOT NULL DEFAULT 0;
