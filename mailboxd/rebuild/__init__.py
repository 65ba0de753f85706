"""Rebuilding the database from mailbox/ and tasks/ alone."""
