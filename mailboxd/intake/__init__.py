"""Incoming mail: judge each file once, record it, move it out of the inbox, and watch over the archive."""
