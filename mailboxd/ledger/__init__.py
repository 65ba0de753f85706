"""The only package that speaks SQL: the event log, the tables that it adds up to, and the outbox of effects."""
