-- What turns have cost, by quarters of an hour (UTC): the days of any time zone are made of these. Dollars are in
-- millionths, so that sums are exact; `turns` are those that reported neither cost nor tokens.

CREATE TABLE spending (
    at TEXT PRIMARY KEY,         -- 2026-11-21T02:15
    usd INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    turns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO spending SELECT quarter, sum(micros), sum(used), sum(ran AND micros = 0 AND used = 0) FROM (
    SELECT
        substr(at, 1, 14) || printf('%02d', CAST(substr(at, 15, 2) AS INTEGER) / 15 * 15) AS quarter,
        CAST(coalesce(json_extract(usage, '$.cost_usd'), 0) * 1000000 + 0.5 AS INTEGER) AS micros,
        coalesce(json_extract(usage, '$.input_tokens'), 0) + coalesce(json_extract(usage, '$.output_tokens'), 0) AS used,
        ran
    FROM (
        SELECT
            json_extract(data, '$.at') AS at,
            coalesce(json_extract(data, '$.turn.usage'), json_extract(data, '$.usage')) AS usage,
            coalesce(json_extract(data, '$.turn.ran'), json_extract(data, '$.ran'), 0) AS ran
        FROM events
        WHERE json_extract(data, '$.turn') IS NOT NULL AND kind IN ('attempt.ended', 'turn.ended')
    )
) GROUP BY quarter HAVING sum(micros) + sum(used) + sum(ran AND micros = 0 AND used = 0) > 0;

-- Caps that a person has raised for one day, as the day is called at their place.

CREATE TABLE raised_caps (
    day TEXT PRIMARY KEY,
    usd INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    turns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
