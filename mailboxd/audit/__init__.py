"""Verifies a workspace against its event log, and exports evidence."""
