"""Bytes and records: messages, answers, plans, configuration, keys, the files of a workspace and of its user."""
