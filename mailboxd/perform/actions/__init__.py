"""Approved side effects: the preview that a person approves, the gate before an action, and performing it once.

Nothing here decides or records anything; callers commit to the database first.
"""
