"""Calls of agents: child processes, the contract of the `openclaw` CLI, and the scripted stand-in for it."""
