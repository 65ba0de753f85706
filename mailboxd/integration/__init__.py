"""The parts of mailboxd inside OpenClaw: the gateway plugin, and the skill in an agent's workspace."""
