-- How many came from a source within an hour is counted for each task that comes, from the index alone.

DROP INDEX handovers_by_source;
CREATE INDEX handovers_by_source ON handovers (source, at, counts);
