-- The tables of protocol section 6. Times are ISO-8601 UTC text. `events` is the truth; every other table but
-- `bodies`, `outbox` and `meta` is what the events add up to, and `mailboxd.ledger.log.replay` proves it.

CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE migrations (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at TEXT NOT NULL
) STRICT;

CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    task TEXT,
    role TEXT NOT NULL,
    actor TEXT NOT NULL,
    data TEXT NOT NULL,          -- JSON
    hash TEXT NOT NULL           -- sha256 over the hash before it and this row
) STRICT;
CREATE INDEX events_by_task ON events (task, seq) WHERE task IS NOT NULL;

CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events is append-only'); END;
CREATE TRIGGER events_are_never_removed BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events is append-only'); END;

CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    local_id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL,
    subtask_id TEXT,
    sender TEXT NOT NULL,
    parent TEXT,
    root TEXT NOT NULL,
    key TEXT NOT NULL,
    depth INTEGER NOT NULL,
    title TEXT NOT NULL,
    mode TEXT NOT NULL,
    executor TEXT NOT NULL,
    runtime TEXT NOT NULL,
    phase TEXT NOT NULL,
    spec TEXT NOT NULL,          -- JSON
    policy TEXT NOT NULL,        -- JSON
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    rework INTEGER NOT NULL,
    circuit_open INTEGER NOT NULL,
    not_before TEXT,
    due TEXT,
    reason TEXT NOT NULL,
    findings TEXT NOT NULL,
    result TEXT NOT NULL,
    result_summary TEXT NOT NULL,
    error TEXT NOT NULL,
    notes TEXT NOT NULL,
    answer TEXT NOT NULL,
    stalls INTEGER NOT NULL,
    broadcast INTEGER NOT NULL,
    cancelled_with_parent INTEGER NOT NULL,
    draft_result TEXT NOT NULL,
    planned_actions TEXT NOT NULL,
    dispatched_at TEXT,
    completed_at TEXT,
    origin TEXT NOT NULL,        -- JSON
    said TEXT NOT NULL,          -- JSON
    extra TEXT NOT NULL,         -- JSON
    sections TEXT NOT NULL,      -- JSON
    mending TEXT NOT NULL,       -- JSON: how far a weak spec is
    held TEXT NOT NULL,
    heartbeat TEXT,
    stronger TEXT NOT NULL,      -- JSON
    -- kept in step by the projection, so that no completion has to count its neighbours:
    seq INTEGER NOT NULL,        -- the event that created it
    unmet INTEGER NOT NULL,      -- dependencies that are not completed
    parent_live INTEGER NOT NULL,-- the parent is executing (or there is none)
    priority INTEGER NOT NULL,   -- of its policy
    deadline TEXT,               -- of its policy
    spent_tokens INTEGER NOT NULL DEFAULT 0, -- by it and all below it
    spent_usd REAL NOT NULL DEFAULT 0,
    turns INTEGER NOT NULL DEFAULT 0,        -- of its own
    kids INTEGER NOT NULL DEFAULT 0,
    kids_completed INTEGER NOT NULL DEFAULT 0,
    kids_failed INTEGER NOT NULL DEFAULT 0,
    kids_cancelled INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX tasks_by_parent ON tasks (parent, seq) WHERE parent IS NOT NULL;
CREATE INDEX tasks_by_work ON tasks (task_id, subtask_id, sender);
CREATE INDEX tasks_runnable ON tasks (executor, priority DESC, seq)
    WHERE phase = 'execution_ready' AND unmet = 0 AND parent_live = 1 AND kids = 0;
CREATE INDEX tasks_runnable_by_children ON tasks (seq)
    WHERE phase = 'execution_ready' AND unmet = 0 AND parent_live = 1 AND kids > 0;
CREATE INDEX tasks_due ON tasks (due) WHERE due IS NOT NULL;
CREATE INDEX tasks_deadline ON tasks (deadline)
    WHERE deadline IS NOT NULL AND phase NOT IN ('completed', 'failed', 'cancelled');
