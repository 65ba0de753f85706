"""What of mailboxd lives inside OpenClaw: the gateway plugin, and the skill in an agent's workspace."""
