-- Changes of the configuration: the latest policy is read at each start, and that of an approval when it is shown.

CREATE INDEX events_of_policy ON events (seq) WHERE kind = 'config.changed';
