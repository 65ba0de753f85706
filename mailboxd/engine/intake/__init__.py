"""Incoming mail: interpret each file once, record it, move it out of the inbox, and check the archive."""
