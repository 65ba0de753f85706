BEGIN;
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
INSERT INTO "attempts" VALUES('att_01KDVDQEBGDSP29GC1G4J10HPF','tsk_01KDVDQEBGDSP29GC1G4J10HPA',1,'eve','openclaw','running','children','agent:eve:mailboxd:t7-1-884a9a931942','72534edfcf33a2fe','2026-01-01T00:01:10.000Z',NULL,'',NULL,NULL,'{}',0,0,0,'','','','',0,'');
INSERT INTO "attempts" VALUES('att_01KDVDQEBGDSP29GC1G4J10HPG','tsk_01KDVDQEBGDSP29GC1G4J10HPB',1,'bob','openclaw','running','lookup','agent:bob:mailboxd:t7.x-1-2844163e83f0','4e7353131780c41c','2026-01-01T00:01:10.000Z',NULL,'',NULL,NULL,'{}',0,0,0,'','','','',0,'');
INSERT INTO "attempts" VALUES('att_01KDVDQEBGDSP29GC1G4J10HPR','tsk_01KDVDQEBGDSP29GC1G4J10HPM',1,'eve','openclaw','running','children','agent:eve:mailboxd:t10-1-cfcaf940b136','39dc6fe513a0ea07','2026-01-01T00:01:10.000Z',NULL,'',NULL,NULL,'{}',0,0,0,'','','','',0,'');
INSERT INTO "attempts" VALUES('att_01KDVDQEBGDSP29GC1G4J10HPS','tsk_01KDVDQEBGDSP29GC1G4J10HPP',1,'eve','openclaw','running','turn','agent:eve:mailboxd:t10.y-1-82ae36f53497','67a2761c1b3f6b1c','2026-01-01T00:01:10.000Z',NULL,'',NULL,NULL,'{}',0,0,0,'','','','',0,'');
INSERT INTO "attempts" VALUES('att_01KDVDQEBGDSP29GC1G4J10HPV','tsk_01KDVDQEBGDSP29GC1G4J10HPN',1,'bob','openclaw','running','turn','agent:bob:mailboxd:t10.x-1-28e90dbe8878','f87ab8c652ed9501','2026-01-01T00:01:10.000Z',NULL,'',NULL,NULL,'{}',0,0,0,'','','','',0,'');
CREATE TABLE bodies (
    sha256 TEXT PRIMARY KEY,
    raw BLOB NOT NULL
) STRICT;
INSERT INTO "bodies" VALUES('dc14944f6d120b48d94553af53c3d998f1531105b902156f96b6f0e2c51573a0',X'2D2D2D0A747970653A207461736B0A7461736B5F69643A2074370A66726F6D3A206F70657261746F720A6D6573736167655F69643A206F702D370A2D2D2D0A0A23205461736B3A20457272616E6420370A0A232320496E737472756374696F6E730A0A446F2069742E0A0A2323204578706563746564204F75747075740A0A4120706167652E0A0A2323204441470A0A7375627461736B733A0A2020783A207B6167656E743A20626F622C206465736372697074696F6E3A207061727420787D0A2020793A207B6167656E743A206361726C2C206465736372697074696F6E3A207061727420792C20646570656E64735F6F6E3A205B785D7D0A20207A3A207B6167656E743A206361726C2C206465736372697074696F6E3A2070617274207A2C20646570656E64735F6F6E3A205B795D7D0A');
INSERT INTO "bodies" VALUES('e75c7d7cdd3d8127dbe3b9530f3d11f7f42f8dd8e9ad4a43f2794e4d1878e2e5',X'2D2D2D0A747970653A207461736B0A7461736B5F69643A207431300A66726F6D3A206F70657261746F720A6D6573736167655F69643A206F702D31300A2D2D2D0A0A23205461736B3A20457272616E642031300A0A232320496E737472756374696F6E730A0A446F2069742E0A0A2323204578706563746564204F75747075740A0A4120706167652E0A0A2323204441470A0A7375627461736B733A0A2020783A207B6167656E743A20626F622C206465736372697074696F6E3A207061727420787D0A2020793A207B6167656E743A2073656C662C206465736372697074696F6E3A207061727420792C206964656D706F74656E743A20747275657D0A');
CREATE TABLE breakers (
    agent TEXT PRIMARY KEY,      -- lower case
    state TEXT NOT NULL,         -- closed | open | half_open
    failures INTEGER NOT NULL,   -- faults in a row
    times INTEGER NOT NULL,      -- how often it opened since it was last closed
    until TEXT,                  -- when it lets one turn through; NULL unless open
    reason TEXT NOT NULL         -- the latest fault
) STRICT, WITHOUT ROWID;
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
CREATE TABLE dependencies (
    task TEXT NOT NULL,
    needs TEXT NOT NULL,
    PRIMARY KEY (task, needs)
) STRICT, WITHOUT ROWID;
INSERT INTO "dependencies" VALUES('tsk_01KDVDQEBGDSP29GC1G4J10HPC','tsk_01KDVDQEBGDSP29GC1G4J10HPB');
INSERT INTO "dependencies" VALUES('tsk_01KDVDQEBGDSP29GC1G4J10HPD','tsk_01KDVDQEBGDSP29GC1G4J10HPC');
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
INSERT INTO "events" VALUES(1,'2026-01-01T00:01:10.000Z','task.created','tsk_01KDVDQEBGDSP29GC1G4J10HPA','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","needs":[],"task":{"created_at":"2026-01-01T00:01:10.000Z","depth":0,"executor":"eve","id":"tsk_01KDVDQEBGDSP29GC1G4J10HPA","key":"","local_id":"t7","mode":"direct","origin":{"message_id":"op-7"},"parent":null,"phase":"spec_draft","policy":{},"root":"tsk_01KDVDQEBGDSP29GC1G4J10HPA","runtime":"openclaw","sender":"operator","spec":{"acceptance_criteria":["A page."],"expected_output":"A page.","goal":"Errand 7","instructions":"Do it.","outputs":"A page.","scope_in":"Do it."},"subtask_id":null,"task_id":"t7","title":"Errand 7","updated_at":"2026-01-01T00:01:10.000Z"}}','bafc269ee5cb48b8ca4183533058bcf68c653d5599a06b39d8555d1fb6261d8d');
INSERT INTO "events" VALUES(2,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPA','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"mending":{"rounds":1},"phase":"spec_review","reason":"the spec is complete"},"from":"spec_draft","reason":"the spec is complete","to":"spec_review","trigger":"spec complete"}','e5abec2f642560676654aa4650eda552b36fd7a494e620b70c96ecc42de549e7');
INSERT INTO "events" VALUES(3,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPA','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"phase":"execution_ready","reason":"the spec_review is off"},"from":"spec_review","reason":"the spec_review is off","to":"execution_ready","trigger":"approved"}','fab9e3ab96ac3efb33f37a8cd4ab114e94088f35fe601b08f0db23be9cef8c37');
INSERT INTO "events" VALUES(4,'2026-01-01T00:01:10.000Z','task.amended','tsk_01KDVDQEBGDSP29GC1G4J10HPA','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"mode":"coordinating"},"note":"coordinates from here on"}','392e34d6b6f6642f2468e62c27799b8d1618e25785c19cbd633b9f2f28ccbcfd');
INSERT INTO "events" VALUES(5,'2026-01-01T00:01:10.000Z','plan.adopted','tsk_01KDVDQEBGDSP29GC1G4J10HPA','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","children":["x","y","z"]}','fbdb8d9b3765b48612eab1f0fa3bd004d595e722426a6d18e61e5e544710473d');
INSERT INTO "events" VALUES(6,'2026-01-01T00:01:10.000Z','task.created','tsk_01KDVDQEBGDSP29GC1G4J10HPB','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","derived":["acceptance_criteria"],"needs":[],"task":{"created_at":"2026-01-01T00:01:10.000Z","depth":1,"executor":"bob","id":"tsk_01KDVDQEBGDSP29GC1G4J10HPB","key":"x","local_id":"t7.x","mode":"direct","parent":"tsk_01KDVDQEBGDSP29GC1G4J10HPA","phase":"spec_draft","policy":{},"root":"tsk_01KDVDQEBGDSP29GC1G4J10HPA","runtime":"openclaw","sender":"eve","spec":{"acceptance_criteria":["The instructions are carried out, and the result says what was done."],"goal":"part x","instructions":"part x","scope_in":"part x"},"subtask_id":"x","task_id":"t7","title":"part x","updated_at":"2026-01-01T00:01:10.000Z"}}','5ebd756fbf10c7803d83d68eaf3cc7e2c798d7d4c5defa1bf4c71149b2600416');
INSERT INTO "events" VALUES(7,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPB','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"mending":{"rounds":1},"phase":"spec_review","reason":"the spec is complete"},"from":"spec_draft","reason":"the spec is complete","to":"spec_review","trigger":"spec complete"}','d1fc2b88e597c69f60285c29f9d2636ed578f2672d098af0f8d13b0e483b0f8d');
INSERT INTO "events" VALUES(8,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPB','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"phase":"execution_ready","reason":"the spec_review is off"},"from":"spec_review","reason":"the spec_review is off","to":"execution_ready","trigger":"approved"}','f0bc39465781aa0831f2f6902c00207cbdb39fd5251b90d8a26dcb245fa9d289');
INSERT INTO "events" VALUES(9,'2026-01-01T00:01:10.000Z','task.created','tsk_01KDVDQEBGDSP29GC1G4J10HPC','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","derived":["acceptance_criteria"],"needs":["tsk_01KDVDQEBGDSP29GC1G4J10HPB"],"task":{"created_at":"2026-01-01T00:01:10.000Z","depth":1,"executor":"carl","id":"tsk_01KDVDQEBGDSP29GC1G4J10HPC","key":"y","local_id":"t7.y","mode":"direct","parent":"tsk_01KDVDQEBGDSP29GC1G4J10HPA","phase":"spec_draft","policy":{},"root":"tsk_01KDVDQEBGDSP29GC1G4J10HPA","runtime":"openclaw","sender":"eve","spec":{"acceptance_criteria":["The instructions are carried out, and the result says what was done."],"goal":"part y","instructions":"part y","scope_in":"part y"},"subtask_id":"y","task_id":"t7","title":"part y","updated_at":"2026-01-01T00:01:10.000Z"}}','9892e686646935947d2b01200f855af2e8c93a83c4521c77bdcb4b87f3ab081b');
INSERT INTO "events" VALUES(10,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPC','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"mending":{"rounds":1},"phase":"spec_review","reason":"the spec is complete"},"from":"spec_draft","reason":"the spec is complete","to":"spec_review","trigger":"spec complete"}','03c42d0487232018563f32b1c24521fa65f9d3105380eb132746c15e4d7e175e');
INSERT INTO "events" VALUES(11,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPC','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"phase":"execution_ready","reason":"the spec_review is off"},"from":"spec_review","reason":"the spec_review is off","to":"execution_ready","trigger":"approved"}','ccfc63e139cdd673ab20ddd06490d1139662505afe7687492a80f4f40685fedb');
INSERT INTO "events" VALUES(12,'2026-01-01T00:01:10.000Z','task.created','tsk_01KDVDQEBGDSP29GC1G4J10HPD','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","derived":["acceptance_criteria"],"needs":["tsk_01KDVDQEBGDSP29GC1G4J10HPC"],"task":{"created_at":"2026-01-01T00:01:10.000Z","depth":1,"executor":"carl","id":"tsk_01KDVDQEBGDSP29GC1G4J10HPD","key":"z","local_id":"t7.z","mode":"direct","parent":"tsk_01KDVDQEBGDSP29GC1G4J10HPA","phase":"spec_draft","policy":{},"root":"tsk_01KDVDQEBGDSP29GC1G4J10HPA","runtime":"openclaw","sender":"eve","spec":{"acceptance_criteria":["The instructions are carried out, and the result says what was done."],"goal":"part z","instructions":"part z","scope_in":"part z"},"subtask_id":"z","task_id":"t7","title":"part z","updated_at":"2026-01-01T00:01:10.000Z"}}','34fb7ed2738d2bf53c26950918f9cb3d7b5f283433e2ffbdcd3e358417981e43');
INSERT INTO "events" VALUES(13,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPD','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"mending":{"rounds":1},"phase":"spec_review","reason":"the spec is complete"},"from":"spec_draft","reason":"the spec is complete","to":"spec_review","trigger":"spec complete"}','1d777039d3dc469c17ed9b0d0085d94271b554312a763920093c7831247c7266');
INSERT INTO "events" VALUES(14,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPD','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"phase":"execution_ready","reason":"the spec_review is off"},"from":"spec_review","reason":"the spec_review is off","to":"execution_ready","trigger":"approved"}','f4ae452ffb62b984c0fcf6146eb91245abf64cfa55187a4e2c034e5303942f87');
INSERT INTO "events" VALUES(15,'2026-01-01T00:01:10.000Z','message.received','tsk_01KDVDQEBGDSP29GC1G4J10HPA','orchestrator','operator','{"at":"2026-01-01T00:01:10.000Z","message":{"direction":"in","id":"msg_01KDVDQEBGDSP29GC1G4J10HPE","message_id":"op-7","name":"00008-op-7.md","receiver":"eve","sender":"operator","sha256":"dc14944f6d120b48d94553af53c3d998f1531105b902156f96b6f0e2c51573a0","signer":null,"size":307,"stamp":{"dev":65024,"ino":2252951,"mtime_ns":8,"size":307},"subtask_id":null,"task_id":"t7","type":"task","verdict":"accepted","verified":"unsigned"},"warnings":["the header sent_at is missing"]}','b281920e133215f8cfc03726cc144a4940be6b9629d3a5e688669aadc3c8950a');
INSERT INTO "events" VALUES(16,'2026-01-01T00:01:10.000Z','attempt.started','tsk_01KDVDQEBGDSP29GC1G4J10HPA','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","attempt":{"executor":"eve","id":"att_01KDVDQEBGDSP29GC1G4J10HPF","ordinal":1,"reply_token":"72534edfcf33a2fe","runtime":"openclaw","session_key":"agent:eve:mailboxd:t7-1-884a9a931942","started_at":"2026-01-01T00:01:10.000Z","status":"running","task":"tsk_01KDVDQEBGDSP29GC1G4J10HPA","waiting_for":"children"}}','d0d9c3a5116def6b356e67634d375e3b5bdc1413fae7f41fdd602c71f17adf23');
INSERT INTO "events" VALUES(17,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPA','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"attempt":1,"circuit_open":false,"dispatched_at":"2026-01-01T00:01:10.000Z","draft_result":"","due":null,"error":"","not_before":null,"phase":"executing","reason":"attempt 1: waiting for the children"},"from":"execution_ready","reason":"attempt 1: waiting for the children","to":"executing","trigger":"attempt started"}','4769bfa0815695349edc0cd84612712f1c56a6cad4106091b143b9b70b71ab12');
INSERT INTO "events" VALUES(18,'2026-01-01T00:01:10.000Z','attempt.started','tsk_01KDVDQEBGDSP29GC1G4J10HPB','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","attempt":{"executor":"bob","id":"att_01KDVDQEBGDSP29GC1G4J10HPG","ordinal":1,"reply_token":"4e7353131780c41c","runtime":"openclaw","session_key":"agent:bob:mailboxd:t7.x-1-2844163e83f0","started_at":"2026-01-01T00:01:10.000Z","status":"running","task":"tsk_01KDVDQEBGDSP29GC1G4J10HPB","waiting_for":"turn"}}','a0c0fa694a515b9631f21c9588656e0967b6fbca12788f5512e7dc555e48aba2');
INSERT INTO "events" VALUES(19,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPB','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"attempt":1,"circuit_open":false,"dispatched_at":"2026-01-01T00:01:10.000Z","draft_result":"","due":null,"error":"","not_before":null,"phase":"executing","reason":"attempt 1 by bob"},"from":"execution_ready","reason":"attempt 1 by bob","to":"executing","trigger":"attempt started"}','b3a51e2c414b6b7993f580db7f26ff68cdade32195ec917424e9dce492aca045');
INSERT INTO "events" VALUES(20,'2026-01-01T00:01:10.000Z','message.sent','tsk_01KDVDQEBGDSP29GC1G4J10HPB','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","message":{"direction":"out","id":"msg_01KDVDQEBGDSP29GC1G4J10HPH","message_id":"msg_01KDVDQEBGDSP29GC1G4J10HPH","name":"msg_01KDVDQEBGDSP29GC1G4J10HPH.task.t7.x.md","path":"outbox/msg_01KDVDQEBGDSP29GC1G4J10HPH.task.t7.x.md","receiver":"bob","sender":"eve","sha256":"720b6f50e2ec4db889e0c7a4f878cc6f6aad7743cffe911e195e738acc540bf9","size":308,"type":"task","verdict":"sent"}}','7440da7691261e5c1dd244cb7ffb8830fd0a2e060d2aea9bf9324aa7a5edfafd');
INSERT INTO "events" VALUES(21,'2026-01-01T00:01:10.000Z','message.filed',NULL,'orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","id":"msg_01KDVDQEBGDSP29GC1G4J10HPE","path":"archive/2026-01-01/00008-op-7.md"}','212bed7842e653ad0ddad42b99edfb208e23a9791165a62c1c96c4498fcddbea');
INSERT INTO "events" VALUES(22,'2026-01-01T00:01:10.000Z','attempt.checkpoint','tsk_01KDVDQEBGDSP29GC1G4J10HPB','orchestrator','bob','{"at":"2026-01-01T00:01:10.000Z","attempt":"att_01KDVDQEBGDSP29GC1G4J10HPG","changes":{"run_id":null,"waiting_for":"lookup"},"note":"outcome unknown: killed by signal 9, no output"}','91de25c72cc9f4de7e1cb80d831c446b3bd569207d81f47786232e5a0f900534');
INSERT INTO "events" VALUES(23,'2026-01-01T00:01:10.000Z','task.created','tsk_01KDVDQEBGDSP29GC1G4J10HPM','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","needs":[],"task":{"created_at":"2026-01-01T00:01:10.000Z","depth":0,"executor":"eve","id":"tsk_01KDVDQEBGDSP29GC1G4J10HPM","key":"","local_id":"t10","mode":"direct","origin":{"message_id":"op-10"},"parent":null,"phase":"spec_draft","policy":{},"root":"tsk_01KDVDQEBGDSP29GC1G4J10HPM","runtime":"openclaw","sender":"operator","spec":{"acceptance_criteria":["A page."],"expected_output":"A page.","goal":"Errand 10","instructions":"Do it.","outputs":"A page.","scope_in":"Do it."},"subtask_id":null,"task_id":"t10","title":"Errand 10","updated_at":"2026-01-01T00:01:10.000Z"}}','9ab540be82226756079e9b7c73f8b84c0b482edcce9cb47c312e4274aeea6e82');
INSERT INTO "events" VALUES(24,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPM','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"mending":{"rounds":1},"phase":"spec_review","reason":"the spec is complete"},"from":"spec_draft","reason":"the spec is complete","to":"spec_review","trigger":"spec complete"}','42619387892895853b05d24ed5054c0b69edaabe200b4bf19fd24c4f5cd04ef8');
INSERT INTO "events" VALUES(25,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPM','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"phase":"execution_ready","reason":"the spec_review is off"},"from":"spec_review","reason":"the spec_review is off","to":"execution_ready","trigger":"approved"}','4ecfdcb55020823194d5e07db550fae5937fc51361d12773707464a7c8bc26e1');
INSERT INTO "events" VALUES(26,'2026-01-01T00:01:10.000Z','task.amended','tsk_01KDVDQEBGDSP29GC1G4J10HPM','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"mode":"coordinating"},"note":"coordinates from here on"}','3cd6cbdb40cf724a4132cfc1fb5bec8bdefbec236084cbbf18055cff25c27820');
INSERT INTO "events" VALUES(27,'2026-01-01T00:01:10.000Z','plan.adopted','tsk_01KDVDQEBGDSP29GC1G4J10HPM','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","children":["x","y"]}','8fe6c06da59f411ccaa105aea3cd55d4136565871d2f370aca8a63af2915a02a');
INSERT INTO "events" VALUES(28,'2026-01-01T00:01:10.000Z','task.created','tsk_01KDVDQEBGDSP29GC1G4J10HPN','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","derived":["acceptance_criteria"],"needs":[],"task":{"created_at":"2026-01-01T00:01:10.000Z","depth":1,"executor":"bob","id":"tsk_01KDVDQEBGDSP29GC1G4J10HPN","key":"x","local_id":"t10.x","mode":"direct","parent":"tsk_01KDVDQEBGDSP29GC1G4J10HPM","phase":"spec_draft","policy":{},"root":"tsk_01KDVDQEBGDSP29GC1G4J10HPM","runtime":"openclaw","sender":"eve","spec":{"acceptance_criteria":["The instructions are carried out, and the result says what was done."],"goal":"part x","instructions":"part x","scope_in":"part x"},"subtask_id":"x","task_id":"t10","title":"part x","updated_at":"2026-01-01T00:01:10.000Z"}}','04d1a7d9ae4d0975ed2f3a2a935f296f3bf330b2c694ca03202ee51e44ee6e9e');
INSERT INTO "events" VALUES(29,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPN','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"mending":{"rounds":1},"phase":"spec_review","reason":"the spec is complete"},"from":"spec_draft","reason":"the spec is complete","to":"spec_review","trigger":"spec complete"}','1ba69d4b7e90a5ed48de6d5d75c3d959c215ff3fb4e2c1a677d5e60b5a3d2eae');
INSERT INTO "events" VALUES(30,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPN','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"phase":"execution_ready","reason":"the spec_review is off"},"from":"spec_review","reason":"the spec_review is off","to":"execution_ready","trigger":"approved"}','b6265dcd8359868119b098681812e2fc439b09e70275d5c50c0c81061c5091dc');
INSERT INTO "events" VALUES(31,'2026-01-01T00:01:10.000Z','task.created','tsk_01KDVDQEBGDSP29GC1G4J10HPP','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","derived":["acceptance_criteria"],"needs":[],"task":{"created_at":"2026-01-01T00:01:10.000Z","depth":1,"executor":"eve","id":"tsk_01KDVDQEBGDSP29GC1G4J10HPP","key":"y","local_id":"t10.y","mode":"direct","parent":"tsk_01KDVDQEBGDSP29GC1G4J10HPM","phase":"spec_draft","policy":{"idempotent":true},"root":"tsk_01KDVDQEBGDSP29GC1G4J10HPM","runtime":"openclaw","said":{"idempotent":true},"sender":"eve","spec":{"acceptance_criteria":["The instructions are carried out, and the result says what was done."],"goal":"part y","instructions":"part y","scope_in":"part y"},"subtask_id":"y","task_id":"t10","title":"part y","updated_at":"2026-01-01T00:01:10.000Z"}}','d0f19d024da098a83ac1ef93bc04c7b462fc369ac1df35879267da7d4e87cdb8');
INSERT INTO "events" VALUES(32,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPP','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"mending":{"rounds":1},"phase":"spec_review","reason":"the spec is complete"},"from":"spec_draft","reason":"the spec is complete","to":"spec_review","trigger":"spec complete"}','359e8a9781b34b7f56316984596c5628e0dafac42cbc33d4758880751fb2d71e');
INSERT INTO "events" VALUES(33,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPP','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"circuit_open":false,"due":null,"phase":"execution_ready","reason":"the spec_review is off"},"from":"spec_review","reason":"the spec_review is off","to":"execution_ready","trigger":"approved"}','d7556db4085ee50b565b1511ddb602b6237f4dd0d0b7a81449534f3008943b09');
INSERT INTO "events" VALUES(34,'2026-01-01T00:01:10.000Z','message.received','tsk_01KDVDQEBGDSP29GC1G4J10HPM','orchestrator','operator','{"at":"2026-01-01T00:01:10.000Z","message":{"direction":"in","id":"msg_01KDVDQEBGDSP29GC1G4J10HPQ","message_id":"op-10","name":"00011-op-10.md","receiver":"eve","sender":"operator","sha256":"e75c7d7cdd3d8127dbe3b9530f3d11f7f42f8dd8e9ad4a43f2794e4d1878e2e5","signer":null,"size":254,"stamp":{"dev":65024,"ino":2255236,"mtime_ns":11,"size":254},"subtask_id":null,"task_id":"t10","type":"task","verdict":"accepted","verified":"unsigned"},"warnings":["the header sent_at is missing"]}','743d19e2f6c207cb5654f8d5a90c6252ca551b67356b235479bccca9b9d48386');
INSERT INTO "events" VALUES(35,'2026-01-01T00:01:10.000Z','attempt.started','tsk_01KDVDQEBGDSP29GC1G4J10HPM','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","attempt":{"executor":"eve","id":"att_01KDVDQEBGDSP29GC1G4J10HPR","ordinal":1,"reply_token":"39dc6fe513a0ea07","runtime":"openclaw","session_key":"agent:eve:mailboxd:t10-1-cfcaf940b136","started_at":"2026-01-01T00:01:10.000Z","status":"running","task":"tsk_01KDVDQEBGDSP29GC1G4J10HPM","waiting_for":"children"}}','5e58157b124b8e0371b42feca0fa66fb1d7fb4e631ae037ac8f5a868c40c661d');
INSERT INTO "events" VALUES(36,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPM','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"attempt":1,"circuit_open":false,"dispatched_at":"2026-01-01T00:01:10.000Z","draft_result":"","due":null,"error":"","not_before":null,"phase":"executing","reason":"attempt 1: waiting for the children"},"from":"execution_ready","reason":"attempt 1: waiting for the children","to":"executing","trigger":"attempt started"}','5bb040a73ebba618696d4baaf5969ec43b07d66fff2bad4612c18f6758f4c0ce');
INSERT INTO "events" VALUES(37,'2026-01-01T00:01:10.000Z','attempt.started','tsk_01KDVDQEBGDSP29GC1G4J10HPP','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","attempt":{"executor":"eve","id":"att_01KDVDQEBGDSP29GC1G4J10HPS","ordinal":1,"reply_token":"67a2761c1b3f6b1c","runtime":"openclaw","session_key":"agent:eve:mailboxd:t10.y-1-82ae36f53497","started_at":"2026-01-01T00:01:10.000Z","status":"running","task":"tsk_01KDVDQEBGDSP29GC1G4J10HPP","waiting_for":"turn"}}','ac8ee8302f335213afa61e4e22630a8d575d865aba927c3b71ee813a034cecd6');
INSERT INTO "events" VALUES(38,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPP','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"attempt":1,"circuit_open":false,"dispatched_at":"2026-01-01T00:01:10.000Z","draft_result":"","due":null,"error":"","not_before":null,"phase":"executing","reason":"attempt 1 by eve"},"from":"execution_ready","reason":"attempt 1 by eve","to":"executing","trigger":"attempt started"}','e2b57e92a71daf4550392fbbb23ecc79c268f332546623abd6259f1a9b6d8abc');
INSERT INTO "events" VALUES(39,'2026-01-01T00:01:10.000Z','attempt.started','tsk_01KDVDQEBGDSP29GC1G4J10HPN','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","attempt":{"executor":"bob","id":"att_01KDVDQEBGDSP29GC1G4J10HPV","ordinal":1,"reply_token":"f87ab8c652ed9501","runtime":"openclaw","session_key":"agent:bob:mailboxd:t10.x-1-28e90dbe8878","started_at":"2026-01-01T00:01:10.000Z","status":"running","task":"tsk_01KDVDQEBGDSP29GC1G4J10HPN","waiting_for":"turn"}}','b6f312c708db351e32a7a0538a432319cccff4e6ccbe28c102db8cddbdb34aa8');
INSERT INTO "events" VALUES(40,'2026-01-01T00:01:10.000Z','task.transitioned','tsk_01KDVDQEBGDSP29GC1G4J10HPN','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","changes":{"attempt":1,"circuit_open":false,"dispatched_at":"2026-01-01T00:01:10.000Z","draft_result":"","due":null,"error":"","not_before":null,"phase":"executing","reason":"attempt 1 by bob"},"from":"execution_ready","reason":"attempt 1 by bob","to":"executing","trigger":"attempt started"}','73dc50c4f57c071c40767d4fc39722c61fe23eaeaf1ffcb1089ab8854d577123');
INSERT INTO "events" VALUES(41,'2026-01-01T00:01:10.000Z','message.sent','tsk_01KDVDQEBGDSP29GC1G4J10HPN','orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","message":{"direction":"out","id":"msg_01KDVDQEBGDSP29GC1G4J10HPW","message_id":"msg_01KDVDQEBGDSP29GC1G4J10HPW","name":"msg_01KDVDQEBGDSP29GC1G4J10HPW.task.t10.x.md","path":"outbox/msg_01KDVDQEBGDSP29GC1G4J10HPW.task.t10.x.md","receiver":"bob","sender":"eve","sha256":"ffd2847ac9e9b646f3edd98c15eba8d386e50e68f5d7d2e443f46fa128f87f2e","size":308,"type":"task","verdict":"sent"}}','9cb1e85f4918230cf28a4f4ba1281a1deaed38b362513759aa5d61ee90b3e2b6');
INSERT INTO "events" VALUES(42,'2026-01-01T00:01:10.000Z','message.filed',NULL,'orchestrator','mailboxd','{"at":"2026-01-01T00:01:10.000Z","id":"msg_01KDVDQEBGDSP29GC1G4J10HPQ","path":"archive/2026-01-01/00011-op-10.md"}','248dbd19808c7a3a56ad90cfed49b14be75ec2ae58ce4676a47df09bdcdf07c2');
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
INSERT INTO "messages" VALUES('msg_01KDVDQEBGDSP29GC1G4J10HPE','in','op-7','task','operator','eve','t7',NULL,'tsk_01KDVDQEBGDSP29GC1G4J10HPA','accepted','00008-op-7.md','archive/2026-01-01/00008-op-7.md','dc14944f6d120b48d94553af53c3d998f1531105b902156f96b6f0e2c51573a0',307,'{"dev": 65024, "ino": 2252951, "mtime_ns": 8, "size": 307}',NULL,'unsigned',NULL,'2026-01-01T00:01:10.000Z');
INSERT INTO "messages" VALUES('msg_01KDVDQEBGDSP29GC1G4J10HPH','out','msg_01KDVDQEBGDSP29GC1G4J10HPH','task','eve','bob',NULL,NULL,'tsk_01KDVDQEBGDSP29GC1G4J10HPB','sent','msg_01KDVDQEBGDSP29GC1G4J10HPH.task.t7.x.md','outbox/msg_01KDVDQEBGDSP29GC1G4J10HPH.task.t7.x.md','720b6f50e2ec4db889e0c7a4f878cc6f6aad7743cffe911e195e738acc540bf9',308,NULL,NULL,NULL,NULL,'2026-01-01T00:01:10.000Z');
INSERT INTO "messages" VALUES('msg_01KDVDQEBGDSP29GC1G4J10HPQ','in','op-10','task','operator','eve','t10',NULL,'tsk_01KDVDQEBGDSP29GC1G4J10HPM','accepted','00011-op-10.md','archive/2026-01-01/00011-op-10.md','e75c7d7cdd3d8127dbe3b9530f3d11f7f42f8dd8e9ad4a43f2794e4d1878e2e5',254,'{"dev": 65024, "ino": 2255236, "mtime_ns": 11, "size": 254}',NULL,'unsigned',NULL,'2026-01-01T00:01:10.000Z');
INSERT INTO "messages" VALUES('msg_01KDVDQEBGDSP29GC1G4J10HPW','out','msg_01KDVDQEBGDSP29GC1G4J10HPW','task','eve','bob',NULL,NULL,'tsk_01KDVDQEBGDSP29GC1G4J10HPN','sent','msg_01KDVDQEBGDSP29GC1G4J10HPW.task.t10.x.md','outbox/msg_01KDVDQEBGDSP29GC1G4J10HPW.task.t10.x.md','ffd2847ac9e9b646f3edd98c15eba8d386e50e68f5d7d2e443f46fa128f87f2e',308,NULL,NULL,NULL,NULL,'2026-01-01T00:01:10.000Z');
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
INSERT INTO "meta" VALUES('room','{"most": 4, "running": ["trn_01KDVDQEBGDSP29GC1G4J10HPK.ledger", "trn_01KDVDQEBGDSP29GC1G4J10HPT", "trn_01KDVDQEBGDSP29GC1G4J10HPX"], "memory": null}');
INSERT INTO "meta" VALUES('paced','{}');
INSERT INTO "meta" VALUES('head','[19, "b897a6a1a5d7688f7a379d8e052f9c896fccc0178d8eb7c7a169d8cdbdddb421"]');
CREATE TABLE migrations (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at TEXT NOT NULL
) STRICT;
INSERT INTO "migrations" VALUES(1,'0001_initial.sql','2026-01-01T00:00:00.000Z');
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
INSERT INTO "outbox" VALUES(1,'trn_01KDVDQEBGDSP29GC1G4J10HPJ','run_turn','tsk_01KDVDQEBGDSP29GC1G4J10HPB','bob','{"turn_id": "trn_01KDVDQEBGDSP29GC1G4J10HPJ", "turn": "dispatch", "agent": "bob", "attempt_id": "att_01KDVDQEBGDSP29GC1G4J10HPG", "session_key": "agent:bob:mailboxd:t7.x-1-2844163e83f0", "message_id": "msg_01KDVDQEBGDSP29GC1G4J10HPH"}','failed',0,NULL,'2026-01-01T00:01:10.000Z');
INSERT INTO "outbox" VALUES(2,'trn_01KDVDQEBGDSP29GC1G4J10HPK','look_up','tsk_01KDVDQEBGDSP29GC1G4J10HPB','bob','{"turn_id": "trn_01KDVDQEBGDSP29GC1G4J10HPK", "turn": "dispatch", "agent": "bob", "attempt_id": "att_01KDVDQEBGDSP29GC1G4J10HPG", "session_key": "agent:bob:mailboxd:t7.x-1-2844163e83f0", "run_id": null}','pending',0,NULL,'2026-01-01T00:01:10.000Z');
INSERT INTO "outbox" VALUES(3,'trn_01KDVDQEBGDSP29GC1G4J10HPT','run_turn','tsk_01KDVDQEBGDSP29GC1G4J10HPP','eve','{"turn_id": "trn_01KDVDQEBGDSP29GC1G4J10HPT", "turn": "work", "agent": "eve", "attempt_id": "att_01KDVDQEBGDSP29GC1G4J10HPS", "session_key": "agent:eve:mailboxd:t10.y-1-82ae36f53497"}','pending',0,NULL,'2026-01-01T00:01:10.000Z');
INSERT INTO "outbox" VALUES(4,'trn_01KDVDQEBGDSP29GC1G4J10HPX','run_turn','tsk_01KDVDQEBGDSP29GC1G4J10HPN','bob','{"turn_id": "trn_01KDVDQEBGDSP29GC1G4J10HPX", "turn": "dispatch", "agent": "bob", "attempt_id": "att_01KDVDQEBGDSP29GC1G4J10HPV", "session_key": "agent:bob:mailboxd:t10.x-1-28e90dbe8878", "message_id": "msg_01KDVDQEBGDSP29GC1G4J10HPW"}','pending',0,NULL,'2026-01-01T00:01:10.000Z');
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
CREATE TABLE stale_files (
    task TEXT PRIMARY KEY,       -- its task.md shows less than the tables know
    marks INTEGER NOT NULL       -- how often that was noted since: what came while it was written still counts
) STRICT, WITHOUT ROWID;
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
INSERT INTO "tasks" VALUES('tsk_01KDVDQEBGDSP29GC1G4J10HPA','t7','t7',NULL,'operator',NULL,'tsk_01KDVDQEBGDSP29GC1G4J10HPA','',0,'Errand 7','coordinating','eve','openclaw','executing','{"acceptance_criteria": ["A page."], "expected_output": "A page.", "goal": "Errand 7", "instructions": "Do it.", "outputs": "A page.", "scope_in": "Do it."}','{}','2026-01-01T00:01:10.000Z','2026-01-01T00:01:10.000Z',1,0,0,0,NULL,NULL,'attempt 1: waiting for the children','','','','','','',0,0,0,'','[]','2026-01-01T00:01:10.000Z',NULL,'{"message_id": "op-7"}','{}','[]','[]','{"rounds": 1}','',NULL,'{}',1,0,1,0,NULL,0,0.0,0,3,0,0,0);
INSERT INTO "tasks" VALUES('tsk_01KDVDQEBGDSP29GC1G4J10HPB','t7.x','t7','x','eve','tsk_01KDVDQEBGDSP29GC1G4J10HPA','tsk_01KDVDQEBGDSP29GC1G4J10HPA','x',1,'part x','direct','bob','openclaw','executing','{"acceptance_criteria": ["The instructions are carried out, and the result says what was done."], "goal": "part x", "instructions": "part x", "scope_in": "part x"}','{}','2026-01-01T00:01:10.000Z','2026-01-01T00:01:10.000Z',1,0,0,0,NULL,NULL,'attempt 1 by bob','','','','','','',0,0,0,'','[]','2026-01-01T00:01:10.000Z',NULL,'{}','{}','[]','[]','{"rounds": 1}','',NULL,'{}',6,0,1,0,NULL,0,0.0,0,0,0,0,0);
INSERT INTO "tasks" VALUES('tsk_01KDVDQEBGDSP29GC1G4J10HPC','t7.y','t7','y','eve','tsk_01KDVDQEBGDSP29GC1G4J10HPA','tsk_01KDVDQEBGDSP29GC1G4J10HPA','y',1,'part y','direct','carl','openclaw','execution_ready','{"acceptance_criteria": ["The instructions are carried out, and the result says what was done."], "goal": "part y", "instructions": "part y", "scope_in": "part y"}','{}','2026-01-01T00:01:10.000Z','2026-01-01T00:01:10.000Z',0,0,0,0,NULL,NULL,'the spec_review is off','','','','','','',0,0,0,'','[]',NULL,NULL,'{}','{}','[]','[]','{"rounds": 1}','',NULL,'{}',9,1,1,0,NULL,0,0.0,0,0,0,0,0);
INSERT INTO "tasks" VALUES('tsk_01KDVDQEBGDSP29GC1G4J10HPD','t7.z','t7','z','eve','tsk_01KDVDQEBGDSP29GC1G4J10HPA','tsk_01KDVDQEBGDSP29GC1G4J10HPA','z',1,'part z','direct','carl','openclaw','execution_ready','{"acceptance_criteria": ["The instructions are carried out, and the result says what was done."], "goal": "part z", "instructions": "part z", "scope_in": "part z"}','{}','2026-01-01T00:01:10.000Z','2026-01-01T00:01:10.000Z',0,0,0,0,NULL,NULL,'the spec_review is off','','','','','','',0,0,0,'','[]',NULL,NULL,'{}','{}','[]','[]','{"rounds": 1}','',NULL,'{}',12,1,1,0,NULL,0,0.0,0,0,0,0,0);
INSERT INTO "tasks" VALUES('tsk_01KDVDQEBGDSP29GC1G4J10HPM','t10','t10',NULL,'operator',NULL,'tsk_01KDVDQEBGDSP29GC1G4J10HPM','',0,'Errand 10','coordinating','eve','openclaw','executing','{"acceptance_criteria": ["A page."], "expected_output": "A page.", "goal": "Errand 10", "instructions": "Do it.", "outputs": "A page.", "scope_in": "Do it."}','{}','2026-01-01T00:01:10.000Z','2026-01-01T00:01:10.000Z',1,0,0,0,NULL,NULL,'attempt 1: waiting for the children','','','','','','',0,0,0,'','[]','2026-01-01T00:01:10.000Z',NULL,'{"message_id": "op-10"}','{}','[]','[]','{"rounds": 1}','',NULL,'{}',23,0,1,0,NULL,0,0.0,0,2,0,0,0);
INSERT INTO "tasks" VALUES('tsk_01KDVDQEBGDSP29GC1G4J10HPN','t10.x','t10','x','eve','tsk_01KDVDQEBGDSP29GC1G4J10HPM','tsk_01KDVDQEBGDSP29GC1G4J10HPM','x',1,'part x','direct','bob','openclaw','executing','{"acceptance_criteria": ["The instructions are carried out, and the result says what was done."], "goal": "part x", "instructions": "part x", "scope_in": "part x"}','{}','2026-01-01T00:01:10.000Z','2026-01-01T00:01:10.000Z',1,0,0,0,NULL,NULL,'attempt 1 by bob','','','','','','',0,0,0,'','[]','2026-01-01T00:01:10.000Z',NULL,'{}','{}','[]','[]','{"rounds": 1}','',NULL,'{}',28,0,1,0,NULL,0,0.0,0,0,0,0,0);
INSERT INTO "tasks" VALUES('tsk_01KDVDQEBGDSP29GC1G4J10HPP','t10.y','t10','y','eve','tsk_01KDVDQEBGDSP29GC1G4J10HPM','tsk_01KDVDQEBGDSP29GC1G4J10HPM','y',1,'part y','direct','eve','openclaw','executing','{"acceptance_criteria": ["The instructions are carried out, and the result says what was done."], "goal": "part y", "instructions": "part y", "scope_in": "part y"}','{"idempotent": true}','2026-01-01T00:01:10.000Z','2026-01-01T00:01:10.000Z',1,0,0,0,NULL,NULL,'attempt 1 by eve','','','','','','',0,0,0,'','[]','2026-01-01T00:01:10.000Z',NULL,'{}','{"idempotent": true}','[]','[]','{"rounds": 1}','',NULL,'{}',31,0,1,0,NULL,0,0.0,0,0,0,0,0);
CREATE INDEX events_by_task ON events (task, seq) WHERE task IS NOT NULL;
CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events is append-only'); END;
CREATE TRIGGER events_are_never_removed BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events is append-only'); END;
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
CREATE INDEX dependencies_by_needs ON dependencies (needs);
CREATE INDEX breakers_open ON breakers (until) WHERE state = 'open';
CREATE INDEX reviews_by_task ON reviews (task, gate, round);
CREATE INDEX artifacts_by_task ON artifacts (task);
CREATE INDEX approvals_by_task ON approvals (task);
CREATE INDEX approvals_pending ON approvals (expires_at) WHERE status = 'pending';
CREATE UNIQUE INDEX approvals_ran_once ON approvals (idempotency_key) WHERE started_at <> '';
CREATE INDEX messages_by_message_id ON messages (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX messages_by_hash ON messages (sha256) WHERE direction = 'in';
CREATE INDEX messages_by_task ON messages (task);
CREATE INDEX messages_by_work ON messages (task_id, subtask_id);
CREATE UNIQUE INDEX messages_by_path ON messages (path) WHERE path IS NOT NULL;
CREATE INDEX messages_unfiled ON messages (id) WHERE path IS NULL;
CREATE INDEX messages_unfiled_by_name ON messages (name) WHERE path IS NULL;
CREATE INDEX outbox_open ON outbox (seq) WHERE state = 'pending';
CREATE INDEX outbox_by_task ON outbox (task, kind, state);
CREATE INDEX outbox_by_agent ON outbox (agent, seq) WHERE kind = 'run_turn';
PRAGMA user_version = 1;
COMMIT;
