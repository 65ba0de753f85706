"""Sets up mailboxd for the agents of an OpenClaw, step by step, and undoes it."""