CREATE INDEX tasks_heartbeat ON tasks (heartbeat)
    WHERE heartbeat IS NOT NULL AND phase NOT IN ('completed', 'failed', 'cancelled');
CREATE INDEX tasks_held ON tasks (id) WHERE held <> '';
CREATE INDEX tasks_open ON tasks (seq) WHERE phase NOT IN ('completed', 'failed', 'cancelled');
CREATE INDEX tasks_open_by_sender ON tasks (sender COLLATE NOCASE)
    WHERE parent IS NULL AND phase NOT IN ('completed', 'failed', 'cancelled');

CREATE TABLE dependencies (
    task TEXT NOT NULL,
    needs TEXT NOT NULL,
    PRIMARY KEY (task, needs)
) STRICT, WITHOUT ROWID;
CREATE INDEX dependencies_by_needs ON dependencies (needs);

CREATE TABLE attempts (
    id TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    executor TEXT NOT NULL,
    runtime TEXT NOT NULL,
    status TEXT NOT NULL,
    waiting_for TEXT NOT NULL,
    session_key TEXT NOT NULL,
    reply_token TEXT NOT NULL,
    started_at TEXT NOT NULL,
    finished_at TEXT,
    error_summary TEXT NOT NULL,
    run_id TEXT,
    session_ref TEXT,
    usage TEXT NOT NULL,         -- JSON
    token_echoed INTEGER NOT NULL,
    question_turns INTEGER NOT NULL,
    acknowledged INTEGER NOT NULL,
    model TEXT NOT NULL,
    escalated TEXT NOT NULL,
    question TEXT NOT NULL,
    steered TEXT NOT NULL,
    silent INTEGER NOT NULL,
    worker_ref TEXT NOT NULL,
    UNIQUE (task, ordinal)
) STRICT;

CREATE TABLE breakers (
    agent TEXT PRIMARY KEY,      -- lower case
    state TEXT NOT NULL,         -- closed | open | half_open
    failures INTEGER NOT NULL,   -- faults in a row
    times INTEGER NOT NULL,      -- how often it opened since it was last closed
    until TEXT,                  -- when it lets one turn through; NULL unless open
    reason TEXT NOT NULL         -- the latest fault
) STRICT, WITHOUT ROWID;
CREATE INDEX breakers_open ON breakers (until) WHERE state = 'open';

CREATE TABLE review_requests (
    task TEXT NOT NULL,
    gate TEXT NOT NULL,
    round INTEGER NOT NULL,
    reviewer TEXT NOT NULL,
    times INTEGER NOT NULL,      -- how often he was asked
    unreadable INTEGER NOT NULL, -- how often his answer could not be read
    failures INTEGER NOT NULL,   -- how often his turn failed
    stalls INTEGER NOT NULL,     -- how often it never reached him
    PRIMARY KEY (task, gate, round, reviewer)
) STRICT, WITHOUT ROWID;

CREATE TABLE reviews (
    id TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    attempt TEXT,
    gate TEXT NOT NULL,
    round INTEGER NOT NULL,
    reviewer TEXT NOT NULL,
    verdict TEXT NOT NULL,
    summary TEXT NOT NULL,
    findings TEXT NOT NULL,      -- JSON
    at TEXT NOT NULL
) STRICT;
CREATE INDEX reviews_by_task ON reviews (task, gate, round);

CREATE TABLE artifacts (
    id TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    attempt TEXT,
    kind TEXT NOT NULL,
    uri TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    summary TEXT NOT NULL,
    produced_by TEXT NOT NULL,
    body TEXT NOT NULL,
    at TEXT NOT NULL
) STRICT;
CREATE INDEX artifacts_by_task ON artifacts (task);

