-- What a whole tree has taken, kept at its root: its limits are looked at after each turn and each plan.

ALTER TABLE tasks ADD COLUMN tree_turns INTEGER NOT NULL DEFAULT 0; -- of a root: of it and all below it
ALTER TABLE tasks ADD COLUMN tree_tasks INTEGER NOT NULL DEFAULT 0; -- of a root: below it
UPDATE tasks SET tree_turns = tree.turns, tree_tasks = tree.tasks - 1
    FROM (SELECT root, sum(turns) AS turns, count(*) AS tasks FROM tasks GROUP BY root) AS tree
    WHERE tasks.id = tree.root;
