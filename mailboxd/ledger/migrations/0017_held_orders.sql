-- Orders that end work. Each is held for some seconds, in which it can be taken back, and is then carried out once.

CREATE TABLE held_orders (
    id TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    name TEXT NOT NULL,          -- of the order in core.operator_orders; 'reject': of the approval
    said TEXT NOT NULL,          -- JSON: the values of its fields
    approval TEXT,               -- the request that is rejected
    by TEXT NOT NULL,            -- the operator's user name
    at TEXT NOT NULL,
    due TEXT NOT NULL
) STRICT;
