-- Orders that came over OpenClaw's gateway: each is carried out once, however often it is handed over.

CREATE INDEX events_of_remote_orders ON events (seq) WHERE kind = 'order.remote';