CREATE TABLE check_runs (        -- what the checks of a spec said of an attempt
    task TEXT NOT NULL,
    attempt TEXT NOT NULL,
    id TEXT NOT NULL,            -- as the spec names it
    verdict TEXT NOT NULL,       -- passed | failed | impossible
    summary TEXT NOT NULL,
    artifact TEXT NOT NULL,      -- its test_report
    at TEXT NOT NULL,
    PRIMARY KEY (task, attempt, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE approvals (
    id TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    attempt TEXT NOT NULL,
    purpose TEXT NOT NULL,       -- action | undo | permission
    action TEXT NOT NULL,        -- JSON: exactly what is asked for
    requested_action TEXT NOT NULL,
    side_effect_kind TEXT NOT NULL,
    risk TEXT NOT NULL,
    preview TEXT NOT NULL,
    digest TEXT NOT NULL,        -- sha256 over all that would happen
    idempotency_key TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    at TEXT NOT NULL,
    gate TEXT NOT NULL,
    content_sha256 TEXT NOT NULL,
    target_sha256 TEXT NOT NULL,
    status TEXT NOT NULL,        -- pending | approved | rejected | request_changes | expired
    expires_at TEXT NOT NULL,
    resolved_by TEXT NOT NULL,
    resolved_at TEXT NOT NULL,
    note TEXT NOT NULL,
    state TEXT NOT NULL,         -- empty | started | done | failed | unknown
    started_at TEXT NOT NULL,
    finished_at TEXT NOT NULL,
    summary TEXT NOT NULL,
    artifact TEXT NOT NULL,
    checked INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    void INTEGER NOT NULL,
    origin TEXT NOT NULL
) STRICT;
CREATE INDEX approvals_by_task ON approvals (task);
CREATE INDEX approvals_pending ON approvals (expires_at) WHERE status = 'pending';
CREATE UNIQUE INDEX approvals_ran_once ON approvals (idempotency_key) WHERE started_at <> '';

CREATE TABLE messages (
    id TEXT PRIMARY KEY,         -- ours; `message_id` is the sender's
    direction TEXT NOT NULL,     -- in | out
    message_id TEXT,
    type TEXT,
    sender TEXT,
    receiver TEXT,
    task_id TEXT,                -- as the message names its work
    subtask_id TEXT,
    task TEXT,                   -- ours, when it concerns one
    verdict TEXT NOT NULL,       -- accepted duplicate ignored late orphan rejected imported | written sent undelivered
    name TEXT NOT NULL,          -- as it lay in inbox/ or outbox/
    path TEXT,                   -- where it lies now, below mailbox/; NULL = not yet moved
    sha256 TEXT,
    size INTEGER,
    stamp TEXT,                  -- JSON: device, inode, size, mtime of what was judged
    reason TEXT,                 -- JSON: why it was rejected
    verified TEXT,               -- yes no unsigned; NULL = not examined, or ours
    signer TEXT,                 -- fingerprint of the key that its signature names
    at TEXT NOT NULL
) STRICT;
CREATE INDEX messages_by_message_id ON messages (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX messages_by_hash ON messages (sha256) WHERE direction = 'in';
CREATE INDEX messages_by_task ON messages (task);
CREATE INDEX messages_by_work ON messages (task_id, subtask_id);
CREATE UNIQUE INDEX messages_by_path ON messages (path) WHERE path IS NOT NULL;
CREATE INDEX messages_unfiled ON messages (id) WHERE path IS NULL;
CREATE INDEX messages_unfiled_by_name ON messages (name) WHERE path IS NULL;

CREATE TABLE bodies (
    sha256 TEXT PRIMARY KEY,
    raw BLOB NOT NULL
) STRICT;

CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    task TEXT NOT NULL,
    agent TEXT NOT NULL,         -- whom it occupies; empty = nobody
    data TEXT NOT NULL,          -- JSON
    state TEXT NOT NULL,         -- pending | done | failed
    tries INTEGER NOT NULL DEFAULT 0,
    not_before TEXT,
    at TEXT NOT NULL
) STRICT;
CREATE INDEX outbox_open ON outbox (seq) WHERE state = 'pending';
CREATE INDEX outbox_by_task ON outbox (task, kind, state);
CREATE INDEX outbox_by_agent ON outbox (agent, seq) WHERE kind = 'run_turn';

CREATE TABLE stale_files (
    task TEXT PRIMARY KEY,       -- its task.md shows less than the tables know
    marks INTEGER NOT NULL       -- how often that was noted since: what came while it was written still counts
) STRICT, WITHOUT ROWID;
