"""Bytes <-> typed records: front matter, the types of messages, plans, task.md, and the templates of what we say."""
